package sessions

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/gitstore/ledger"
)

// StatePinPrefix begins the ids of the pins that keep states of forks. They keep the
// commit and nothing else: a session that stands there ends in its time.
const StatePinPrefix = "pin_state"

// forkTries is how often a fork, or a pick, is made anew because a branch moved.
const forkTries = 16

// Fork makes n children of a session's present state, all or none in one batch: their
// branches at the session's head, their records, their tokens if any are asked for,
// the group's record, and a pin on the state. Children inherit labels, times and
// capture key where spec says nothing else. The session itself goes on.
//
// With spec.Wait it waits until runners have reported every child, or that time is
// over; of a strict fork those that failed by then are a *ChildrenFailedError.
//
// Errors: ErrInvalid, *LimitError (before anything is made), ErrNotFound, *StateError,
// ErrForeignSession, *ledger.RepeatedError, the door's.
func (k *Keeper) Fork(ctx context.Context, repo Repo, door Door, by Actor, id string, spec ForkSpec) (Fork, error) {
	in, err := k.planFork(id, spec)
	if err != nil {
		return Fork{}, err
	}
	storeKey := spec.Once.StoreKey()
	for range forkTries {
		var moved bool
		if moved, err = k.forkOnce(ctx, repo, door, by, in, storeKey); err == nil {
			return k.awaitFork(ctx, repo, in.made, in.spec)
		}
		if !moved {
			return Fork{}, err
		}
	}
	return Fork{}, fmt.Errorf("fork session %s: %w: its branch keeps moving", id, ledger.ErrUnavailable)
}

// forkOnce forks the session as its branch is now; moved says of a refusal that the
// branch has moved meanwhile: it may have been rewound.
func (k *Keeper) forkOnce(ctx context.Context, repo Repo, door Door, by Actor, in *forkIntent, storeKey string) (moved bool, err error) {
	got, err := k.reads(repo).visible(ctx, door, in.parent, storeKeys(storeKey)...)
	if again := got.repeated(); again != nil {
		return false, again
	}
	switch {
	case err != nil:
		return false, err
	case by.Session != "":
		return false, ErrForeignSession
	case !got.live():
		return false, &StateError{ID: got.ID, State: got.State}
	}
	if err := in.fits(&got.record); err != nil {
		return false, err
	}
	in.ref = got.ref()
	m, err := in.move(ctx, door)
	if err != nil {
		return false, err
	}
	if err := k.move(ctx, repo, door, m, storeKey); err != nil {
		return in.spec.FromSnapshot == nil && k.hasMoved(ctx, door, Change{Ref: in.ref, Old: in.state}), err
	}
	return false, nil
}

// hasMoved reports whether one of the branches is not any more where a move found it.
func (k *Keeper) hasMoved(ctx context.Context, door Door, found ...Change) bool {
	for _, c := range found {
		if c.Old == "" {
			continue
		}
		heads, err := door.Heads(ctx, c.Ref)
		if err == nil && heads[0].SHA != "" && heads[0].SHA != c.Old {
			return true
		}
	}
	return false
}

// planFork checks what was asked for and names what will be made.
func (k *Keeper) planFork(id string, spec ForkSpec) (*forkIntent, error) {
	if spec.N < 1 {
		return nil, invalidf("a fork makes at least one child")
	}
	if spec.N > k.Limits.MaxForkN {
		return nil, &LimitError{What: LimitForkN, Max: k.Limits.MaxForkN, Want: spec.N}
	}
	in := &forkIntent{parent: id, spec: spec, group: newGroupID(), idle: k.Limits.StateIdle}
	in.pin = StatePinPrefix + strings.ReplaceAll(uuid.NewString(), "-", "")
	if err := in.times(); err != nil {
		return nil, err
	}
	if err := validLabels(spec.Labels); err != nil {
		return nil, err
	}
	if from := spec.FromSnapshot; from != nil && from.Session != id {
		return nil, invalidf("snapshot %s is not one of the session", from.SHA)
	}
	if spec.Token != nil {
		g, err := k.grant(*spec.Token)
		if err != nil {
			return nil, err
		}
		in.grant = &g
	}
	in.children = make([]string, spec.N)
	for i := range in.children {
		in.children[i] = newSessionID()
	}
	slices.Sort(in.children) // a ledger takes keys in order for less
	return in, nil
}

// times checks and cuts the times of a fork.
func (in *forkIntent) times() error {
	if in.spec.StateIdle != nil {
		in.idle = *in.spec.StateIdle
	}
	if in.spec.Idle != nil {
		idle := *in.spec.Idle
		in.spec.Idle = &idle
		if err := validTime("idle timeout", in.spec.Idle); err != nil {
			return err
		}
	}
	for _, d := range []struct {
		what string
		d    *time.Duration
	}{{"ttl", &in.spec.TTL}, {"unused ttl", &in.spec.TTLUnused}, {"idle timeout of the state", &in.idle}, {"wait", &in.spec.Wait}} {
		if err := validTime(d.what, d.d); err != nil {
			return err
		}
	}
	return nil
}

// move is what the door is asked for: branches of children at the session's head.
func (in *forkIntent) move(ctx context.Context, door Door) (Move, error) {
	heads, err := door.Heads(ctx, in.ref)
	if err != nil {
		return Move{}, err
	}
	if in.state = heads[0].SHA; in.state == "" {
		return Move{}, ErrNotFound // it ended just now
	}
	if in.spec.FromSnapshot != nil {
		in.state = in.spec.FromSnapshot.Workspace
	}
	m := Move{Intent: in, Changes: make([]Change, 0, len(in.children))}
	m.Pins = []NewPin{{ID: in.pin, SHA: in.state, Holder: groupDueID(in.group)}}
	for _, child := range in.children {
		ref := ephemeralPrefix + childBranch(child)
		if err := door.MayWrite(ref); err != nil {
			return Move{}, err
		}
		m.Changes = append(m.Changes, Change{Ref: ref, New: in.state})
	}
	return m, nil
}

func newSessionID() string { return "ses_" + strings.ReplaceAll(uuid.NewString(), "-", "") }

func childBranch(id string) string { return "sessions/" + id }

// What the door writes, or checks, for each branch that it makes, at the most.
const (
	doorKeys  = 6
	doorBytes = 512 // besides its name, which stands in each key and in the log
	forkSpare = 64  // keys of a fork's batch that are not of one child
)

// fits refuses a fork that one batch cannot hold. What it goes by is a little more
// than what will be written.
func (in *forkIntent) fits(parent *record) error {
	child := in.child(parent, in.children[0], Actor{Subject: strings.Repeat(" ", maxSubject)}, parent.CreatedAt)
	if err := validLabels(child.Labels); err != nil {
		return err
	}
	keys := doorKeys + 3 + len(child.places()) + 1 // record and its check, fence; the look that places lacks
	size := 3*len(child.encode()) + doorBytes + (doorKeys+2)*len(child.ref())
	for _, key := range child.places() {
		size += len(key)
	}
	if in.grant != nil {
		keys += 2
		size += len(mustJSON(tokenRecord{Read: in.grant.read, Within: in.grant.within})) + doorBytes
	}
	most := min((ledger.MaxBatchKeys-forkSpare)/keys, (ledger.MaxBatchBytes-ledger.MaxBatchBytes/16)/size)
	if in.spec.N > most {
		return &LimitError{What: LimitBatch, Max: most, Want: in.spec.N}
	}
	return nil
}

// labelsOf are those of the parent with those that the fork adds.
func (in *forkIntent) labelsOf(parent *record) map[string]string {
	if len(parent.Labels) == 0 && len(in.spec.Labels) == 0 {
		return nil
	}
	labels := maps.Clone(parent.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, in.spec.Labels)
	return labels
}
