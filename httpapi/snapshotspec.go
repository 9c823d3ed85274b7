package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate/sessions/snapshot"
)

// manifestHeader carries what a save of one stream says besides its query: the JSON of a
// saveBody in base64url, since the body is the image.
const manifestHeader = "X-Headgate-Manifest"

// A saveBody says what is to be saved: the body that begins an upload, and the metadata
// of a save of one stream.
type saveBody struct {
	Format        int                 `json:"format"`
	Requires      []string            `json:"requires"`
	Name          string              `json:"name"`
	Parts         []partBody          `json:"parts"`
	Part          string              `json:"part"` // this and the next five: the only part, where there is no list
	Kind          string              `json:"kind"`
	Layout        snapshot.Layout     `json:"layout"`
	ChunkBytes    int                 `json:"chunk_bytes"`
	Size          *int64              `json:"size_bytes"`
	Regions       []snapshot.Region   `json:"regions"`
	ExpectedHead  *string             `json:"expected_head_sha"`
	WorkspaceSHA  string              `json:"workspace_sha"`
	MoveWorkspace bool                `json:"move_workspace"`
	BaseSHA       string              `json:"base_sha"`
	Machine       map[string]string   `json:"machine"`
	Arch          string              `json:"arch"`
	Boundary      string              `json:"boundary"`
	Excluded      []snapshot.Excluded `json:"excluded"`
	Quiet         *snapshot.Quiet     `json:"quiescence"`
	Envelope      json.RawMessage     `json:"envelope"`
	IdleTimeout   *int64              `json:"idle_timeout_s"`
	TTLUnused     *int64              `json:"ttl_unused_s"`
	KeepLast      *int                `json:"keep_last"`
	DryRun        bool                `json:"dry_run"`
}

// A partBody is a part as it is announced and told.
type partBody struct {
	Name       string            `json:"name"`
	Kind       string            `json:"kind"`
	Layout     snapshot.Layout   `json:"layout"`
	ChunkBytes int               `json:"chunk_bytes"`
	Size       *int64            `json:"size_bytes"`
	Regions    []snapshot.Region `json:"regions,omitempty"`
}

func (b partBody) spec() snapshot.PartSpec {
	p := snapshot.PartSpec{Name: b.Name, Kind: b.Kind, Layout: b.Layout, ChunkBytes: b.ChunkBytes, Size: -1, Regions: b.Regions}
	if b.Size != nil {
		p.Size = *b.Size
	}
	return p
}

func partBodyOf(p snapshot.PartSpec) partBody {
	size := p.Size
	return partBody{p.Name, p.Kind, p.Layout, p.ChunkBytes, &size, p.Regions}
}

// saveFields are the members of a saveBody that this server knows; others are kept.
var saveFields = []string{
	"format", "requires", "name", "parts", "part", "kind", "layout", "chunk_bytes", "size_bytes", "regions",
	"expected_head_sha", "workspace_sha", "move_workspace", "base_sha", "machine", "arch", "boundary", "excluded",
	"quiescence", "envelope", "idle_timeout_s", "ttl_unused_s", "keep_last", "dry_run",
}

// saveSpecOf reads what is to be saved. The format and what it requires come first: the
// rest may mean something else.
func saveSpecOf(session string, text []byte) (spec snapshot.SaveSpec, err error) {
	var head struct {
		Format   int      `json:"format"`
		Requires []string `json:"requires"`
	}
	if err := unmarshal(text, &head); err != nil {
		return spec, err
	}
	if head.Format != 0 || head.Requires != nil {
		if err := snapshot.CheckFormat(max(head.Format, 1), head.Requires); err != nil {
			return spec, err
		}
	}
	var b saveBody
	if err := unmarshal(text, &b); err != nil {
		return spec, err
	}
	if spec, err = b.spec(session); err != nil {
		return spec, err
	}
	spec.Extra = map[string]json.RawMessage{}
	if err := unmarshal(text, &spec.Extra); err != nil {
		return spec, err
	}
	for _, known := range saveFields {
		delete(spec.Extra, known)
	}
	return spec, nil
}

func (b saveBody) spec(session string) (spec snapshot.SaveSpec, err error) {
	spec = snapshot.SaveSpec{
		Session: session, Format: b.Format, Requires: b.Requires, Name: b.Name, MoveWorkspace: b.MoveWorkspace, Machine: b.Machine,
		Boundary: b.Boundary, Excluded: b.Excluded, Quiet: b.Quiet, KeepLast: b.KeepLast, DryRun: b.DryRun,
	}
	if string(b.Envelope) != "null" {
		spec.Envelope = b.Envelope
	}
	if spec.Parts, err = b.parts(); err != nil {
		return spec, err
	}
	if b.Arch != "" {
		if have := spec.Machine["arch"]; have != "" && have != b.Arch {
			return spec, &snapshot.FieldError{Field: "machine.arch", Text: "is not arch"}
		}
		if spec.Machine == nil {
			spec.Machine = map[string]string{}
		}
		spec.Machine["arch"] = b.Arch
	}
	if b.ExpectedHead != nil && *b.ExpectedHead != "" {
		head, err := namedOID("expected_head_sha", *b.ExpectedHead)
		if err != nil {
			return spec, err
		}
		spec.ExpectedHead = &head
	}
	if spec.Workspace, err = namedOID("workspace_sha", b.WorkspaceSHA); err != nil {
		return spec, err
	}
	if spec.Base, err = namedOID("base_sha", b.BaseSHA); err != nil {
		return spec, err
	}
	if spec.IdleTimeout, err = optionalSeconds("idle_timeout_s", b.IdleTimeout); err != nil {
		return spec, err
	}
	spec.TTLUnused, err = seconds("ttl_unused_s", b.TTLUnused, 0)
	return spec, err
}

// parts are those that are listed, or the one that the body itself describes.
func (b saveBody) parts() ([]snapshot.PartSpec, error) {
	if len(b.Parts) == 0 {
		return []snapshot.PartSpec{partBody{b.Part, b.Kind, b.Layout, b.ChunkBytes, b.Size, b.Regions}.spec()}, nil
	}
	if b.Part != "" || b.Kind != "" || b.Layout != "" || b.ChunkBytes != 0 || b.Size != nil || b.Regions != nil {
		return nil, invalid("what a part is stands in parts or beside it, not both")
	}
	parts := make([]snapshot.PartSpec, len(b.Parts))
	for i, p := range b.Parts {
		parts[i] = p.spec()
	}
	return parts, nil
}

func namedOID(field, text string) (id snapshot.OID, err error) {
	if text == "" {
		return id, nil
	}
	if id, err = snapshot.ParseOID(text); err != nil {
		return id, invalid("%s is not 40 lower-case hex digits", field)
	}
	return id, nil
}

// streamSpec is what a save of one stream says in its header and its query, which wins.
func (q *request) streamSpec() (spec snapshot.SaveSpec, err error) {
	v := q.query()
	if v.err != nil {
		return spec, v.err
	}
	meta := map[string]json.RawMessage{}
	if coded := first(q.r.Header.Get(manifestHeader), v.text("meta")); coded != "" {
		text, err := base64.RawURLEncoding.DecodeString(trimPadding(coded))
		if err != nil {
			return spec, invalid("%s is not base64url", manifestHeader)
		}
		if err := unmarshal(text, &meta); err != nil {
			return spec, err
		}
	}
	for name, kind := range streamQuery {
		if text := v.text(name); text != "" {
			value, err := kind(name, text)
			if err != nil {
				return spec, err
			}
			if meta[name], err = json.Marshal(value); err != nil {
				return spec, invalid("query parameter %s: %v", name, err)
			}
		}
	}
	if _, said := meta["size_bytes"]; !said { // -1: not known
		meta["size_bytes"] = strconv.AppendInt(nil, q.r.ContentLength, 10)
	}
	text, err := json.Marshal(meta)
	if err != nil {
		return spec, invalid("%s: %v", manifestHeader, err)
	}
	spec, err = saveSpecOf(q.id, text)
	if err == nil && len(spec.Parts) != 1 {
		err = invalid("a stream is one part; several are saved by an upload")
	}
	return spec, err
}

func trimPadding(s string) string {
	for len(s) > 0 && s[len(s)-1] == '=' {
		s = s[:len(s)-1]
	}
	return s
}

// streamQuery are the fields that a save of one stream may have in its query.
var streamQuery = map[string]func(name, text string) (any, error){
	"name": asText, "part": asText, "kind": asText, "layout": asText, "chunk_bytes": asNumber, "size_bytes": asNumber,
	"expected_head_sha": asText, "workspace_sha": asText, "move_workspace": asFlag, "base_sha": asText, "boundary": asText,
	"arch": asText, "keep_last": asNumber, "idle_timeout_s": asNumber, "ttl_unused_s": asNumber, "dry_run": asFlag, "format": asNumber,
}

func asText(_, text string) (any, error) { return text, nil }

func asNumber(name, text string) (any, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, invalid("query parameter %s is not a number", name)
	}
	return n, nil
}

func asFlag(name, text string) (any, error) {
	q := query{values: url.Values{name: {text}}}
	return q.flag(name), q.err
}

// An uploadBody is an upload in answers.
type uploadBody struct {
	ID        string     `json:"id"`
	SessionID string     `json:"session_id"`
	Parts     []partBody `json:"parts"`
	BaseSHA   string     `json:"base_sha,omitempty"`
	Staged    int64      `json:"staged_bytes"`
	CreatedAt string     `json:"created_at"`
	ExpiresAt string     `json:"expires_at,omitempty"`
}

func uploadBodyOf(u snapshot.Upload) uploadBody {
	b := uploadBody{
		ID: u.ID, SessionID: u.Session, BaseSHA: u.Base.String(), Staged: u.Staged, Parts: make([]partBody, len(u.Parts)),
		CreatedAt: wireTime(u.CreatedAt.UTC()), ExpiresAt: timeOrNone(u.ExpiresAt.Truncate(time.Second)),
	}
	for i, p := range u.Parts {
		b.Parts[i] = partBodyOf(p)
	}
	return b
}
