package gitstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// A pointer tells until when it is readable: while a ref reaches it, of whatever
// kind, there is no end; what pins alone hold, itself or by its descendants, is
// there until the last of them expires; the rest until the next prune.
func TestPI18_Retention(t *testing.T) {
	clock := newTestClock()
	db := openClockedLedger(t, clock)
	r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Ledger = db }), "repo")
	first := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "first"}}).Commit
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "main"}})
	var states [5]refpolicy.OID
	for i := range states {
		states[i] = mustCommit(t, r, someone, testCommit{target: sessionA, base: mainRef, files: map[string]string{"a": fmt.Sprint(i)}}).Commit
	}
	forever, nextPrune := Retention{Held: true}, Retention{}
	want := func(when string, wanted Retention, commits ...refpolicy.OID) {
		t.Helper()
		if got, err := r.Retention(t.Context(), someone, commits...); err != nil || got.compare(wanted) != 0 {
			t.Errorf("%s: Retention(%s) = %+v, %v; want %+v", when, commits, got, err, wanted)
		}
	}
	pin := func(n int, ttl time.Duration) Pin {
		t.Helper()
		p, err := r.Pin(t.Context(), someone, PinSpec{OID: states[n], Holder: "reader", TTL: ttl})
		if err != nil {
			t.Fatalf("Pin(state %d): %v", n, err)
		}
		return p
	}
	hour, minute, deleted := pin(1, time.Hour), pin(3, time.Minute), pin(2, 0)
	for _, oid := range append([]refpolicy.OID{first, refpolicy.ZeroOID}, states[:]...) {
		want("a ref reaches it", forever, oid)
	}
	if err := r.DeleteBranch(t.Context(), someone, sessionA, nil); err != nil {
		t.Fatalf("DeleteBranch: %v", err)
	}
	want("on main", forever, first)
	want("below a pin without an end", forever, states[0], states[1], states[2])
	want("pinned for a minute", Retention{true, minute.ExpiresAt}, states[3])
	want("after all pins", nextPrune, states[4])
	want("several", nextPrune, first, states[4], states[0])
	if err := r.Unpin(t.Context(), someone, deleted.ID, nil); err != nil {
		t.Fatalf("Unpin: %v", err)
	}
	want("below two pins", Retention{true, hour.ExpiresAt}, states[0])
	want("pinned for an hour, below one for a minute", Retention{true, hour.ExpiresAt}, states[1])
	want("below a pin of a minute", Retention{true, minute.ExpiresAt}, states[2])
	want("several", Retention{true, minute.ExpiresAt}, states[0], first, states[2])
	clock.forward(time.Minute)
	want("after its pin's end", nextPrune, states[2], states[3])
	want("of a pin that holds", Retention{true, hour.ExpiresAt}, states[1])
	if _, err := r.CreateBranch(t.Context(), someone, BranchSpec{Target: "refs/heads/kept", Base: states[1].String()}); err != nil {
		t.Fatalf("CreateBranch: %v", err)
	}
	want("of a branch again", forever, states[1], states[0])
	gcNow(t, r)
	for i, oid := range states {
		wantReadable(t, r, oid, i <= 1)
	}
}

// What a confined token reads a ref of its own reaches, so it hears of no end, and
// nothing of pins and refs of others.
func TestA13_RetentionTellsNothingOfPins(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "repo")
	own := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "main"}}).Commit
	c := confined(t, mainRef)
	for _, pinned := range []bool{false, true} {
		if pinned {
			if _, err := r.Pin(t.Context(), someone, PinSpec{OID: own, Holder: "reader", TTL: time.Minute}); err != nil {
				t.Fatalf("Pin: %v", err)
			}
		}
		if got, err := r.Retention(t.Context(), c, own); err != nil || got != (Retention{Held: true}) {
			t.Errorf("pinned %v: Retention = %+v, %v; want held without an end", pinned, got, err)
		}
	}
}
