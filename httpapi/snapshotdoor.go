package httpapi

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/sessions/snapshot"
)

// A snapshotRepo joins two rooms: it is a repo of the store as snapshots see and move it.
type snapshotRepo struct {
	repo *gitstore.Repo
	c    gitstore.Caller
}

var _ snapshot.Repo = snapshotRepo{}

// NewSnapshotRepo is repo as c may see and move it.
func NewSnapshotRepo(repo *gitstore.Repo, c gitstore.Caller) snapshot.Repo {
	return snapshotRepo{repo, c}
}

// ID implements snapshot.Repo.
func (d snapshotRepo) ID() snapshot.RepoID {
	info := d.repo.Info()
	return snapshot.RepoID{ID: info.ID, Org: info.Org, Name: info.Name}
}

// Actor implements snapshot.Repo.
func (d snapshotRepo) Actor() snapshot.Actor { return snapshot.Actor(d.c.Actor) }

// Object implements snapshot.Repo.
func (d snapshotRepo) Object(ctx context.Context, id snapshot.OID) (string, []byte, error) {
	typ, data, err := d.repo.SnapshotObject(ctx, refpolicy.OID(id))
	if err != nil {
		return "", nil, snapshotError(err)
	}
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", typ, len(data))
	h.Write(data)
	if [20]byte(h.Sum(nil)) != [20]byte(id) {
		return "", nil, fmt.Errorf("%w: object %s", snapshot.ErrDamaged, id)
	}
	return typ.String(), data, nil
}

// Chunk implements snapshot.Repo.
func (d snapshotRepo) Chunk(ctx context.Context, id snapshot.OID, buf []byte) ([]byte, error) {
	got, err := d.repo.SnapshotChunk(ctx, refpolicy.OID(id), buf)
	return got, snapshotError(err)
}

// snapshotError puts what the store says into the words of snapshots.
func snapshotError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, gitstore.ErrObjectNotFound):
		return fmt.Errorf("%w: %w", snapshot.ErrNoObject, err)
	case errors.Is(err, gitstore.ErrDamaged), errors.Is(err, gitstore.ErrTooLarge):
		return fmt.Errorf("%w: %w", snapshot.ErrDamaged, err)
	}
	return err
}

// NewPack implements snapshot.Repo.
func (d snapshotRepo) NewPack(ctx context.Context) (snapshot.Pack, error) {
	p, err := d.repo.NewSnapshotPack(ctx)
	if err != nil {
		return nil, err
	}
	return &snapshotPack{SnapshotPack: p, vouched: true}, nil
}

// OpenStage implements snapshot.Repo.
func (d snapshotRepo) OpenStage(ctx context.Context, upload string) (snapshot.Stage, error) {
	s, err := d.repo.OpenSnapshotStage(ctx, upload)
	if err != nil {
		return nil, err
	}
	return snapshotStage{s}, nil
}

// RemoveStage implements snapshot.Repo.
func (d snapshotRepo) RemoveStage(ctx context.Context, upload string) error {
	return d.repo.RemoveSnapshotStage(ctx, upload)
}

// Stages implements snapshot.Repo.
func (d snapshotRepo) Stages(ctx context.Context) (uploads []string, err error) {
	found, err := d.repo.SnapshotStages(ctx)
	for _, s := range found {
		uploads = append(uploads, s.Upload)
	}
	return uploads, err
}

// Head implements snapshot.Repo.
func (d snapshotRepo) Head(ctx context.Context, ref string) (snapshot.Head, error) {
	heads, err := d.repo.Heads(ctx, refpolicy.RefName(ref))
	if err != nil {
		return snapshot.Head{}, err
	}
	return snapshot.Head{Commit: snapshot.OID(heads[0].OID), At: heads[0].UpdatedAt}, nil
}

// MayWrite implements snapshot.Repo.
func (d snapshotRepo) MayWrite(ref string) error {
	name, err := refpolicy.ParseRefName(ref)
	if err != nil {
		return err
	}
	return d.c.Policy.Check(name, refpolicy.FastForward)
}

// CanRead implements snapshot.Repo.
func (d snapshotRepo) CanRead(ref string) bool { return d.c.Policy.CanRead(refpolicy.RefName(ref)) }

// Readable implements snapshot.Repo.
func (d snapshotRepo) Readable(ctx context.Context, commit snapshot.OID) error {
	_, err := d.repo.Base(ctx, d.c, commit.String(), false)
	return err
}

// Move implements snapshot.Repo. What makes a snapshot ref move is this server's own
// work, which has looked at what the caller may: no rule about rewinding binds it.
func (d snapshotRepo) Move(ctx context.Context, m snapshot.Move) error {
	u := gitstore.Update{Caller: d.c, Atomic: true, Intent: m.Intent}
	for _, c := range m.Changes {
		name := refpolicy.RefName(c.Ref)
		if c.Force && d.c.Policy != nil {
			if err := d.MayWrite(c.Ref); err != nil {
				return err
			}
			policy, err := freed(u.Caller.Policy, name)
			if err != nil {
				return err
			}
			u.Caller.Policy = policy
		}
		u.Changes = append(u.Changes, gitstore.Change{Ref: name, Old: refpolicy.OID(c.Old), New: refpolicy.OID(c.New), NoForce: !c.Force})
	}
	for _, p := range m.Pins {
		u.Pins = append(u.Pins, gitstore.NewPin{ID: p.ID, OID: refpolicy.OID(p.Commit), Holder: p.Holder})
	}
	for _, id := range m.Leans {
		u.Leans = append(u.Leans, refpolicy.OID(id))
	}
	if err := bring(&u, m); err != nil {
		return err
	}
	res, err := d.repo.Update(ctx, u)
	if err == nil {
		err = res.Refusal()
	}
	return movedError(err)
}

// freed is a policy that lets everything be done with one ref, and else what p does.
func freed(p *refpolicy.Policy, ref refpolicy.RefName) (*refpolicy.Policy, error) {
	rules := append([]refpolicy.Rule{{Pattern: string(ref)}}, p.Rules()...)
	freed, err := refpolicy.New(rules, nil)
	if err != nil {
		return nil, fmt.Errorf("rule for %s: %w", ref, err)
	}
	return freed, nil
}

// movedError puts a refusal of the door into the words of snapshots.
func movedError(err error) error {
	var moved *gitstore.RefMovedError
	switch {
	case errors.As(err, &moved):
		return &snapshot.MovedError{Ref: string(moved.Ref), Expected: snapshot.OID(moved.Expected), Actual: snapshot.OID(moved.Present)}
	case errors.Is(err, gitstore.ErrUnreachable):
		return fmt.Errorf("%w: %w", gitstore.ErrObjectNotFound, err)
	}
	return err
}

// snapshotPinIDs begins the ids of the pins that keep snapshots.
const snapshotPinIDs = "pin_snapshot"

// Unpin implements snapshot.Repo.
func (d snapshotRepo) Unpin(ctx context.Context, id string) error {
	err := d.repo.Unpin(ctx, gitstore.Caller{}, id, nil)
	if errors.Is(err, gitstore.ErrPinNotFound) {
		return nil
	}
	return err
}

// Pinned implements snapshot.Repo.
func (d snapshotRepo) Pinned(ctx context.Context, commit snapshot.OID) (bool, error) {
	return d.repo.Pinned(ctx, refpolicy.OID(commit), snapshotPinIDs)
}

// WriteBundle implements snapshot.Repo.
func (d snapshotRepo) WriteBundle(ctx context.Context, w io.Writer, tip snapshot.OID, ref string) error {
	return d.repo.WriteSnapshotBundle(ctx, w, refpolicy.OID(tip), refpolicy.RefName(ref))
}

// ReadBundle implements snapshot.Repo.
func (d snapshotRepo) ReadBundle(ctx context.Context, r io.Reader) (snapshot.OID, snapshot.Pack, error) {
	tip, p, err := d.repo.ReadBundle(ctx, d.c, r)
	if err != nil {
		return snapshot.OID{}, nil, snapshotError(err)
	}
	return snapshot.OID(tip), &snapshotPack{SnapshotPack: p}, nil
}

// Sizes tells how many bytes chunks' blobs have.
func (d snapshotRepo) Sizes(ctx context.Context, ids []snapshot.OID) ([]int64, error) {
	list := make([]refpolicy.OID, len(ids))
	for i, id := range ids {
		list[i] = refpolicy.OID(id)
	}
	sizes, err := d.repo.SnapshotSizes(ctx, list)
	return sizes, snapshotError(err)
}
