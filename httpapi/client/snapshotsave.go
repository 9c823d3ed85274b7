package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/sessions/snapshot"
)

// SaveOptions say what is saved and how.
type SaveOptions struct {
	Session string
	Name    string
	Parts   []SavePart

	Workspace     string // commit it belongs to; empty: the session's head
	MoveWorkspace bool   // and the session's branch goes there with it
	ExpectedHead  string // where the session's last snapshot must be; 40 zeros: nowhere
	Base          string // whose chunks are not sent again; empty: the session's last
	Machine       map[string]string
	Boundary      string
	Excluded      []snapshot.Excluded
	IdleTimeout   *time.Duration
	TTLUnused     time.Duration
	KeepLast      *int
	DryRun        bool           // only tell what it would be
	Extra         map[string]any // further fields, kept in the manifest

	// Seal makes a chunk's content what the server may see, appended to buf; nil: the
	// content itself. Envelope is asked for what goes with it when everything was sent,
	// with the hash of what was saved; Opening is what is told of it before.
	Seal     func(buf, content []byte) []byte
	Opening  json.RawMessage
	Envelope func(root snapshot.Hash) (json.RawMessage, error)
	// Quiet is asked for the proof of quiet when everything was read; nil: there is none.
	Quiet func() (*snapshot.Quiet, error)

	// Memo remembers what the images were like at the last save, so that what has not
	// changed is not hashed again; nil: everything is.
	Memo *Memo

	Upload   string              // id of an upload to go on with; empty: a new one
	Begun    func(upload Upload) // told as soon as there is one: who is interrupted goes on with its id
	Workers  int                 // connections; 0: two for each processor, at most 8
	Progress func(SaveProgress)  // told now and then, by one goroutine at a time
}

// A SavePart is an image to be saved.
type SavePart struct {
	Name, Kind string
	Layout     snapshot.Layout
	ChunkBytes int
	Size       int64 // -1: as much as there is
	Regions    []snapshot.Region
	// Open begins it; it is read once, and closed.
	Open func() (io.ReadCloser, error)
}

// A SaveProgress tells how far a save is, in bytes.
type SaveProgress struct {
	Total int64 // of all parts; -1: not known
	Read  int64
	Sent  int64 // as they travelled
	Saved int64 // read, and not to be sent: zeros, or there already
}

// An Upload is a save under way.
type Upload struct {
	ID        string     `json:"id"`
	Session   string     `json:"session_id"`
	Parts     []PartSpec `json:"parts"`
	Base      string     `json:"base_sha"`
	Staged    int64      `json:"staged_bytes"`
	ExpiresAt time.Time  `json:"expires_at,omitzero"`
}

// A PartSpec is a part as it is announced.
type PartSpec struct {
	Name       string            `json:"name"`
	Kind       string            `json:"kind"`
	Layout     snapshot.Layout   `json:"layout"`
	ChunkBytes int               `json:"chunk_bytes"`
	Size       int64             `json:"size_bytes"`
	Regions    []snapshot.Region `json:"regions,omitempty"`
}

var (
	errNoParts    = errors.New("nothing to save: there is no part")
	errOtherParts = errors.New("the upload is one of other parts")
)

// Save saves parts: it tells the server hashes, sends only what is missing there, by
// several connections, and seals. What has failed on the way is tried again; after an
// interruption an upload can be gone on with, where nothing is sent twice.
// Errors: *ServerError, ErrBadAnswer, those of what is read.
func (s *Snapshots) Save(ctx context.Context, o SaveOptions) (Snapshot, error) {
	if len(o.Parts) == 0 {
		return Snapshot{}, errNoParts
	}
	got, untold, err := s.saveOnce(ctx, o)
	var refused *ServerError
	if untold && errors.As(err, &refused) && (refused.Code == "hash_mismatch" || refused.Code == "chunks_missing") {
		// What it was to build on has gone meanwhile, or another save came between.
		o.Memo.Of(snapshot.OID{})
		o.Upload = ""
		got, _, err = s.saveOnce(ctx, o)
	}
	return got, err
}

// saveOnce saves, and tells whether the server was left to know leaves by itself.
func (s *Snapshots) saveOnce(ctx context.Context, o SaveOptions) (_ Snapshot, untold bool, err error) {
	up, err := s.beginSave(ctx, o)
	if err != nil {
		return Snapshot{}, false, err
	}
	if o.Begun != nil {
		o.Begun(up)
	}
	v := &saving{s: s, o: o, up: up, coder: snapshot.NewCoder(), told: SaveProgress{Total: totalOf(o.Parts)}}
	if v.workers = o.Workers; v.workers < 1 {
		v.workers = min(8, 2*runtime.GOMAXPROCS(0))
	}
	got, err := v.run(ctx)
	var refused *ServerError
	if errors.As(err, &refused) && refused.Status >= 400 && refused.Status < 500 && refused.Status != http.StatusTooManyRequests && ctx.Err() == nil {
		// It will not become better: what was staged is of no use.
		_ = s.Drop(context.WithoutCancel(ctx), o.Session, up.ID)
	}
	return got, v.untold.Load() > 0, err
}

func totalOf(parts []SavePart) (total int64) {
	for _, p := range parts {
		if p.Size < 0 {
			return -1
		}
		total += p.Size
	}
	return total
}

// Drop lets go of an upload.
func (s *Snapshots) Drop(ctx context.Context, session, upload string) error {
	return s.api.Do(ctx, http.MethodDelete, s.path("sessions", session, "snapshots", "uploads", upload), nil, nil, answerLimit)
}

// Upload tells of an upload that is under way.
func (s *Snapshots) Upload(ctx context.Context, session, upload string) (up Upload, err error) {
	return up, s.api.Do(ctx, http.MethodGet, s.path("sessions", session, "snapshots", "uploads", upload), nil, &up, 0)
}

func (s *Snapshots) beginSave(ctx context.Context, o SaveOptions) (up Upload, err error) {
	if o.Upload != "" {
		up, err = s.Upload(ctx, o.Session, o.Upload)
	} else {
		err = s.api.Do(ctx, http.MethodPost, s.path("sessions", o.Session, "snapshots", "uploads"), o.spec(), &up, answerLimit)
	}
	if err == nil && (up.ID == "" || len(up.Parts) != len(o.Parts)) {
		err = ErrBadAnswer
		if o.Upload != "" {
			err = errOtherParts
		}
	}
	return up, err
}

// spec is the body that begins an upload.
func (o SaveOptions) spec() map[string]any {
	parts := make([]PartSpec, len(o.Parts))
	for i, p := range o.Parts {
		parts[i] = PartSpec{p.Name, p.Kind, p.Layout, p.ChunkBytes, p.Size, p.Regions}
	}
	spec := map[string]any{}
	for name, v := range o.Extra {
		spec[name] = v
	}
	spec["format"], spec["parts"] = snapshot.FormatVersion, parts
	for name, v := range map[string]string{
		"name": o.Name, "workspace_sha": o.Workspace, "expected_head_sha": o.ExpectedHead, "base_sha": o.Base, "boundary": o.Boundary,
	} {
		if v != "" {
			spec[name] = v
		}
	}
	if o.MoveWorkspace {
		spec["move_workspace"] = true
	}
	if o.DryRun {
		spec["dry_run"] = true
	}
	if len(o.Machine) > 0 {
		spec["machine"] = o.Machine
	}
	if len(o.Excluded) > 0 {
		spec["excluded"] = o.Excluded
	}
	if o.Opening != nil {
		spec["envelope"] = o.Opening
	}
	if o.IdleTimeout != nil {
		spec["idle_timeout_s"] = int64(*o.IdleTimeout / time.Second)
	}
	if o.TTLUnused > 0 {
		spec["ttl_unused_s"] = int64(o.TTLUnused / time.Second)
	}
	if o.KeepLast != nil {
		spec["keep_last"] = *o.KeepLast
	}
	return spec
}

// run sends all parts and seals.
func (v *saving) run(ctx context.Context) (Snapshot, error) {
	parts := make([]snapshot.Part, len(v.o.Parts))
	if v.o.Memo != nil {
		base, err := snapshot.ParseOID(v.up.Base)
		if err != nil { // it builds on nothing
			base = snapshot.OID{}
		}
		v.o.Memo.Of(base)
	}
	for i := range v.o.Parts {
		var err error
		if parts[i], err = v.part(ctx, i); err != nil {
			return Snapshot{}, err
		}
	}
	got, err := v.seal(ctx, parts)
	if err == nil && v.o.Memo != nil && got.SHA != "" && !v.o.DryRun {
		err = v.keepMemo(got.SHA)
	}
	return got, err
}

func (v *saving) keepMemo(sha string) error {
	id, err := snapshot.ParseOID(sha)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadAnswer, err)
	}
	if v.o.Memo.sha == id && v.untold.Load() == v.leaves {
		return nil // it remembers all of this
	}
	return v.o.Memo.Keep(id, v.memo)
}

// part sends one part and gives what it has become.
func (v *saving) part(ctx context.Context, i int) (snapshot.Part, error) {
	body, err := v.o.Parts[i].Open()
	if err != nil {
		return snapshot.Part{}, err
	}
	defer body.Close()
	p := newSendPart(v, v.up.Parts[i])
	if file, ok := body.(io.ReaderAt); ok && p.spec.Layout == snapshot.Pages && p.spec.Size >= 0 {
		p.direct = v.up.Base == "" && v.o.Upload == "" && v.o.Seal == nil
		if err := p.scan(ctx, file); err != nil {
			return snapshot.Part{}, err
		}
		return v.sent(p), nil
	}
	group, ctx := errgroup.WithContext(ctx)
	jobs := make(chan *sendJob)
	group.Go(func() error {
		defer close(jobs)
		return p.read(ctx, body, jobs)
	})
	for range p.workers {
		group.Go(func() error {
			for job := range jobs {
				if err := p.send(ctx, job); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return snapshot.Part{}, err
	}
	return v.sent(p), nil
}

// sent is a part all of which was sent.
func (v *saving) sent(p *sendPart) snapshot.Part {
	v.leaves += int64(len(p.leaves))
	if v.o.Memo != nil && p.spec.Layout == snapshot.Pages {
		p.memo.Name, p.memo.ChunkBytes, p.memo.Size = p.spec.Name, p.spec.ChunkBytes, p.size
		v.memo = append(v.memo, p.memo)
	}
	return p.result()
}

type sealBody struct {
	Roots    map[string]string   `json:"roots"`
	Sizes    map[string]int64    `json:"sizes"`
	Quiet    *snapshot.Quiet     `json:"quiescence,omitempty"`
	Excluded []snapshot.Excluded `json:"excluded,omitempty"`
	Envelope json.RawMessage     `json:"envelope,omitempty"`
}

// sealLimit is how long a server may take to read all again before it says that a
// snapshot is ready.
const sealLimit = time.Hour

func (v *saving) seal(ctx context.Context, parts []snapshot.Part) (got Snapshot, err error) {
	body := sealBody{Roots: map[string]string{}, Sizes: map[string]int64{}}
	for _, p := range parts {
		body.Roots[p.Name], body.Sizes[p.Name] = p.Root, p.Size
	}
	if v.o.Quiet != nil {
		if body.Quiet, err = v.o.Quiet(); err != nil {
			return got, err
		}
	}
	if v.o.Envelope != nil {
		if body.Envelope, err = v.o.Envelope(snapshot.SnapshotRoot(parts)); err != nil {
			return got, err
		}
	}
	path := v.s.path("sessions", v.o.Session, "snapshots", "uploads", v.up.ID, "seal")
	return got, v.s.api.Do(ctx, http.MethodPost, path, body, &got, sealLimit)
}
