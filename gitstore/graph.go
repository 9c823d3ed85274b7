package gitstore

import (
	"container/heap"
	"context"
	"fmt"
	"slices"

	"github.com/headgate/headgate/refpolicy"
)

// graph walks the history of stored commits and of those that a write brings.
type graph struct {
	r     *Repo
	fresh freshObjects
}

func (g graph) object(ctx context.Context, oid refpolicy.OID) (object, error) {
	o, ok, err := g.fresh.lookup(oid)
	if ok || err != nil {
		return o, err
	}
	return g.r.object(ctx, oid)
}

// commit reads what walking needs of a commit. Another kind of object is ErrObjectNotFound.
func (g graph) commit(ctx context.Context, oid refpolicy.OID) (commitHeader, error) {
	key := objectID{g.r.id, oid}
	if h, ok := g.r.store.commits.get(key); ok {
		return h, nil
	}
	o, err := g.object(ctx, oid)
	if err != nil {
		return commitHeader{}, err
	}
	if o.typ != CommitObject {
		return commitHeader{}, fmt.Errorf("%w: %s is a %s, not a commit", ErrObjectNotFound, oid, o.typ)
	}
	h, _, err := parseCommitHeader(o.data)
	if err != nil {
		return commitHeader{}, fmt.Errorf("read commit %s: %w", oid, err)
	}
	if !g.fresh.has(oid) { // a refused write must leave no trace
		g.r.store.commits.put(key, h, int64(96+20*len(h.parents)))
	}
	return h, nil
}

// The paints of a walk: below the tips, below the target, below both.
const (
	paintTip = 1 << iota
	paintTarget
	paintStale
)

// reaches reports whether target is one of tips or an ancestor of one.
func (g graph) reaches(ctx context.Context, tips []refpolicy.OID, target refpolicy.OID) (bool, error) {
	if len(tips) == 1 {
		if ok, err := g.isParent(ctx, tips[0], target); ok || err != nil {
			return ok, err
		}
	}
	return (&approach{g: g, target: target}).from(ctx, tips)
}

// approach is git's walk towards the merge bases of tips and a target: newest first,
// until all that is left is below both. Tips may come little by little: what was
// walked for earlier ones is not walked again.
type approach struct {
	g      graph
	target refpolicy.OID
	walk   *walk
}

// maxPainted is how many commits an approach remembers before it begins anew, so
// that the tips of a million branches do not fill the memory.
const maxPainted = 500_000

// from reports whether target is one of tips or an ancestor of one.
func (a *approach) from(ctx context.Context, tips []refpolicy.OID) (bool, error) {
	if slices.Contains(tips, a.target) {
		return true, nil
	}
	if a.walk == nil || len(a.walk.paint) > maxPainted {
		a.walk = &walk{g: a.g, paint: map[refpolicy.OID]uint8{}}
		if err := a.walk.add(ctx, a.target, paintTarget); err != nil {
			return false, err
		}
	}
	for _, t := range tips {
		if err := a.walk.add(ctx, t, paintTip); err != nil {
			return false, err
		}
	}
	return a.walk.towards(ctx, a.target)
}

// towards walks until target is met from a tip or nothing is left but what is stale.
func (w *walk) towards(ctx context.Context, target refpolicy.OID) (bool, error) {
	for w.live > 0 {
		c, flags := w.pop()
		if flags&(paintTip|paintTarget) == paintTip|paintTarget {
			flags |= paintStale
		}
		for _, p := range c.parents {
			if p == target && flags&paintTip != 0 {
				return true, nil
			}
			if err := w.add(ctx, p, flags); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

// isParent reports whether target, which must be there, is a parent of tip: of most
// moves of a branch it is, and no walk is needed.
func (g graph) isParent(ctx context.Context, tip, target refpolicy.OID) (bool, error) {
	if tip == target {
		return false, nil
	}
	h, err := g.commit(ctx, tip)
	if err != nil || !slices.Contains(h.parents, target) {
		return false, err
	}
	_, err = g.commit(ctx, target)
	return err == nil, err
}

// walk is a queue of painted commits, newest first. live counts those queued that are not stale.
type walk struct {
	g     graph
	paint map[refpolicy.OID]uint8
	queue commitQueue
	live  int
}

type queuedCommit struct {
	commitHeader
	oid refpolicy.OID
}

// add paints a commit and queues it if it has got a new paint.
func (w *walk) add(ctx context.Context, oid refpolicy.OID, flags uint8) error {
	old := w.paint[oid]
	if old&flags == flags {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	h, err := w.g.commit(ctx, oid)
	if err != nil {
		return err
	}
	queued := w.queue.count(oid)
	if queued > 0 && old&paintStale == 0 && flags&paintStale != 0 {
		w.live -= queued
	}
	w.paint[oid] = old | flags
	heap.Push(&w.queue, queuedCommit{h, oid})
	if w.paint[oid]&paintStale == 0 {
		w.live++
	}
	return nil
}

func (w *walk) pop() (queuedCommit, uint8) {
	c := heap.Pop(&w.queue).(queuedCommit)
	flags := w.paint[c.oid]
	if flags&paintStale == 0 {
		w.live--
	}
	return c, flags
}

// commitQueue is a heap of commits by committer date, newest first.
type commitQueue struct {
	items  []queuedCommit
	queued map[refpolicy.OID]int
}

func (q *commitQueue) Len() int           { return len(q.items) }
func (q *commitQueue) Less(i, j int) bool { return q.items[i].date > q.items[j].date }
func (q *commitQueue) Swap(i, j int)      { q.items[i], q.items[j] = q.items[j], q.items[i] }

func (q *commitQueue) Push(x any) {
	c := x.(queuedCommit)
	if q.queued == nil {
		q.queued = map[refpolicy.OID]int{}
	}
	q.queued[c.oid]++
	q.items = append(q.items, c)
}

func (q *commitQueue) Pop() any {
	c := q.items[len(q.items)-1]
	q.items = q.items[:len(q.items)-1]
	if q.queued[c.oid]--; q.queued[c.oid] == 0 {
		delete(q.queued, c.oid)
	}
	return c
}

// count is how often a commit is in the queue.
func (q *commitQueue) count(oid refpolicy.OID) int { return q.queued[oid] }

// brought are the commits that a write brings below a tip, and those of the store
// that they build on.
func (g graph) brought(ctx context.Context, tip refpolicy.OID) (brought, met []refpolicy.OID, err error) {
	seen := map[refpolicy.OID]bool{tip: true}
	for stack := []refpolicy.OID{tip}; len(stack) > 0; {
		oid := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if !g.fresh.has(oid) {
			met = append(met, oid)
			continue
		}
		brought = append(brought, oid)
		h, err := g.commit(ctx, oid)
		if err != nil {
			return nil, nil, err
		}
		for _, p := range h.parents {
			if !seen[p] {
				seen[p], stack = true, append(stack, p)
			}
		}
	}
	return brought, met, nil
}

// introduced calls visit with every commit that new reaches and none of known
// does. Where dates are skewed it may also be called with commits that known
// reaches; what it says of those does not count. An error of visit ends the walk.
func (g graph) introduced(ctx context.Context, newTip refpolicy.OID, known []refpolicy.OID, visit func(refpolicy.OID) error) error {
	w := walk{g: g, paint: map[refpolicy.OID]uint8{}}
	if err := w.add(ctx, newTip, paintTip); err != nil {
		return err
	}
	for _, k := range known {
		if err := w.add(ctx, k, paintTarget|paintStale); err != nil {
			return err
		}
	}
	var order []refpolicy.OID
	for w.live > 0 {
		c, flags := w.pop()
		if flags&paintStale == 0 {
			order = append(order, c.oid)
		}
		for _, p := range c.parents {
			if err := w.add(ctx, p, flags); err != nil {
				return err
			}
		}
	}
	for _, oid := range order {
		if w.paint[oid]&paintStale != 0 {
			continue
		}
		err := visit(oid)
		if err == nil {
			continue
		}
		// A commit with a skewed date may have been met before the paint from known
		// reached it: walk all of it before believing the error.
		if derr := w.drain(ctx); derr != nil {
			return derr
		}
		if w.paint[oid]&paintStale == 0 {
			return err
		}
	}
	return nil
}

// drain walks what is left in the queue to its end.
func (w *walk) drain(ctx context.Context) error {
	for w.queue.Len() > 0 {
		c, flags := w.pop()
		for _, p := range c.parents {
			if err := w.add(ctx, p, flags); err != nil {
				return err
			}
		}
	}
	return nil
}
