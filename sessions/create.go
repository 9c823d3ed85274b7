package sessions

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/gitstore/ledger"
)

// Create makes a session, its branch and, if a holder is named, its first lease in
// one batch. Errors: ErrInvalid, ErrExists, *LimitError; for FromSession ErrNotFound
// and *StateError; those of the door for what the caller may not read or write.
func (k *Keeper) Create(ctx context.Context, repo Repo, door Door, by Actor, spec CreateSpec) (Session, error) {
	if err := k.completeCreate(&spec); err != nil {
		return Session{}, err
	}
	storeKey := spec.Once.StoreKey()
	if err := k.reads(repo).known(ctx, storeKey); err != nil {
		return Session{}, err
	}
	ref := ephemeralPrefix + spec.Branch
	if by.Session != "" {
		return Session{}, ErrForeignSession
	}
	if err := door.MayWrite(ref); err != nil {
		return Session{}, err
	}
	sha, err := k.baseOf(ctx, repo, door, spec)
	if err != nil {
		return Session{}, err
	}
	if err := k.mark(ctx, repo); err != nil {
		return Session{}, err
	}
	in := &createIntent{spec: spec, base: sha}
	m := Move{Changes: []Change{{Ref: ref, New: sha}}, Intent: in}
	if err := k.move(ctx, repo, door, m, storeKey); err != nil {
		return Session{}, k.orExists(ctx, repo, door, spec.ID, ref, err)
	}
	return in.made, nil
}

// completeCreate checks what was asked for and fills in what was left out.
func (k *Keeper) completeCreate(s *CreateSpec) error {
	if s.ID == "" {
		s.ID = "ses_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	}
	if s.Branch == "" {
		s.Branch = "sessions/" + s.ID
	}
	if s.IdleTimeout == nil {
		idle := k.Limits.IdleTimeout
		s.IdleTimeout = &idle
	}
	idle := *s.IdleTimeout
	s.IdleTimeout = &idle
	switch {
	case s.FromSession != "" && s.BaseRef != "" || s.FromSnapshot != nil && s.FromSession+s.BaseRef != "":
		return invalidf("a session begins from a ref, from another session or from a snapshot, not from two")
	case len(s.Branch) > maxBranchBytes:
		return invalidf("branch of %d bytes, at most %d", len(s.Branch), maxBranchBytes)
	case len(s.CaptureKey) > maxCaptureKey:
		return invalidf("capture key of %d bytes, at most %d", len(s.CaptureKey), maxCaptureKey)
	}
	if s.Holder != "" {
		if err := validHolder(s.Holder); err != nil {
			return err
		}
	}
	for _, d := range []struct {
		what string
		d    *time.Duration
	}{{"ttl", &s.TTL}, {"idle timeout", s.IdleTimeout}, {"unused ttl", &s.TTLUnused}, {"lease ttl", &s.LeaseTTL}} {
		if err := validTime(d.what, d.d); err != nil {
			return err
		}
	}
	s.LeaseTTL = k.leaseTTL(s.LeaseTTL)
	if err := validLabels(s.Labels); err != nil {
		return err
	}
	return validID(s.ID)
}

// baseOf is the commit that the session's branch begins at.
func (k *Keeper) baseOf(ctx context.Context, repo Repo, door Door, spec CreateSpec) (string, error) {
	if spec.FromSnapshot != nil {
		return spec.FromSnapshot.Workspace, nil
	}
	if spec.FromSession == "" {
		rev := spec.BaseRef
		if rev == "" {
			rev = "HEAD"
		}
		return door.Resolve(ctx, rev, spec.BaseEphemeral)
	}
	got, err := k.reads(repo).visible(ctx, door, spec.FromSession)
	if err != nil {
		return "", err
	}
	if !got.live() {
		return "", &StateError{ID: got.ID, State: got.State}
	}
	heads, err := door.Heads(ctx, got.ref())
	if err != nil {
		return "", err
	}
	if heads[0].SHA == "" {
		return "", ErrNotFound // it ended just now
	}
	return heads[0].SHA, nil
}

// orExists is why a session could not be made: it exists, or else err.
func (k *Keeper) orExists(ctx context.Context, repo Repo, door Door, id, ref string, err error) error {
	if ctx.Err() != nil {
		return err
	}
	got, rerr := k.reads(repo).read(ctx, id)
	if rerr != nil {
		return err
	}
	heads, herr := door.Heads(ctx, ref)
	if herr != nil {
		return err
	}
	if got.exists() || heads[0].SHA != "" {
		return ErrExists
	}
	return err
}

// createIntent makes one session with its branch.
type createIntent struct {
	spec CreateSpec
	base string
	made Session
}

func (in *createIntent) fill(ctx context.Context, g *guarding) error {
	spec, now := in.spec, g.q.Now
	got, err := g.by.read(ctx, spec.ID, storeKeys(spec.Once.StoreKey())...)
	if err != nil {
		return err
	}
	if err := got.repeated(); err != nil {
		return err
	}
	if got.exists() {
		return ErrExists
	}
	r := record{
		ID: spec.ID, Branch: spec.Branch, Base: in.base, Epoch: 1, State: Active, Labels: spec.Labels, Parent: spec.FromSession,
		CreatedAt: now, CreatedBy: g.q.Actor, UsedAt: now, Idle: *spec.IdleTimeout, Unused: spec.TTLUnused, CaptureKey: spec.CaptureKey,
	}
	if spec.TTL > 0 {
		r.ExpiresAt = now.Add(spec.TTL)
	}
	if spec.Holder != "" {
		r.Lease, r.Leased = &leaseRecord{Holder: spec.Holder, Until: now.Add(spec.LeaseTTL), Base: g.base.n}, true
		g.check(g.base.check())
	}
	if r.Parent != "" {
		if err := g.bear(ctx, r.Parent); err != nil {
			return err
		}
	}
	if spec.FromSnapshot != nil {
		r.Parent, r.From = spec.FromSnapshot.Session, spec.FromSnapshot.SHA
		if err := g.startFromSnapshot(ctx, spec.FromSnapshot); err != nil {
			return err
		}
	}
	if spec.BaseRef == in.base { // it names the commit itself, which a fork's state may be
		if err := g.startFrom(ctx, in.base); err != nil {
			return err
		}
	}
	r = g.w.put(stored{}, r)
	in.made = r.told(g.q.Repo, g.base, Head{SHA: in.base, At: now}, now)
	in.made.EndsAt = r.endsAt(g.base, now, time.Time{})
	g.a.Sessions[0], g.a.Type, g.a.Session = r.ID, eventCreated, r.ID
	g.a.Data = mustJSON(r.data(g.base, now))
	return ride(g, spec.Once, in.made)
}

// bear makes a live session the parent of one that is made in the same batch.
func (g *guarding) bear(ctx context.Context, parent string) error {
	got, err := g.load(ctx, parent)
	if err != nil {
		return err
	}
	if !got.live() {
		return &StateError{ID: got.ID, State: got.State}
	}
	r := got.clone()
	r.UsedAt, r.Bore = latest(r.UsedAt, g.q.Now), true
	g.w.put(got.stored, r)
	return nil
}

// ride stores the answer of a call that may be repeated.
func ride[T any](g *guarding, once *ledger.Once[T], result T) error {
	rider, err := once.Rider(result, g.q.Now)
	if err != nil {
		return err
	}
	g.a.Rider.Join(rider)
	return nil
}

// mark writes down for the reaper, once, that the repo has sessions. A repo's id is
// never used again.
func (k *Keeper) mark(ctx context.Context, repo Repo) error {
	if _, ok := k.marked.Load(repo.ID); ok {
		return nil
	}
	if err := k.writeMark(ctx, repo); err != nil {
		return err
	}
	k.marked.Store(repo.ID, repo)
	return nil
}

func (k *Keeper) writeMark(ctx context.Context, repo Repo) error {
	key := markKey(repo.ID)
	got, err := k.Ledger.ReadKeys(ctx, ledger.ServerSpace, key)
	if err != nil {
		return fmt.Errorf("read mark of repo %s: %w", repo.ID, err)
	}
	if got[0] != nil {
		return nil
	}
	b := ledger.Batch{Space: ledger.ServerSpace, Sets: []ledger.Set{{Key: key, Value: mustJSON(repo)}}}
	if _, err := k.Ledger.Apply(ctx, b); err != nil {
		return fmt.Errorf("mark repo %s: %w", repo.ID, err)
	}
	return nil
}
