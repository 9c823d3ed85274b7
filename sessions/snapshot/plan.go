package snapshot

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// A planned save is one that nothing stands in the way of, as far as can be told before
// its data is read.
type planned struct {
	spec   SaveSpec // with the defaults filled in, its parts complete
	id     string   // of the save: of its record while it is captured, of its stage, Snapshot.Upload
	upload bool     // it is a resumable one: the caller sets it before capture
	owner  Owner
	ref    string // the session's snapshot ref
	head   OID    // where it is; zero: absent
	parent OID    // for Manifest.Parent: head, or what the session was made from; zero: neither
	at     time.Time

	workspace OID       // what the snapshot belongs to, never zero
	base      *Snapshot // whose chunks are re-used; nil: none
	manifest  Manifest  // of base
}

// Limits of what a save says besides its image.
const (
	maxText     = 256 // bytes of a name, a boundary, a key or value of machine
	maxMachine  = 64
	maxExcluded = 10_000
	maxReason   = 1_000
	maxExtra    = 64 << 10
	maxEnvelope = 16 << 10
	maxDuration = 100 * 365 * 24 * time.Hour // longer times are cut to it
)

// plan checks all of a save that can be checked before its data is read, and fills in
// what was left out. Nothing is written. A call that was made before is a
// *ledger.RepeatedError.
func (k *Keeper) plan(ctx context.Context, repo Repo, s *SaveSpec) (*planned, error) {
	if err := k.reads(repo.ID()).known(ctx, s.Once.StoreKey()); err != nil {
		return nil, err
	}
	return k.planAs(ctx, repo, *s, newSaveID())
}

func newSaveID() string { return "save_" + strings.ReplaceAll(uuid.NewString(), "-", "") }

func (k *Keeper) planAs(ctx context.Context, repo Repo, s SaveSpec, id string) (*planned, error) {
	p := &planned{spec: s, id: id, ref: RefPrefix + s.Session}
	if err := p.complete(k.Limits); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context, *Keeper, Repo) error{p.ofSession, p.ofHead, p.ofWorkspace, p.ofBase} {
		if err := step(ctx, k, repo); err != nil {
			return nil, err
		}
	}
	if err := p.fits(); err != nil {
		return nil, err
	}
	if !p.spec.imported {
		if err := p.sealed(k.Limits.RequireSeal); err != nil {
			return nil, err
		}
	}
	return p, k.room(ctx, k.reads(repo.ID()), 0)
}

// complete checks what was asked for by itself, and fills in what was left out.
func (p *planned) complete(l Limits) error {
	s := &p.spec
	if s.Format == 0 {
		s.Format = FormatVersion
	}
	if err := CheckFormat(s.Format, s.Requires); err != nil {
		return err
	}
	if err := p.completeParts(); err != nil {
		return err
	}
	if err := quiet(s.Quiet); err != nil {
		return err
	}
	if s.MoveWorkspace && s.Workspace.IsZero() {
		return invalidf("a workspace that is moved has to be named")
	}
	if s.IdleTimeout == nil {
		idle := l.IdleTimeout
		s.IdleTimeout = &idle
	}
	idle := *s.IdleTimeout
	s.IdleTimeout = &idle
	if err := validTime("idle timeout", s.IdleTimeout); err != nil {
		return err
	}
	if err := validTime("unused ttl", &s.TTLUnused); err != nil {
		return err
	}
	if s.KeepLast != nil && *s.KeepLast < 0 {
		return invalidf("keep_last is negative")
	}
	return validTexts(s)
}

func (p *planned) completeParts() error {
	s := &p.spec
	if len(s.Parts) == 0 {
		s.Parts = []PartSpec{{Size: -1}}
	}
	if len(s.Parts) > MaxParts {
		return &FieldError{Field: "parts", Text: "are more than 64"}
	}
	s.Parts = slices.Clone(s.Parts)
	names := map[string]bool{}
	for i, part := range s.Parts {
		whole, err := part.Complete()
		if err != nil {
			return err
		}
		if names[whole.Name] {
			return &FieldError{Field: "parts", Text: "two have the name " + whole.Name}
		}
		names[whole.Name], s.Parts[i] = true, whole
	}
	return nil
}

func validTexts(s *SaveSpec) error {
	if !isText(s.Name, maxText) || !isText(s.Boundary, maxText) {
		return invalidf("a name and a boundary are at most %d bytes of text", maxText)
	}
	if len(s.Machine) > maxMachine {
		return &FieldError{Field: "machine", Text: "has more than 64 fields"}
	}
	for key, value := range s.Machine {
		if key == "" || !isText(key, maxText) || !isText(value, maxText) {
			return &FieldError{Field: "machine." + key, Text: "is not at most 256 bytes of text"}
		}
	}
	extra := 0
	for name, raw := range s.Extra {
		if KnownField(name) || !isText(name, maxText) || !json.Valid(raw) {
			return &FieldError{Field: name, Text: "cannot be kept"}
		}
		extra += len(name) + len(raw)
	}
	if extra > maxExtra {
		return invalidf("other fields have %d bytes, at most %d", extra, maxExtra)
	}
	return validExcluded(s.Excluded)
}

// validExcluded is nil for what may be said to be left out.
func validExcluded(all []Excluded) error {
	if len(all) > maxExcluded {
		return &FieldError{Field: "excluded", Text: "names more than 10,000"}
	}
	for _, e := range all {
		if e.Name == "" || !isText(e.Name, maxReason) || !isText(e.Reason, maxReason) {
			return &FieldError{Field: "excluded", Text: "needs names, and reasons, of at most 1,000 bytes of text"}
		}
	}
	return nil
}

// isText reports whether s is UTF-8 without control characters, of at most most bytes.
func isText(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// validTime demands that a length of time is not negative, and cuts it.
func validTime(what string, d *time.Duration) error {
	if *d < 0 {
		return invalidf("%s is negative", what)
	}
	*d = min(*d, maxDuration)
	return nil
}

// ofSession looks at the session: it must be live, and the caller's to save.
func (p *planned) ofSession(ctx context.Context, k *Keeper, repo Repo) (err error) {
	if p.at, err = k.now(ctx); err != nil {
		return err
	}
	owner, ok, err := k.Users.Session(ctx, repo, p.spec.Session)
	switch {
	case err != nil:
		return err
	case !ok || !owner.Live || !repo.CanRead(owner.Ref):
		return ErrNoSession
	case owner.Fenced != nil:
		return owner.Fenced
	}
	if err := repo.MayWrite(p.ref); err != nil {
		return err
	}
	if p.spec.MoveWorkspace {
		if err := repo.MayWrite(owner.Ref); err != nil {
			return err
		}
	}
	p.owner = owner
	return owner.Closed
}

// ofHead looks at the snapshot ref.
func (p *planned) ofHead(ctx context.Context, _ *Keeper, repo Repo) error {
	head, err := repo.Head(ctx, p.ref)
	if err != nil {
		return err
	}
	p.head = head.Commit
	if want := p.spec.ExpectedHead; want != nil && *want != p.head {
		return &MovedError{Ref: p.ref, Expected: *want, Actual: p.head}
	}
	if p.parent = p.head; p.parent.IsZero() {
		p.parent = p.owner.From
	}
	return nil
}

func (p *planned) ofWorkspace(ctx context.Context, k *Keeper, repo Repo) error {
	p.workspace = p.spec.Workspace
	if p.workspace.IsZero() {
		p.workspace = p.owner.Head
		return nil
	}
	if err := repo.Readable(ctx, p.workspace); err != nil {
		return err
	}
	return k.noSnapshot(ctx, repo, p.workspace)
}

// noSnapshot refuses a snapshot for a workspace: whoever clones it would get the memory.
func (k *Keeper) noSnapshot(ctx context.Context, repo Repo, workspace OID) error {
	got, err := k.reads(repo.ID()).record(ctx, workspace.String())
	if err == nil && got.exists() {
		err = &FieldError{Field: "workspace_sha", Text: "is a snapshot: a workspace holds none"}
	}
	return err
}

// ofBase finds the snapshot whose chunks are re-used.
func (p *planned) ofBase(ctx context.Context, k *Keeper, repo Repo) error {
	if named := p.spec.Base; !named.IsZero() {
		base, err := k.baseFor(ctx, repo, p, named)
		if err != nil {
			return err
		}
		if base == nil {
			return &FieldError{Field: "base", Text: "no snapshot of this session, or that it was made from, has this id", Conflict: true}
		}
		return p.take(ctx, repo, base)
	}
	for _, id := range []OID{p.head, p.owner.From} {
		base, err := k.baseFor(ctx, repo, p, id)
		if err != nil {
			return err
		}
		if base != nil {
			return p.take(ctx, repo, base)
		}
	}
	return nil
}

// baseFor gives a ready snapshot of the session, or one that it was made from, if the
// caller may read it; nil: there is none of that id.
func (k *Keeper) baseFor(ctx context.Context, repo Repo, p *planned, id OID) (*Snapshot, error) {
	if id.IsZero() {
		return nil, nil
	}
	got, err := k.reads(repo.ID()).record(ctx, id.String())
	if err != nil || !got.exists() || got.State != Ready {
		return nil, err
	}
	if got.Commit != p.owner.From && (got.Session != p.spec.Session || !visible(repo, &got.record)) {
		return nil, nil
	}
	all, err := k.tell(ctx, repo, []stored{got})
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}

// take makes base the one whose chunks are re-used. A manifest that cannot be read is of
// no use; a restore says so.
func (p *planned) take(ctx context.Context, repo Repo, base *Snapshot) (err error) {
	p.manifest, _, err = manifestOf(ctx, repo, base.Commit)
	if err == nil {
		p.base = base
	}
	if isDamage(err) && p.spec.Base.IsZero() {
		return nil
	}
	return err
}

// fits holds what is to be saved against what the session and its base are.
func (p *planned) fits() error {
	want := p.owner.Labels["arch"]
	if want == "" && p.base != nil {
		want = p.manifest.Machine["arch"]
	}
	if have := p.spec.Machine["arch"]; want != "" && have != "" && have != want {
		return &FieldError{Field: "machine.arch", Text: have + " is not " + want + ", which the session is", Conflict: true}
	}
	var size int64
	for _, part := range p.spec.Parts {
		size += max(0, part.Size)
	}
	if size > MaxImage {
		return &FieldError{Field: "size_bytes", Text: "is over what a snapshot can hold"}
	}
	return nil
}

// sealed holds the envelope against what the session demands.
func (p *planned) sealed(demanded bool) error {
	if p.spec.Envelope == nil {
		if p.owner.CaptureKey != "" || demanded {
			return ErrSealNeeded
		}
		return nil
	}
	var e struct {
		CaptureKeyID string `json:"capture_key_id"`
	}
	if len(p.spec.Envelope) > maxEnvelope || json.Unmarshal(p.spec.Envelope, &e) != nil {
		return &FieldError{Field: "envelope", Text: "is not JSON of at most 16 KiB"}
	}
	if p.owner.CaptureKey != "" && e.CaptureKeyID != captureKeyID(p.owner.CaptureKey) {
		return ErrSealNeeded
	}
	return nil
}

// captureKeyID names a public key as package seal does: the first 16 hex digits of the
// SHA-256 of its bytes.
func captureKeyID(text string) string {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return ""
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return ""
	}
	raw, ok := key.(interface{ Bytes() []byte })
	if !ok {
		return ""
	}
	sum := sha256.Sum256(raw.Bytes())
	return hex.EncodeToString(sum[:8])
}

// same reports whether all but the image is as in the base, which is the session's last
// snapshot: if the image is, too, there is nothing to save.
func (p *planned) same(excluded []Excluded) bool {
	b := p.base
	return b != nil && b.Commit == p.head && b.Session == p.spec.Session && b.Workspace == p.workspace &&
		(p.spec.Name == "" || p.spec.Name == b.Name) && maps.Equal(p.spec.Machine, b.Machine) && slices.Equal(excluded, b.Excluded) &&
		b.Sealed == (p.spec.Envelope != nil) && len(p.spec.Extra) == 0 && len(p.manifest.Extra) == 0 &&
		(!p.spec.MoveWorkspace || p.workspace == p.owner.Head)
}

// quiet is ErrNotQuiet if q says that the sandbox was not.
func quiet(q *Quiet) error {
	switch {
	case q == nil:
		return nil
	case q.Before == "" || q.After == "" || len(q.Before) > maxText || len(q.After) > maxText:
		return &FieldError{Field: "quiescence", Text: "needs before and after, hashes over the sandbox's processes"}
	case q.Before != q.After:
		return ErrNotQuiet
	}
	return nil
}
