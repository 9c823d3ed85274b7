package sessions

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// newMain is a world with a branch main, and where it is.
func newMain(t testing.TB, limits Limits) (w *world, sha string) {
	t.Helper()
	w = pebbleWorld(t, limits)
	return w, branchOff(t, w, "refs/heads/HEAD", "first")
}

// branchOff makes a branch with one commit.
func branchOff(t testing.TB, w *world, ref, content string) string {
	t.Helper()
	sha := w.commit("", content)
	if err := w.door(backend()).Move(t.Context(), Move{Changes: []Change{{Ref: ref, New: sha}}}); err != nil {
		t.Fatalf("create %s: %v", ref, err)
	}
	return sha
}

// begun creates a session as the backend.
func begun(t testing.TB, w *world, spec CreateSpec) Session {
	t.Helper()
	s, err := w.k.Create(t.Context(), w.repo, w.door(backend()), backend(), spec)
	if err != nil {
		t.Fatalf("Create(%+v): %v", spec, err)
	}
	return s
}

// seen gets a session as the backend.
func seen(t testing.TB, w *world, id string) Session {
	t.Helper()
	s, err := w.k.Get(t.Context(), w.repo, w.door(backend()), id)
	if err != nil {
		t.Fatalf("Get(%s): %v", id, err)
	}
	return s
}

func ptr[T any](v T) *T { return &v }

func TestCreateTellsAll(t *testing.T) {
	w, sha := newMain(t, testLimits)
	spec := CreateSpec{
		ID: "s1", Labels: map[string]string{"team": "blue"}, Holder: "box-1", LeaseTTL: 30 * time.Second,
		TTL: time.Hour, IdleTimeout: ptr(10 * time.Minute), CaptureKey: "PEM",
	}
	now := w.clock.Now()
	s := begun(t, w, spec)
	if s.Branch != "sessions/s1" || s.Ref != ephemeralPrefix+"sessions/s1" || s.BaseSHA != sha || s.HeadSHA != sha {
		t.Errorf("session is on %s (%s) at %s, begun at %s; want sessions/s1 at %s", s.Branch, s.Ref, s.HeadSHA, s.BaseSHA, sha)
	}
	if s.Epoch != 1 || s.State != Active || s.Holder != "box-1" || s.Lease == nil || !s.Lease.ExpiresAt.Equal(now.Add(30*time.Second)) {
		t.Errorf("epoch %d, %s, held by %q, lease %+v; want epoch 1, active, box-1's for 30 s", s.Epoch, s.State, s.Holder, s.Lease)
	}
	if !s.ExpiresAt.Equal(now.Add(time.Hour)) || !s.EndsAt.Equal(now.Add(10*time.Minute)) || s.CaptureKey != "PEM" || s.CreatedBy != backend() {
		t.Errorf("expires %s, ends %s, key %q, by %+v", s.ExpiresAt, s.EndsAt, s.CaptureKey, s.CreatedBy)
	}
	if got := seen(t, w, "s1"); fmt.Sprintf("%+v %+v", got, *got.Lease) != fmt.Sprintf("%+v %+v", s, *s.Lease) && !sameSession(got, s) {
		t.Errorf("Get tells\n%+v\nCreate told\n%+v", got, s)
	}
	if head := w.head(t, s.Ref); head != sha {
		t.Errorf("branch is at %q, want %s", head, sha)
	}
	log := w.log(t)
	last := log[len(log)-1]
	if last.Type != "session.created" || last.Session != "s1" || len(last.Changes) != 1 || last.Changes[0].Session != "s1" {
		t.Errorf("log entry %+v, want session.created of s1 with its ref", last)
	}
}

// sameSession compares what is told of two sessions, leases by value.
func sameSession(a, b Session) bool {
	la, lb := a.Lease, b.Lease
	a.Lease, b.Lease = nil, nil
	if (la == nil) != (lb == nil) || la != nil && *la != *lb {
		return false
	}
	return fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b)
}

func TestCreateMakesAnID(t *testing.T) {
	w, _ := newMain(t, testLimits)
	a, b := begun(t, w, CreateSpec{}), begun(t, w, CreateSpec{})
	if a.ID == b.ID || !strings.HasPrefix(a.ID, "ses_") || validID(a.ID) != nil {
		t.Errorf("made ids %q and %q", a.ID, b.ID)
	}
	if a.Lease != nil || a.Epoch != 1 || !a.EndsAt.IsZero() {
		t.Errorf("a session that asks for nothing has lease %+v, epoch %d, ends %s; want none, 1, never", a.Lease, a.Epoch, a.EndsAt)
	}
}

func TestCreateRefusals(t *testing.T) {
	w, _ := newMain(t, Limits{MaxLive: 2})
	begun(t, w, CreateSpec{ID: "taken"})
	long := strings.Repeat("x", 129)
	labels := map[string]string{}
	for i := range 65 {
		labels[fmt.Sprint(i)] = ""
	}
	for _, tc := range []struct {
		name string
		spec CreateSpec
		want error
	}{
		{"id taken", CreateSpec{ID: "taken"}, ErrExists},
		{"id taken, other branch", CreateSpec{ID: "taken", Branch: "other"}, ErrExists},
		{"branch taken", CreateSpec{ID: "new", Branch: "sessions/taken"}, ErrExists},
		{"id with a slash", CreateSpec{ID: "a/b"}, ErrInvalid},
		{"id begins with a dot", CreateSpec{ID: ".a"}, ErrInvalid},
		{"id begins with a dash", CreateSpec{ID: "-a"}, ErrInvalid},
		{"long id", CreateSpec{ID: long}, ErrInvalid},
		{"long holder", CreateSpec{Holder: strings.Repeat("h", 257)}, ErrInvalid},
		{"holder with a control character", CreateSpec{Holder: "a\x00b"}, ErrInvalid},
		{"holder that is no text", CreateSpec{Holder: "\xff"}, ErrInvalid},
		{"too many labels", CreateSpec{Labels: labels}, ErrInvalid},
		{"label key with a space", CreateSpec{Labels: map[string]string{"a b": ""}}, ErrInvalid},
		{"empty label key", CreateSpec{Labels: map[string]string{"": "x"}}, ErrInvalid},
		{"label value with a newline", CreateSpec{Labels: map[string]string{"a": "x\ny"}}, ErrInvalid},
		{"long label value", CreateSpec{Labels: map[string]string{"a": strings.Repeat("v", 256)}}, ErrInvalid},
		{"negative ttl", CreateSpec{TTL: -1}, ErrInvalid},
		{"negative idle timeout", CreateSpec{IdleTimeout: ptr(time.Duration(-1))}, ErrInvalid},
		{"negative unused ttl", CreateSpec{TTLUnused: -1}, ErrInvalid},
		{"negative lease ttl", CreateSpec{Holder: "h", LeaseTTL: -1}, ErrInvalid},
		{"two beginnings", CreateSpec{FromSession: "taken", BaseRef: "main"}, ErrInvalid},
		{"from no session", CreateSpec{FromSession: "nobody"}, ErrNotFound},
		{"from no ref", CreateSpec{BaseRef: "nowhere"}, ErrNotFound},
	} {
		_, err := w.k.Create(t.Context(), w.repo, w.door(backend()), backend(), tc.spec)
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: Create = %v, want %v", tc.name, err, tc.want)
		}
	}
	begun(t, w, CreateSpec{ID: "second"})
	_, err := w.k.Create(t.Context(), w.repo, w.door(backend()), backend(), CreateSpec{ID: "third"})
	if limit := (*LimitError)(nil); !errors.As(err, &limit) || limit.Max != 2 || limit.Want != 3 {
		t.Errorf("third of two sessions: %v, want a LimitError", err)
	}
	if head := w.head(t, ephemeralPrefix+"sessions/third"); head != "" {
		t.Errorf("the refused session has a branch at %s", head)
	}
	ended(t, w, "second", EndSpec{})
	begun(t, w, CreateSpec{ID: "third"})
}

func TestCreateNeedsTheRefAndNoBoundToken(t *testing.T) {
	w, _ := newMain(t, testLimits)
	door := w.door(backend())
	door.mayWrite = func(string) bool { return false }
	if _, err := w.k.Create(t.Context(), w.repo, door, backend(), CreateSpec{}); !errors.Is(err, errDenied) {
		t.Errorf("Create without the right to its branch: %v, want %v", err, errDenied)
	}
	bound := backend()
	bound.Session = "s1"
	if _, err := w.k.Create(t.Context(), w.repo, w.door(bound), bound, CreateSpec{}); !errors.Is(err, ErrForeignSession) {
		t.Errorf("Create with a token of another session: %v, want %v", err, ErrForeignSession)
	}
}

func TestCreateFromASession(t *testing.T) {
	w, _ := newMain(t, testLimits)
	parent := begun(t, w, CreateSpec{ID: "parent"})
	sha, err := w.write(t, backend(), parent.Ref, "work")
	if err != nil {
		t.Fatalf("write: %v", err)
	}
	w.clock.advance(time.Minute)
	child := begun(t, w, CreateSpec{ID: "child", FromSession: "parent"})
	if child.BaseSHA != sha || child.ParentID != "parent" {
		t.Errorf("child begins at %s from %q, want %s from parent", child.BaseSHA, child.ParentID, sha)
	}
	if got := seen(t, w, "parent"); !got.UsedAt.Equal(w.clock.Now()) {
		t.Errorf("parent was used at %s, want when its child was made, %s", got.UsedAt, w.clock.Now())
	}
	ended(t, w, "child", EndSpec{})
	ended(t, w, "parent", EndSpec{})
	_, err = w.k.Create(t.Context(), w.repo, w.door(backend()), backend(), CreateSpec{FromSession: "parent"})
	if state := (*StateError)(nil); !errors.As(err, &state) || state.State != Ended {
		t.Errorf("Create from an ended session: %v, want a StateError", err)
	}
}

// A repeated call gives the stored answer whatever stands now.
func TestCreateIsRepeatable(t *testing.T) {
	w, _ := newMain(t, testLimits)
	once := func() *ledger.Once[Session] {
		return &ledger.Once[Session]{Key: "k1", Answer: func(s Session) ([]byte, error) { return []byte(s.ID), nil }}
	}
	first := begun(t, w, CreateSpec{Once: once()})
	for _, after := range []string{"at once", "after its end"} {
		_, err := w.k.Create(t.Context(), w.repo, w.door(backend()), backend(), CreateSpec{Once: once()})
		if stored, ok := ledger.IsRepeated(err); !ok || string(stored) != first.ID {
			t.Errorf("repeated %s: %q, %v; want the stored answer %s", after, stored, err, first.ID)
		}
		ended(t, w, first.ID, EndSpec{})
	}
	if n := len(w.keys(t, sessionKeys)); n != 1 {
		t.Errorf("%d sessions, want 1", n)
	}
}
