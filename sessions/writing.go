package sessions

import (
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// A writing gathers what one batch demands and writes of sessions.
type writing struct {
	now   time.Time
	base  epochBase
	keep  time.Duration // how long an ended session is remembered
	rider ledger.Rider
	live  int64               // by how many the live sessions grow
	freed map[string]struct{} // sessions that lose a child
	// unused are snapshots that lose a session made from them.
	unused map[string]struct{}
	// members says by how many the live children of groups grow.
	members map[string]int64
	// made says that new sessions have ids that were made for them: nobody else has one.
	made  bool
	ended []string
	due   time.Time // the earliest look that it asks for; zero: none
}

func (k *Keeper) writing(now time.Time, base epochBase) *writing {
	return &writing{now: now, base: base, keep: k.Limits.EndedMemory, freed: map[string]struct{}{}}
}

// put writes a session's new record over what was read (the zero value: it is new),
// with its fence and its places in the lists. A session is put once in a batch. It
// gives the record as it is written.
func (w *writing) put(old stored, r record) record {
	r.Due = w.dueOf(old.record, r)
	if !old.exists() {
		if !w.made {
			w.rider.Checks = append(w.rider.Checks, ledger.Absent(sessionKey(r.ID)))
		}
	} else {
		w.rider.Checks = append(w.rider.Checks, ledger.Equal(sessionKey(r.ID), old.raw))
	}
	w.set(sessionKey(r.ID), r.encode())
	w.fence(old, &r)
	w.rider.Join(indexRider(old, &r))
	return r
}

// fence keeps the fence in step with the record, and counts who is live.
func (w *writing) fence(old stored, r *record) {
	was := old.exists() && old.live()
	switch {
	case r.live() && (!was || old.fence() != r.fence()):
		w.set(fenceKey(r.ref()), r.fence().encode())
	case was && !r.live():
		w.rider.Deletes = append(w.rider.Deletes, fenceKey(r.ref()))
	}
	switch {
	case r.live() && !was:
		w.live++
		w.member(r.Group, 1)
	case was && !r.live():
		w.live--
		w.member(r.Group, -1)
		w.ended = append(w.ended, r.ID)
		if r.bornTo() {
			w.freed[r.Parent] = struct{}{}
		}
		if r.From != "" {
			w.release(r.From)
		}
	}
}

// release notes that a snapshot loses a session that was made from it.
func (w *writing) release(sha string) {
	if w.unused == nil {
		w.unused = map[string]struct{}{}
	}
	w.unused[sha] = struct{}{}
}

// dueOf is when the reaper has to look at r. A look that is asked for already stays
// where it is unless it would come too late: the reaper puts it off itself.
func (w *writing) dueOf(old, r record) time.Time {
	want := r.endsAt(w.base, r.UsedAt, time.Time{})
	if !r.live() {
		want = r.EndedAt.Add(w.keep)
	}
	if r.live() && !old.Due.IsZero() && (want.IsZero() || !want.Before(old.Due)) {
		return old.Due
	}
	w.due = earliest(w.due, want)
	return want
}

func (w *writing) set(key string, value []byte) {
	w.rider.Sets = append(w.rider.Sets, ledger.Set{Key: key, Value: value})
}

// done is all of it.
func (w *writing) done(maxLive int) ledger.Rider {
	if w.live != 0 {
		w.rider.Adds = append(w.rider.Adds, ledger.Add{Key: liveKey, Delta: w.live})
	}
	if w.live > 0 {
		w.rider.Checks = append(w.rider.Checks, ledger.AtMost(liveKey, int64(maxLive)))
	}
	w.rider.Join(w.memberRider())
	for _, parent := range slices.Sorted(maps.Keys(w.freed)) {
		if slices.Contains(w.ended, parent) {
			continue // it ends in the same batch
		}
		w.set(freedKey(parent), []byte(whenBytes(w.now)))
		w.set(dueKey(w.now, parent), nil)
		w.due = earliest(w.due, w.now)
	}
	for sha := range w.unused {
		w.set(unusedKey(sha), []byte(whenBytes(w.now)))
	}
	return w.rider
}

// indexRider moves a session from its old places in the lists to its new ones. Nil
// is a record that is going.
func indexRider(old stored, r *record) (rider ledger.Rider) {
	var before, after []string
	if old.exists() {
		before = old.places()
	}
	if r != nil {
		after = r.places()
	}
	for _, key := range before {
		if !slices.Contains(after, key) {
			rider.Deletes = append(rider.Deletes, key)
		}
	}
	for _, key := range after {
		if !slices.Contains(before, key) {
			rider.Sets = append(rider.Sets, ledger.Set{Key: key})
		}
	}
	return rider
}

// bornTo reports whether its parent must stay while it lives. One that was made from a
// snapshot by itself needs that, not the session it is of.
func (r *record) bornTo() bool { return r.Parent != "" && (r.From == "" || r.Group != "") }

// places are the keys under which a session is found besides its own.
func (r *record) places() []string {
	at := place(r.CreatedAt, r.ID)
	keys := append(make([]string, 0, 8), byAll()+at, byState(r.State)+at)
	for key, val := range r.Labels {
		keys = append(keys, byLabel(key, val)+at)
	}
	if r.Lease != nil {
		keys = append(keys, byHolder(r.Lease.Holder)+at)
	}
	if r.Parent != "" {
		keys = append(keys, byParent(r.Parent)+at)
		if r.live() && r.bornTo() {
			keys = append(keys, childPrefix(r.Parent)+r.ID)
		}
	}
	if r.From != "" && r.live() {
		keys = append(keys, fromPrefix(r.From)+r.ID)
	}
	if !r.Due.IsZero() {
		keys = append(keys, dueKey(r.Due, r.ID))
	}
	return keys
}
