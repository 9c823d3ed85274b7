package gitstore

import (
	"container/heap"
	"context"

	"github.com/headgate/headgate/refpolicy"
)

// historyWalk goes through history as git log does without options: the newest
// commit by committer date of those whose child was met comes next, of equally old
// ones the one met first. It is not safe for concurrent use.
type historyWalk struct {
	r     *Repo
	start refpolicy.OID
	path  treePath
	seen  map[refpolicy.OID]struct{}
	queue dateQueue
	shown uint64         // commits given by next
	ahead *refpolicy.OID // found by more, not given yet
}

// next gives the next commit to show; ok is false at the end.
func (w *historyWalk) next(ctx context.Context) (oid refpolicy.OID, ok bool, err error) {
	if ok, err = w.more(ctx); !ok {
		return oid, false, err
	}
	oid = *w.ahead
	w.ahead = nil
	w.shown++
	return oid, true, nil
}

// more reports whether next has another commit.
func (w *historyWalk) more(ctx context.Context) (bool, error) {
	for w.ahead == nil && len(w.queue.items) > 0 {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		oid := heap.Pop(&w.queue).(datedCommit).oid
		parents, shown, err := w.r.simplify(ctx, oid, w.path)
		if err != nil {
			return false, err
		}
		for _, p := range parents {
			if err := w.add(ctx, p); err != nil {
				return false, err
			}
		}
		if shown {
			w.ahead = &oid
		}
	}
	return w.ahead != nil, nil
}

func (w *historyWalk) add(ctx context.Context, oid refpolicy.OID) error {
	if _, ok := w.seen[oid]; ok {
		return nil
	}
	h, err := graph{w.r, noFresh}.commit(ctx, oid)
	if err != nil {
		return err
	}
	w.seen[oid] = struct{}{}
	heap.Push(&w.queue, datedCommit{oid: oid, date: h.date})
	return nil
}

// pauseKey names the place where a walk stands, in its repo. The path is there
// besides its sum: sums can be made to collide.
type pauseKey struct {
	repo string
	path treePath
	at   logCursor
}

func (w *historyWalk) cursor() logCursor {
	return logCursor{start: w.start, path: pathSum(w.path), shown: w.shown}
}

func (w *historyWalk) pauseKey() pauseKey { return pauseKey{w.r.id, w.path, w.cursor()} }

// cost is roughly what a paused walk holds in memory.
func (w *historyWalk) cost() int64 {
	return int64(256 + 40*len(w.seen) + 48*len(w.queue.items))
}

// take is get for a value that only one may use: it leaves the cache.
func (c *lru[K, V]) take(k K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.items[k]
	if !ok {
		return v, false
	}
	v = e.Value.(*lruEntry[K, V]).value
	c.remove(e)
	return v, true
}

// simplify applies git's default history simplification to one commit: which
// parents to follow, and whether the commit is shown. A commit that has path as
// one of its parents has it is not shown, and only the first such parent is followed.
func (r *Repo) simplify(ctx context.Context, oid refpolicy.OID, p treePath) (follow []refpolicy.OID, shown bool, err error) {
	g := graph{r, noFresh}
	h, err := g.commit(ctx, oid)
	if err != nil || p.name == "" {
		return h.parents, true, err
	}
	if len(h.parents) == 0 {
		same, err := r.samePath(ctx, h.tree, emptyTree, p)
		return nil, !same, err
	}
	for i, parent := range h.parents {
		ph, err := g.commit(ctx, parent)
		if err != nil {
			return nil, false, err
		}
		same, err := r.samePath(ctx, h.tree, ph.tree, p)
		if err != nil {
			return nil, false, err
		}
		if same {
			return h.parents[i : i+1], false, nil
		}
	}
	return h.parents, true, nil
}

// samePath reports whether two trees have the same at p, nothing included. It goes
// no deeper than they differ.
func (r *Repo) samePath(ctx context.Context, a, b refpolicy.OID, p treePath) (bool, error) {
	for a != b {
		segment, rest := p.first()
		ea, err := r.entryOrNone(ctx, a, segment, rest.name != "" || p.dir)
		if err != nil {
			return false, err
		}
		eb, err := r.entryOrNone(ctx, b, segment, rest.name != "" || p.dir)
		if err != nil {
			return false, err
		}
		if rest.name == "" {
			return ea.mode == eb.mode && ea.oid == eb.oid, nil
		}
		a, b, p = ea.treeOrEmpty(), eb.treeOrEmpty(), rest
	}
	return true, nil
}

// entryOrNone is entry with the zero entry for what is not there, or is no tree although it must be.
func (r *Repo) entryOrNone(ctx context.Context, tree refpolicy.OID, name string, mustBeTree bool) (treeEntry, error) {
	e, ok, err := r.entry(ctx, tree, name)
	if err != nil || !ok || (mustBeTree && !e.isTree()) {
		return treeEntry{}, err
	}
	return e, nil
}

// treeOrEmpty is the entry's tree; nothing is as good as an empty one.
func (e treeEntry) treeOrEmpty() refpolicy.OID {
	if e.isTree() {
		return e.oid
	}
	return emptyTree
}

// datedCommit is a commit in a dateQueue; order breaks ties.
type datedCommit struct {
	oid   refpolicy.OID
	date  uint64
	order uint64
}

// dateQueue is a heap of commits, newest first, of equally old ones the first put in first.
type dateQueue struct {
	items []datedCommit
	puts  uint64
}

func (q *dateQueue) Len() int { return len(q.items) }

func (q *dateQueue) Less(i, j int) bool {
	if q.items[i].date != q.items[j].date {
		return q.items[i].date > q.items[j].date
	}
	return q.items[i].order < q.items[j].order
}

func (q *dateQueue) Swap(i, j int) { q.items[i], q.items[j] = q.items[j], q.items[i] }

func (q *dateQueue) Push(x any) {
	c := x.(datedCommit)
	c.order = q.puts
	q.puts++
	q.items = append(q.items, c)
}

func (q *dateQueue) Pop() any {
	c := q.items[len(q.items)-1]
	q.items = q.items[:len(q.items)-1]
	return c
}
