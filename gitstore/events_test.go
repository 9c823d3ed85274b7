package gitstore

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// logRaw puts an entry into a repo's log, as the rooms above do with batches of theirs.
func logRaw(t testing.TB, r *Repo, entry string) uint64 {
	t.Helper()
	res, err := r.ledger.Apply(t.Context(), ledger.Batch{Space: r.space, Log: []byte(entry)})
	if err != nil {
		t.Fatalf("Apply(log %.60s): %v", entry, err)
	}
	return res.Seq
}

func mustEvents(t testing.TB, r *Repo, c Caller, q EventQuery) EventPage {
	t.Helper()
	page, err := r.Events(t.Context(), c, q)
	if err != nil {
		t.Fatalf("Events(%+v): %v", q, err)
	}
	return page
}

// allEvents reads from after to the end, page by page.
func allEvents(t testing.TB, r *Repo, c Caller, q EventQuery) []LogEvent {
	t.Helper()
	var all []LogEvent
	for {
		page := mustEvents(t, r, c, q)
		all = append(all, page.Events...)
		if !page.More {
			return all
		}
		if page.Last <= q.After {
			t.Fatalf("Events(%+v) came no further than %d of %d", q, page.Last, page.Newest)
		}
		q.After = page.Last
	}
}

func typesOf(events []LogEvent) string {
	var all []string
	for _, e := range events {
		all = append(all, fmt.Sprint(e.Seq, ":", e.Type))
	}
	return strings.Join(all, " ")
}

func TestEventsTellEveryChangeInOrder(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, start func(testing.TB) opener) {
		s := openTestStore(t, func(o *Options) { o.Ledger = closedAtEnd(t, start(t)(t)) })
		r := newTestRepo(t, s, "repo")
		if page := mustEvents(t, r, someone, EventQuery{}); len(page.Events) != 0 || page.More || page.Newest != 0 {
			t.Errorf("Events of an empty repo = %+v, want none", page)
		}
		var made []refpolicy.OID
		for n := range 5 {
			made = append(made, mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": fmt.Sprint(n)}}).Commit)
		}
		for _, limit := range []int{1, 2, 100} {
			events := allEvents(t, r, someone, EventQuery{Limit: limit})
			if len(events) != 5 {
				t.Fatalf("%d events by pages of %d, want 5", len(events), limit)
			}
			for n, e := range events {
				if e.Seq != uint64(n+1) || e.Type != entryRefs || e.Actor.Subject != "tester" || e.At.IsZero() ||
					len(e.Changes) != 1 || e.Changes[0].New != made[n] || e.Changes[0].Ref != mainRef {
					t.Errorf("event %d = %+v, want the commit %s", n, e, made[n])
				}
			}
		}
		if page := mustEvents(t, r, someone, EventQuery{After: 3, Limit: 1}); len(page.Events) != 1 || page.Last != 4 || page.Newest != 5 || !page.More {
			t.Errorf("Events after 3 = %+v, want number 4 and that there is more", page)
		}
		if page := mustEvents(t, r, someone, EventQuery{After: 5}); len(page.Events) != 0 || page.Last != 5 || page.More {
			t.Errorf("Events after the newest = %+v, want none", page)
		}
	})
}

// A number that was never given out begins anew with the present state.
func TestCase15_1_ForeignNumberGivesResync(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "repo")
	tip := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1"}}).Commit
	other := mustCommit(t, r, someone, testCommit{target: "refs/heads/other", base: mainRef, files: map[string]string{"a": "2"}}).Commit
	page := mustEvents(t, r, someone, EventQuery{After: 1 << 40})
	want := Resync{Refs: []ResyncRef{{mainRef, tip}, {"refs/heads/other", other}}, AsOf: 2}
	wantResync(t, page, want)
	page = mustEvents(t, r, someone, EventQuery{After: 3, Ref: "refs/heads/other"})
	wantResync(t, page, Resync{Refs: want.Refs[1:], AsOf: 2})
	page = mustEvents(t, r, callerWithout(t, "refs/heads/main"), EventQuery{After: 3})
	wantResync(t, page, Resync{Refs: want.Refs[1:], AsOf: 2})
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "3"}})
	if page := mustEvents(t, r, someone, EventQuery{After: page.Last}); typesOf(page.Events) != "3:ref.updated" {
		t.Errorf("after the resync came %s, want number 3", typesOf(page.Events))
	}
}

// wantResync wants a page of one resync with the state want.
func wantResync(t *testing.T, page EventPage, want Resync) {
	t.Helper()
	if len(page.Events) != 1 || page.Events[0].Type != EventResync || page.Events[0].Seq != want.AsOf || page.Last != want.AsOf || page.More {
		t.Fatalf("page = %+v, want a resync at %d alone", page, want.AsOf)
	}
	var got Resync
	if err := json.Unmarshal(page.Events[0].Data, &got); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("resync = %+v, %v; want %+v", got, err, want)
	}
}

// callerWithout may read all but the refs of a pattern.
func callerWithout(t *testing.T, pattern string) Caller {
	t.Helper()
	return callerBy(t, refpolicy.Rule{Pattern: pattern, Ops: []refpolicy.Op{refpolicy.NoRead}})
}

func callerBy(t *testing.T, rules ...refpolicy.Rule) Caller {
	t.Helper()
	p, err := refpolicy.New(rules, nil)
	if err != nil {
		t.Fatalf("refpolicy.New: %v", err)
	}
	return Caller{Actor: Actor{Org: "acme", Subject: "sandbox"}, Policy: p}
}

// An entry that says that the ledger lost writes stands in its place, with the state.
func TestEventsTellResyncInTheLog(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "repo")
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1"}})
	logRaw(t, r, `{"type":"resync"}`)
	tip := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "2"}}).Commit
	for _, c := range []Caller{someone, callerWithout(t, "refs/heads/x/*")} {
		events := allEvents(t, r, c, EventQuery{Limit: 1})
		if typesOf(events) != "1:ref.updated 2:resync 3:ref.updated" {
			t.Fatalf("events %s, want the resync in its place", typesOf(events))
		}
		wantResync(t, EventPage{Events: []LogEvent{{Seq: 3, Type: EventResync, Data: events[1].Data}}, Last: 3},
			Resync{Refs: []ResyncRef{{mainRef, tip}}, AsOf: 3})
	}
}

// What a filtered reader costs is bounded however much is left out.
func TestEventsBoundWork(t *testing.T) {
	s := openTestStore(t, func(o *Options) { o.Ledger = closedAtEnd(t, pebbleIn(vfs.NewMem())(t)) })
	r := newTestRepo(t, s, "repo")
	logMany(t, r, eventsLooked+2*ledger.BulkKeys, `{"type":"session.changed","actor":{"org":"acme"},"changes":[],"session":"b","data":{"ref":"refs/heads/b"}}`)
	page := mustEvents(t, r, callerWithout(t, "refs/heads/b"), EventQuery{})
	if len(page.Events) != 0 || !page.More || page.Last < eventsLooked || page.Last > eventsLooked+ledger.BulkKeys {
		t.Errorf("Events = %d events, last %d, more %v; want none, about %d, true", len(page.Events), page.Last, page.More, eventsLooked)
	}
	long := `{"type":"session.changed","session":"b","data":{"ref":"refs/heads/b","x":"` + strings.Repeat("x", 1<<20) + `"}}`
	var first uint64
	for range 10 {
		first = max(first, logRaw(t, r, long))
	}
	first -= 9
	page = mustEvents(t, r, callerWithout(t, "refs/heads/b"), EventQuery{After: first - 1})
	if !page.More && page.Last == page.Newest {
		t.Errorf("Events looked at all of %d long entries at once, to %d", 10, page.Last)
	}
	if all := allEvents(t, r, someone, EventQuery{After: first - 1}); len(all) != 10 {
		t.Errorf("%d long entries were told, want 10", len(all))
	}
}

// logMany puts n entries into the log.
func logMany(t testing.TB, r *Repo, n int, entry string) {
	t.Helper()
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	for range 16 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := r.ledger.Apply(t.Context(), ledger.Batch{Space: r.space, Log: []byte(entry)}); err != nil {
					t.Errorf("Apply: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func TestWatchEventsWakes(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, start func(testing.TB) opener) {
		open := start(t)
		s := openTestStore(t, func(o *Options) { o.Ledger = closedAtEnd(t, open(t)) })
		r := newTestRepo(t, s, "repo")
		wake, err := r.WatchEvents(t.Context())
		if err != nil {
			t.Fatalf("WatchEvents: %v", err)
		}
		for n := range 3 {
			mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": fmt.Sprint(n)}})
			for after := uint64(n); ; {
				if page := mustEvents(t, r, someone, EventQuery{After: after}); len(page.Events) == 1 {
					break
				}
				select {
				case <-wake:
				case <-time.After(time.Minute):
					t.Fatal("no wake-up")
				}
			}
		}
	})
}

// closedAtEnd closes a ledger when the test ends, after what uses it.
func closedAtEnd(t testing.TB, l ledger.Ledger) ledger.Ledger {
	t.Cleanup(func() { l.Close() })
	return l
}
