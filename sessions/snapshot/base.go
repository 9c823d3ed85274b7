package snapshot

import (
	"context"
	"fmt"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
)

// maxBaseName is how many bytes the name of a base has at most.
const maxBaseName = 128

func validBaseName(name string) error {
	ok := name != "" && len(name) <= maxBaseName && name[0] != '.' && name[0] != '-' &&
		!strings.Contains(name, "..") && !strings.HasSuffix(name, ".lock") && !strings.HasSuffix(name, ".")
	for _, c := range []byte(name) {
		ok = ok && ('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("._-", c) >= 0)
	}
	if !ok {
		return invalidf("the name of a base is 1 to %d of [A-Za-z0-9._-], and one of a ref", maxBaseName)
	}
	return nil
}

// SetBase names a snapshot as a base, or takes the name away with the zero OID. It is
// the operator's alone: repo must be opened for everything. A base has one name, is not
// deleted by anybody else, and never ends by itself. Errors: ErrInvalid, ErrNotFound,
// *StateError, the Move's.
func (k *Keeper) SetBase(ctx context.Context, repo Repo, name string, commit OID) error {
	if err := validBaseName(name); err != nil {
		return err
	}
	ref := BasePrefix + name
	for range deleteTries {
		head, err := repo.Head(ctx, ref)
		if err != nil {
			return err
		}
		if head.Commit == commit {
			return nil
		}
		in := &baseIntent{name: name, old: head.Commit, commit: commit}
		err = repo.Move(ctx, Move{Changes: []Change{{Ref: ref, Old: head.Commit, New: commit, Force: true}}, Intent: in})
		if err == nil {
			return nil
		}
		now, herr := repo.Head(ctx, ref)
		if herr != nil || now.Commit == head.Commit {
			return err
		}
	}
	return fmt.Errorf("name base %s: %w: its ref keeps moving", name, ledger.ErrUnavailable)
}

// baseIntent gives a base's name to another snapshot, or to none.
type baseIntent struct {
	name        string
	old, commit OID
}

func (in *baseIntent) fill(ctx context.Context, g *guarding) error {
	if !in.old.IsZero() {
		got, err := g.by.record(ctx, in.old.String())
		if err != nil {
			return err
		}
		if got.exists() {
			r := got.record
			r.Base, r.UsedAt = "", latest(r.UsedAt, g.q.Now) // its clocks begin now
			g.put(got, r, r.timeUp(Use{}, g.q.Now))
		}
	}
	if in.commit.IsZero() {
		g.a.Deletes = append(g.a.Deletes, baseKey(in.name))
		return nil
	}
	got, err := g.by.record(ctx, in.commit.String())
	switch {
	case err != nil:
		return err
	case !got.exists():
		return ErrNotFound
	case got.State != Ready:
		return &StateError{Commit: in.commit, State: got.State}
	case got.Base != "":
		return invalidf("the snapshot is base %s already", got.Base)
	}
	r := got.record
	r.Base = in.name
	g.put(got, r, r.timeUp(Use{}, g.q.Now))
	g.a.Sets = append(g.a.Sets, ledger.Set{Key: baseKey(in.name), Value: []byte(in.commit.String())})
	return nil
}
