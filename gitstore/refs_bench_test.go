package gitstore

import (
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

var manyRefs = flag.Int("refs", 10_000, "sessions' branches of the repo that has many")

// newManyRefs makes a repo with n sessions' branches that stand where main is.
func newManyRefs(b *testing.B, n int) *Repo {
	b.Helper()
	s := openTestStore(b, func(o *Options) { o.Limits.UpkeepEvery = -1 })
	if _, err := s.CreateRepo(b.Context(), someone, "acme", "many", "main", nil); err != nil {
		b.Fatalf("CreateRepo: %v", err)
	}
	r, err := s.Repo(b.Context(), "acme", "many")
	if err != nil {
		b.Fatalf("Repo: %v", err)
	}
	head := mustCommit(b, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1\n"}}).Commit
	moveMany(b, r, 0, n, refpolicy.ZeroOID, head)
	return r
}

// moveMany moves the sessions from to to - 1 through the door, a thousand at a time.
func moveMany(b *testing.B, r *Repo, from, to int, before, after refpolicy.OID) {
	b.Helper()
	changes := make([]Change, 0, to-from)
	for i := from; i < to; i++ {
		changes = append(changes, Change{Ref: refpolicy.RefName(fmt.Sprint(sessions, i)), Old: before, New: after})
	}
	for chunk := range slices.Chunk(changes, 1000) {
		if _, err := r.Update(b.Context(), Update{Caller: someone, Changes: chunk}); err != nil {
			b.Fatalf("Update: %v", err)
		}
	}
}

// Work in a repo costs the same with many sessions as with ten. Run it with
// -refs 1000000 for the whole promise.
func BenchmarkF02_ManySessions(b *testing.B) {
	for _, n := range []int{10, *manyRefs} {
		r := newManyRefs(b, n)
		own := confined(b, session1)
		serial := 0
		for _, work := range []struct {
			name string
			do   func() error
		}{
			{"create and delete", func() error {
				serial++
				name := refpolicy.RefName(fmt.Sprint(refpolicy.EphemeralBranchPrefix, "new/", serial))
				if _, err := r.CreateBranch(b.Context(), someone, BranchSpec{Target: name, Base: "main"}); err != nil {
					return err
				}
				return r.DeleteBranch(b.Context(), someone, name, nil)
			}},
			{"commit", func() error {
				serial++
				_, err := testCommit{target: session1, files: map[string]string{"a": fmt.Sprint(serial)}}.make(b.Context(), r, own)
				return err
			}},
			{"look up", func() error { _, err := r.Ref(b.Context(), own, session1); return err }},
			{"list by prefix", func() error { _, err := r.BranchesBelow(b.Context(), someone, true, "s/", "", 5); return err }},
			{"list", func() error { _, err := r.Branches(b.Context(), someone, true, "", 5); return err }},
		} {
			b.Run(fmt.Sprintf("%s/%d", work.name, n), func(b *testing.B) {
				for b.Loop() {
					if err := work.do(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// The oldest sessions end first. What they leave in the order of creation must not
// make listing the others slow.
func BenchmarkF02_ListAfterTheOldestWereDeleted(b *testing.B) {
	r := newManyRefs(b, *manyRefs)
	head, err := r.Ref(b.Context(), someone, mainRef)
	if err != nil {
		b.Fatalf("Ref: %v", err)
	}
	moveMany(b, r, 0, *manyRefs*9/10, head.OID, refpolicy.ZeroOID)
	for b.Loop() {
		if page, err := r.Branches(b.Context(), someone, true, "", 5); err != nil || len(page.Branches) != 5 {
			b.Fatalf("Branches: %v, %v", page, err)
		}
	}
}

// A prune reads all refs, in pages. longest-commit-ms is what the slowest commit took
// beside it.
func BenchmarkF02_Prune(b *testing.B) {
	r := newManyRefs(b, *manyRefs)
	var longest time.Duration
	serial := 0
	for b.Loop() {
		done := make(chan error, 1)
		go func() {
			_, err := r.gc(b.Context(), true)
			done <- err
		}()
		for running := true; running; {
			select {
			case err := <-done:
				if err != nil {
					b.Fatalf("gc: %v", err)
				}
				running = false
			default:
			}
			serial++
			begun := time.Now()
			mustCommit(b, r, someone, testCommit{target: session1, files: map[string]string{"a": fmt.Sprint(serial)}})
			longest = max(longest, time.Since(begun))
		}
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "longest-commit-ms")
	b.ReportMetric(float64(serial)/b.Elapsed().Seconds(), "commits/s")
}
