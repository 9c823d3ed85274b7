package snapshot

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// capture writes the record of a save that begins: it is capturing until publish, skip,
// refuse or drop. For an upload it is what planAgain reads.
func (k *Keeper) capture(ctx context.Context, repo Repo, p *planned) error {
	if err := k.mark(ctx, repo.ID()); err != nil {
		return err
	}
	if p.upload {
		under, err := k.reads(repo.ID()).scan(ctx, uploadPrefix(p.spec.Session), "", k.Limits.Uploads)
		if err != nil {
			return err
		}
		if len(under) >= k.Limits.Uploads {
			return &FullError{What: "uploads of one session at once", Slots: true, Quota: int64(k.Limits.Uploads), Use: int64(len(under)) + 1}
		}
	}
	return k.change(ctx, repo.ID(), repo.Actor(), &captureIntent{p})
}

// saveTTL is how long a save of one stream is waited for.
const saveTTL = time.Hour

// captureIntent writes the record of a save that begins.
type captureIntent struct{ p *planned }

func (in *captureIntent) fill(_ context.Context, g *guarding) error {
	p := in.p
	until := g.q.Now.Add(g.k.Limits.UploadTTL)
	if !p.upload {
		until = g.q.Now.Add(saveTTL)
	}
	r := record{
		ID: p.id, Save: p.id, Session: p.spec.Session, Workspace: p.workspace, Parent: p.parent, Name: p.spec.Name,
		Kind: p.spec.Parts[0].Kind, ChunkBytes: p.spec.Parts[0].ChunkBytes, State: Capturing, Boundary: p.spec.Boundary,
		Machine: p.spec.Machine, Excluded: p.spec.Excluded, Sealed: p.spec.Envelope != nil,
		CreatedAt: p.at, CreatedBy: g.q.Actor, Upload: p.upload, Until: until,
	}
	if p.upload {
		spec := p.spec
		spec.Once = nil
		r.Spec = &spec
	}
	g.put(stored{}, r, until)
	return nil
}

// planAgain gives the plan of an upload that is under way, as it stands now: head, base
// and owner are read anew. Its spec's Once is the caller's to set. ErrUploadNotFound.
func (k *Keeper) planAgain(ctx context.Context, repo Repo, session, id string) (*planned, Upload, error) {
	got, err := k.underWay(ctx, repo, session, id)
	if err != nil {
		return nil, Upload{}, err
	}
	p, err := k.planAs(ctx, repo, *got.Spec, id)
	if err != nil {
		return nil, Upload{}, err
	}
	p.upload, p.at = true, got.CreatedAt
	return p, k.toldUpload(&got.record, p), nil
}

func (k *Keeper) toldUpload(r *record, p *planned) Upload {
	u := Upload{ID: r.ID, Session: r.Session, Parts: p.spec.Parts, CreatedAt: r.CreatedAt, ExpiresAt: r.Until}
	if p.base != nil {
		u.Base = p.base.Commit
	}
	return u
}

// underWay reads the record of an upload that has not ended.
func (k *Keeper) underWay(ctx context.Context, repo Repo, session, id string) (stored, error) {
	if !goodSaveID(id) || !repo.CanRead(RefPrefix+session) {
		return stored{}, ErrUploadNotFound
	}
	got, err := k.reads(repo.ID()).record(ctx, id)
	if err != nil {
		return got, err
	}
	if !got.exists() || got.State != Capturing || !got.Upload || got.Session != session || got.Spec == nil {
		return got, ErrUploadNotFound
	}
	return got, nil
}

// goodSaveID reports whether id may be a save's: it stands in keys and names of folders.
func goodSaveID(id string) bool {
	if len(id) != len("save_")+32 || id[:5] != "save_" {
		return false
	}
	return lowerHex(id[5:])
}

// extend keeps an upload for UploadTTL from now: to be called by whatever sends to it.
func (k *Keeper) extend(ctx context.Context, repo Repo, p *planned) error {
	return k.change(ctx, repo.ID(), repo.Actor(), &extendIntent{p})
}

// extendIntent puts off the end of a save under way.
type extendIntent struct{ p *planned }

func (in *extendIntent) fill(ctx context.Context, g *guarding) error {
	got, err := g.by.record(ctx, in.p.id)
	if err != nil {
		return err
	}
	if !got.exists() || got.State != Capturing {
		return ErrUploadNotFound
	}
	ttl := g.k.Limits.UploadTTL
	if !in.p.upload {
		ttl = saveTTL
	}
	if got.Until.Sub(g.q.Now) > ttl-ttl/8 {
		return nil // it is long enough
	}
	r := got.record
	r.Until = g.q.Now.Add(ttl)
	g.put(got, r, r.Until)
	return nil
}

// drop takes the record of a save away of which nothing is to be told; the stage is the
// caller's.
func (k *Keeper) drop(ctx context.Context, repo Repo, p *planned) error {
	return k.change(ctx, repo.ID(), repo.Actor(), &dropIntent{p})
}

// dropIntent takes the record of a save away.
type dropIntent struct{ p *planned }

func (in *dropIntent) fill(ctx context.Context, g *guarding) error {
	got, err := g.by.record(ctx, in.p.id)
	if err != nil || !got.exists() {
		return err
	}
	if got.Commit.IsZero() {
		g.a.Rider.Join(remove(got))
	}
	return nil
}

// endPatience is how long the end of a save is written down, though its caller is gone.
const endPatience = 20 * time.Second

// refuse ends a captured save that came to nothing, and gives why: its record is failed,
// or gone if the sandbox was not quiet; one that is over the cap is told to the session.
// Nothing is charged. The stage, and a pack, are the caller's.
func (k *Keeper) refuse(ctx context.Context, repo Repo, p *planned, why error) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer done()
	if reasonOf(why) == unwritten {
		k.Logger.ErrorContext(ctx, "save a snapshot", "repo", repo.ID().ID, "session", p.spec.Session, "err", why)
	}
	var err error
	if _, again := ledger.IsRepeated(why); again || errors.Is(why, ErrNotQuiet) {
		err = k.drop(ctx, repo, p)
	} else {
		err = k.change(ctx, repo.ID(), repo.Actor(), &refuseIntent{p, why})
	}
	if err != nil {
		k.Logger.WarnContext(ctx, "write down that a save failed", "repo", repo.ID().ID, "session", p.spec.Session, "err", err)
	}
	return why
}

// refuseIntent writes down that a save failed.
type refuseIntent struct {
	p   *planned
	why error
}

func (in *refuseIntent) fill(ctx context.Context, g *guarding) error {
	got, err := g.by.record(ctx, in.p.id)
	if err != nil || got.exists() && got.State != Capturing {
		return err
	}
	data := eventData{Save: in.p.id}
	if got.exists() {
		r := g.fail(got, reasonOf(in.why))
		data = r.data()
	}
	data.Reason = cut(reasonOf(in.why))
	var over *OverCapError
	if errors.As(in.why, &over) {
		data.Cap, data.Bytes = over.Cap, over.Size
		if err := in.notice(ctx, g, over); err != nil {
			return err
		}
	}
	g.event(eventFailed, in.p.spec.Session, data)
	return nil
}

// notice tells the session that its last save was over the cap.
func (in *refuseIntent) notice(ctx context.Context, g *guarding, over *OverCapError) error {
	st, err := g.by.standing(ctx, in.p.spec.Session)
	if err != nil {
		return err
	}
	to := st.standing
	to.Stale, to.Cap, to.Bytes, to.At = true, over.Cap, over.Size, g.q.Now
	g.a.Rider.Join(st.put(to))
	return nil
}

const unwritten = "the save could not be written"

// reasonOf is why a save failed, for whoever may see it: what this package says, and of
// the store's troubles, which tell of its folders, nothing.
func reasonOf(err error) string {
	for _, ours := range []error{ErrInvalid, ErrMissing, ErrMismatch} {
		if errors.Is(err, ours) {
			return err.Error()
		}
	}
	for _, one := range []error{
		ErrNotFound, ErrNoSession, ErrNotQuiet, ErrSealNeeded, ErrBusy, ErrDamaged,
		io.ErrUnexpectedEOF, context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, one) {
			return one.Error()
		}
	}
	var (
		field *FieldError
		moved *MovedError
		over  *OverCapError
		full  *FullError
		state *StateError
	)
	switch {
	case errors.As(err, &field):
		return field.Error()
	case errors.As(err, &moved):
		return moved.Error()
	case errors.As(err, &over):
		return over.Error()
	case errors.As(err, &full):
		return full.Error()
	case errors.As(err, &state):
		return state.Error()
	case errors.Is(err, ledger.ErrNoSpace) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return "no space is left"
	}
	return unwritten
}

// fail writes down that a save came to nothing.
func (g *guarding) fail(got stored, why string) record {
	r := got.record
	r.State, r.Reason, r.EndedAt, r.Spec, r.Upload, r.Until = Failed, cut(why), g.q.Now, nil, false, time.Time{}
	return g.put(got, r, g.q.Now.Add(g.k.Limits.Memory))
}

// cut is a reason as it is kept.
func cut(why string) string {
	if len(why) > maxReason {
		why = why[:maxReason]
	}
	return why
}

// skip ends a save that has nothing to save: the answer is the base.
func (k *Keeper) skip(ctx context.Context, repo Repo, p *planned) (Snapshot, error) {
	in := &skipIntent{p: p}
	if err := k.change(ctx, repo.ID(), repo.Actor(), in); err != nil {
		return Snapshot{}, err
	}
	k.prune(ctx, repo.ID(), p.spec.Session)
	return in.told, nil
}

// skipIntent ends a save of what is saved already. Saving it is use.
type skipIntent struct {
	p    *planned
	told Snapshot
}

func (in *skipIntent) fill(ctx context.Context, g *guarding) error {
	p := in.p
	if err := g.by.known(ctx, p.spec.Once.StoreKey()); err != nil {
		return err
	}
	got, err := g.by.get(ctx, recordKey(p.id), recordKey(p.base.Commit.String()), standingKey(p.spec.Session))
	if err != nil {
		return err
	}
	if err := g.endCapture(p, got[0]); err != nil {
		return err
	}
	base, err := decodeRecord(got[1])
	if err != nil {
		return err
	}
	st, err := decodeStanding(p.spec.Session, got[2])
	if err != nil {
		return err
	}
	if !base.exists() || base.State != Ready || st.Last != base.Commit {
		return &MovedError{Ref: p.ref, Expected: p.base.Commit, Actual: st.Last}
	}
	r := base.record
	r.UsedAt = latest(r.UsedAt, g.q.Now)
	r = g.put(base, r, r.Due)
	to := st.standing
	to.Stale, to.Cap, to.Bytes, to.At = false, 0, 0, g.q.Now
	g.keep(r.Session, &to, p.spec.KeepLast)
	g.a.Rider.Join(st.put(to))
	in.told = r.told(g.q.Repo, life{use: Use{Sessions: p.base.Children}, last: true})
	in.told.Skipped = true
	return ride(g, p.spec.Once, in.told)
}
