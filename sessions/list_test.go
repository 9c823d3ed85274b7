package sessions

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// listed are the ids of all pages of a list, and how many pages there were.
func listed(t testing.TB, w *world, door Door, f Filter, limit int) (ids []string, pages int) {
	t.Helper()
	for cursor := ""; ; {
		p, err := w.k.List(t.Context(), w.repo, door, f, cursor, limit)
		if err != nil {
			t.Fatalf("List(%+v, %q): %v", f, cursor, err)
		}
		if len(p.Sessions) > limit {
			t.Fatalf("page of %d sessions, limit %d", len(p.Sessions), limit)
		}
		for _, s := range p.Sessions {
			ids = append(ids, s.ID)
		}
		if pages++; p.Next == "" {
			return ids, pages
		}
		cursor = p.Next
	}
}

// manySessions makes s0 to s9, oldest first: even ones are labelled, every third has
// a holder, s4 is held by another, s7 to s9 come from s0, s5 has ended.
func manySessions(t testing.TB) *world {
	t.Helper()
	w, _ := newMain(t, testLimits)
	for i := range 10 {
		spec := CreateSpec{ID: fmt.Sprintf("s%d", i)}
		if i%2 == 0 {
			spec.Labels = map[string]string{"kind": "even", "all": ""}
		}
		if i%3 == 0 {
			spec.Holder, spec.LeaseTTL = "box", time.Hour
		}
		if i == 4 {
			spec.Holder, spec.LeaseTTL = "box", time.Second
		}
		if i >= 7 {
			spec.FromSession = "s0"
		}
		begun(t, w, spec)
		w.clock.advance(time.Second)
	}
	ended(t, w, "s5", EndSpec{})
	return w
}

func TestListFilters(t *testing.T) {
	w := manySessions(t)
	hidden := w.door(backend())
	hidden.canRead = func(ref string) bool { return !strings.HasSuffix(ref, "s8") }
	for _, tc := range []struct {
		name string
		f    Filter
		want string
	}{
		{"all, newest first", Filter{}, "s9 s7 s6 s5 s4 s3 s2 s1 s0"},
		{"active", Filter{State: Active}, "s9 s7 s6 s4 s3 s2 s1 s0"},
		{"ended", Filter{State: Ended}, "s5"},
		{"label", Filter{LabelKey: "kind", LabelVal: "even"}, "s6 s4 s2 s0"},
		{"label without a value", Filter{LabelKey: "all"}, "s6 s4 s2 s0"},
		{"other value", Filter{LabelKey: "kind", LabelVal: "eve"}, ""},
		{"holder, whose lease is live", Filter{Holder: "box"}, "s9 s6 s3 s0"},
		{"no such holder", Filter{Holder: "bo"}, ""},
		{"parent", Filter{ParentID: "s0"}, "s9 s7"},
		{"no such parent", Filter{ParentID: "s"}, ""},
		{"parent and holder", Filter{ParentID: "s0", Holder: "box"}, "s9"},
		{"holder and label", Filter{Holder: "box", LabelKey: "kind", LabelVal: "even"}, "s6 s0"},
		{"state and label", Filter{State: Ended, LabelKey: "kind", LabelVal: "even"}, ""},
	} {
		for _, limit := range []int{1, 2, 3, 100} {
			if got, _ := listed(t, w, hidden, tc.f, limit); strings.Join(got, " ") != tc.want {
				t.Errorf("%s by %d: %q, want %q", tc.name, limit, got, tc.want)
			}
		}
	}
}

func TestListTellsWhatGetTells(t *testing.T) {
	w := manySessions(t)
	p, err := w.k.List(t.Context(), w.repo, w.door(backend()), Filter{}, "", 100)
	if err != nil || len(p.Sessions) != 10 || p.Next != "" {
		t.Fatalf("List = %d sessions, next %q, %v; want 10 and no more", len(p.Sessions), p.Next, err)
	}
	for _, s := range p.Sessions {
		if got := seen(t, w, s.ID); !sameSession(got, s) {
			t.Errorf("List tells\n%+v\nGet\n%+v", s, got)
		}
	}
}

// Pages that were begun show each session once, whatever comes and goes.
func TestListIsStable(t *testing.T) {
	w := manySessions(t)
	door := w.door(backend())
	p, err := w.k.List(t.Context(), w.repo, door, Filter{}, "", 3)
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	begun(t, w, CreateSpec{ID: "new"})
	ended(t, w, "s7", EndSpec{})
	ids := []string{}
	for next := p.Next; next != ""; {
		p, err := w.k.List(t.Context(), w.repo, door, Filter{}, next, 3)
		if err != nil {
			t.Fatalf("List: %v", err)
		}
		for _, s := range p.Sessions {
			ids = append(ids, s.ID)
		}
		next = p.Next
	}
	if want := "s6 s5 s4 s3 s2 s1 s0"; strings.Join(ids, " ") != want {
		t.Errorf("after the first page came %q, want %q", ids, want)
	}
}

// fill writes n sessions straight into the ledger, without branches.
func fill(t testing.TB, w *world, n int, ttl time.Duration) {
	t.Helper()
	const chunk = 500
	for from := 0; from < n; from += chunk {
		in := w.k.writing(w.clock.Now(), epochBase{})
		for i := from; i < min(from+chunk, n); i++ {
			id := fmt.Sprintf("f%07d", i)
			r := record{ID: id, Branch: "sessions/" + id, Epoch: 1, State: Active, CreatedAt: w.clock.Now(), UsedAt: w.clock.Now()}
			r.Labels = map[string]string{"n": fmt.Sprint(i % 1_000)}
			if ttl > 0 {
				r.ExpiresAt = w.clock.Now().Add(ttl)
			}
			in.put(stored{}, r)
			in.set(testRefKey(r.ref()), mustJSON(Head{SHA: strings.Repeat("1", 40), At: w.clock.Now()}))
		}
		b := ledger.Batch{Space: ledger.RepoSpace(w.repo.ID)}
		b.Carry(in.done(n + 100))
		if _, err := w.ledger.Apply(t.Context(), b); err != nil {
			t.Fatalf("write sessions: %v", err)
		}
	}
}

// A page looks at a bounded number of sessions, however few it finds, and the next
// one goes on behind them.
func TestListIsBounded(t *testing.T) {
	w, _ := newMain(t, testLimits)
	begun(t, w, CreateSpec{ID: "oldest"})
	w.clock.advance(time.Second)
	fill(t, w, 100, 0)
	door := w.door(backend())
	door.canRead = func(ref string) bool { return strings.HasSuffix(ref, "oldest") }
	v, err := w.ledger.Read(t.Context(), ledger.RepoSpace(w.repo.ID))
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	defer v.Close()
	l := &listing{door: door, prefix: byAll(), limit: 5, reads: 40}
	pages := 1
	for ; ; pages++ {
		before := l.after
		more, err := l.collect(t.Context(), v)
		if err != nil || more && l.after == before {
			t.Fatalf("collect = %v, %v; it stays at %q", more, err, before)
		}
		if !more {
			break
		}
	}
	if pages != 3 || len(l.found) != 1 || l.found[0].ID != "oldest" {
		t.Errorf("%d found in %d pages, want the oldest of 101 in 3 of about 40", len(l.found), pages)
	}
}

func TestListRefusals(t *testing.T) {
	w := manySessions(t)
	door := w.door(backend())
	p, err := w.k.List(t.Context(), w.repo, door, Filter{}, "", 1)
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	for _, tc := range []struct {
		name   string
		f      Filter
		cursor string
		want   error
	}{
		{"cursor of another list", Filter{State: Active}, p.Next, ErrBadCursor},
		{"cut cursor", Filter{}, p.Next[:10], ErrBadCursor},
		{"no base64", Filter{}, "***", ErrBadCursor},
		{"long cursor", Filter{}, strings.Repeat("A", 600), ErrBadCursor},
		{"unknown version", Filter{}, base64.RawURLEncoding.EncodeToString(slices.Repeat([]byte{9}, 30)), ErrBadCursor},
		{"unknown state", Filter{State: "asleep"}, "", ErrInvalid},
		{"label value without a key", Filter{LabelVal: "x"}, "", ErrInvalid},
		{"label key with a space", Filter{LabelKey: "a b"}, "", ErrInvalid},
		{"holder with a NUL", Filter{Holder: "a\x00"}, "", ErrInvalid},
		{"parent with a slash", Filter{ParentID: "a/b"}, "", ErrInvalid},
	} {
		if _, err := w.k.List(t.Context(), w.repo, door, tc.f, tc.cursor, 1); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}

func TestPatch(t *testing.T) {
	w, _ := newMain(t, testLimits)
	s := begun(t, w, CreateSpec{ID: "s1", Labels: map[string]string{"a": "1", "b": "2"}, TTL: time.Hour})
	w.clock.advance(time.Minute)
	door := w.door(backend())
	got, err := w.k.Patch(t.Context(), w.repo, door, backend(), "s1", Patch{
		Labels: map[string]*string{"a": nil, "b": ptr("3"), "c": ptr("4")}, TTL: ptr(10 * time.Minute), TTLUnused: ptr(time.Minute),
	})
	if err != nil {
		t.Fatalf("Patch: %v", err)
	}
	if fmt.Sprint(got.Labels) != "map[b:3 c:4]" || !got.ExpiresAt.Equal(w.clock.Now().Add(10*time.Minute)) || got.TTLUnused != time.Minute {
		t.Errorf("patched to %+v", got)
	}
	if !got.UsedAt.Equal(s.UsedAt) || !got.EndsAt.Equal(s.UsedAt.Add(time.Minute)) {
		t.Errorf("used at %s, ends at %s; a change is no use", got.UsedAt, got.EndsAt)
	}
	if after := seen(t, w, "s1"); !sameSession(after, got) {
		t.Errorf("Get tells\n%+v\nPatch told\n%+v", after, got)
	}
	for label, want := range map[string]string{"a=1": "", "b=2": "", "b=3": "s1", "c=4": "s1"} {
		key, val, _ := strings.Cut(label, "=")
		if ids, _ := listed(t, w, door, Filter{LabelKey: key, LabelVal: val}, 10); strings.Join(ids, " ") != want {
			t.Errorf("label %s finds %q, want %q", label, ids, want)
		}
	}
	if got, err = w.k.Patch(t.Context(), w.repo, door, backend(), "s1", Patch{TTL: ptr(time.Duration(0)), TTLUnused: ptr(time.Duration(0))}); err != nil || !got.EndsAt.IsZero() {
		t.Errorf("Patch to no end: ends at %s, %v", got.EndsAt, err)
	}
	w.clock.advance(24 * time.Hour)
	if next := reaped(t, w); !next.IsZero() || seen(t, w, "s1").State != Active {
		t.Errorf("a session that was given no end is %s, next look %s", seen(t, w, "s1").State, next)
	}
	ended(t, w, "s1", EndSpec{})
	if _, err := w.k.Patch(t.Context(), w.repo, door, backend(), "s1", Patch{}); !errors.As(err, new(*StateError)) {
		t.Errorf("Patch of an ended session: %v, want a StateError", err)
	}
	if _, err := w.k.Patch(t.Context(), w.repo, door, backend(), "s1", Patch{TTL: ptr(time.Duration(-1))}); !errors.Is(err, ErrInvalid) {
		t.Errorf("Patch with a negative ttl: %v, want %v", err, ErrInvalid)
	}
}
