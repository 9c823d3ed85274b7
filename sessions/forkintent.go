package sessions

import (
	"context"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// forkIntent makes a group with its children, whose branches are the changes of its
// move, in order. The parent's branch may go on meanwhile: what its head was is
// reachable from it still.
type forkIntent struct {
	parent   string
	ref      string // the parent's branch
	state    string // its head as it was read
	spec     ForkSpec
	group    string
	pin      string
	children []string
	grant    *grant        // of the children's tokens; nil: none
	idle     time.Duration // of a kept state
	made     Fork
}

// forkData is what session.created tells of a fork, besides the changes.
type forkData struct {
	GroupID   string   `json:"group_id"`
	ParentID  string   `json:"parent_id"`
	StateSHA  string   `json:"state_sha"`
	KeepState bool     `json:"keep_state,omitempty"`
	Children  []string `json:"children"`
}

func (in *forkIntent) fill(ctx context.Context, g *guarding) error {
	got, err := g.load(ctx, in.parent, storeKeys(in.spec.Once.StoreKey())...)
	if again := got.repeated(); again != nil {
		return again
	}
	if err != nil {
		return err
	}
	if !got.live() {
		return &StateError{ID: got.ID, State: got.State}
	}
	if in.spec.FromSnapshot != nil {
		if err := g.startFromSnapshot(ctx, in.spec.FromSnapshot); err != nil {
			return err
		}
	}
	if err := in.bear(g, got); err != nil {
		return err
	}
	rec := in.record(g, got)
	g.w.set(groupKey(in.group), rec.encode())
	if rec.Keep {
		g.w.set(statePrefix(rec.State)+rec.ID, nil)
	}
	in.made.Group = rec.told()
	g.a.Type, g.a.Session = eventCreated, got.ID
	g.a.Data = mustJSON(forkData{rec.ID, rec.Parent, rec.State, rec.Keep, rec.Children})
	return ride(g, in.spec.Once, in.made)
}

// bear writes the children and their tokens, and that the parent bore them. Neither
// reads anything: all that a child is stands in its parent's record and in the plan.
func (in *forkIntent) bear(g *guarding, got reading) error {
	now, state := g.q.Now, in.state
	in.made = Fork{Children: make([]Session, 0, len(in.children))}
	g.w.made = true
	for i, id := range in.children {
		r := in.child(&got.record, id, g.q.Actor, now)
		r.Base = state
		r = g.w.put(stored{}, r)
		told := r.told(g.q.Repo, g.base, Head{SHA: state, At: now}, now)
		told.EndsAt = r.endsAt(g.base, now, time.Time{})
		in.made.Children = append(in.made.Children, told)
		g.a.Sessions[i] = id
		if err := in.token(g, &r); err != nil {
			return err
		}
	}
	parent := got.clone()
	parent.UsedAt, parent.Bore = latest(parent.UsedAt, now), true
	g.w.put(got.stored, parent)
	g.check(ledger.Equal(fenceKey(got.ref()), got.fence().encode()))
	g.check(g.base.check())
	return nil
}

// token writes the token of a child.
func (in *forkIntent) token(g *guarding, child *record) error {
	if in.grant == nil {
		return nil
	}
	rec, id, err := in.grant.token(child, g.base, "", g.q.Actor, g.q.Now)
	if err != nil {
		return err
	}
	tok, err := rec.told(id, nil)
	if err != nil {
		return err
	}
	in.made.Tokens = append(in.made.Tokens, tok)
	g.w.rider.Sets = append(g.w.rider.Sets, rec.sets(id)...)
	g.w.due = earliest(g.w.due, id.expiresAt().Add(sweepGrain))
	return nil
}

// child is the record of one child as it begins.
func (in *forkIntent) child(parent *record, id string, by Actor, now time.Time) record {
	r := record{
		ID: id, Branch: childBranch(id), Epoch: 1, State: Active, Labels: in.labelsOf(parent), Parent: parent.ID, Group: in.group,
		CreatedAt: now, CreatedBy: by, UsedAt: now, Idle: parent.Idle, Unused: parent.Unused, CaptureKey: parent.CaptureKey,
	}
	if in.spec.FromSnapshot != nil {
		r.From = in.spec.FromSnapshot.SHA
	}
	if in.spec.Idle != nil {
		r.Idle = *in.spec.Idle
	}
	if in.spec.TTLUnused > 0 {
		r.Unused = in.spec.TTLUnused
	}
	switch {
	case in.spec.TTL > 0:
		r.ExpiresAt = now.Add(in.spec.TTL)
	case parent.ExpiresAt.After(now):
		r.ExpiresAt = parent.ExpiresAt
	}
	return r
}

func (in *forkIntent) record(g *guarding, got reading) groupRecord {
	return groupRecord{
		ID: in.group, Parent: got.ID, Branch: got.Branch, State: in.state, Keep: in.spec.KeepState, Idle: in.idle,
		Pin: in.pin, At: g.q.Now, By: g.q.Actor, Children: in.children,
	}
}
