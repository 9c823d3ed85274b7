package gitstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// keepAnswers stores n answers in a space as of a time.
func keepAnswers(t testing.TB, l ledger.Ledger, space ledger.Space, n int, at time.Time) {
	t.Helper()
	var b ledger.Batch
	for i := range n {
		once := &ledger.Once[int]{Key: fmt.Sprint(at.UnixMicro(), "-", i), Answer: func(int) ([]byte, error) { return []byte("answer"), nil }}
		rider, err := once.Rider(i, at)
		if err != nil {
			t.Fatal(err)
		}
		b.Checks, b.Sets = append(b.Checks, rider.Checks...), append(b.Sets, rider.Sets...)
	}
	b.Space = space
	if _, err := l.Apply(t.Context(), b); err != nil {
		t.Fatalf("Apply: %v", err)
	}
}

// Answers to repeated calls go when a repeated call is no longer to be expected, in the
// spaces of repos, orgs and the server.
func TestStoredAnswersAreForgotten(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, start func(testing.TB) opener) {
		l := closedAtEnd(t, start(t)(t))
		s := openTestStore(t, func(o *Options) { o.Ledger, o.Limits.UpkeepEvery = l, -1 })
		r := newTestRepo(t, s, "repo")
		now, err := l.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		spaces := []ledger.Space{r.space, ledger.OrgSpace("acme"), ledger.OrgSpace("idle"), ledger.ServerSpace}
		for _, space := range spaces {
			keepAnswers(t, l, space, 1_100, now.Add(-ledger.OnceMemory-time.Minute))
			keepAnswers(t, l, space, 3, now.Add(time.Minute-ledger.OnceMemory))
		}
		if err := r.keepLog(t.Context()); err != nil {
			t.Fatalf("keepLog: %v", err)
		}
		if err := s.forgetAllAnswers(t.Context()); err != nil {
			t.Fatalf("forgetAllAnswers: %v", err)
		}
		for _, space := range spaces {
			v, err := l.Read(t.Context(), space)
			if err != nil {
				t.Fatal(err)
			}
			for _, prefix := range []string{"once/", "once-due/"} {
				if items, err := v.Scan(t.Context(), prefix, "", 10_000); err != nil || len(items) != 3 {
					t.Errorf("%s: %d keys below %s, %v; want the 3 that are young", space, len(items), prefix, err)
				}
			}
			v.Close()
		}
	})
}
