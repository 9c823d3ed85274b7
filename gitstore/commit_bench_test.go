package gitstore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// BenchmarkCommit makes commits of one 1 KiB file over the commit API, durable
// each, on 1 and on 32 branches with a writer each.
func BenchmarkCommit(b *testing.B) {
	for _, branches := range []int{1, 32} {
		b.Run(fmt.Sprintf("branches-%d", branches), func(b *testing.B) { benchmarkCommit(b, branches) })
	}
}

func benchmarkCommit(b *testing.B, branches int) {
	s := openTestStore(b, nil)
	r := newTestRepo(b, s, "bench")
	heads := make([]refpolicy.OID, branches)
	first := mustCommit(b, r, someone, testCommit{target: mainRef, files: map[string]string{"readme": "hello\n"}})
	for i := range heads {
		ref, err := r.CreateBranch(b.Context(), someone, BranchSpec{Target: benchRef(i), Base: first.Commit.String()})
		if err != nil {
			b.Fatalf("CreateBranch: %v", err)
		}
		heads[i] = ref.OID
	}
	pad := string(make([]byte, 1000))
	var next atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for i := range heads {
		wg.Go(func() {
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					return
				}
				r, err := s.Repo(b.Context(), "acme", "bench") // as each request does
				if err != nil {
					b.Errorf("Repo: %v", err)
					return
				}
				res, err := testCommit{
					target: benchRef(i), expected: heads[i].String(),
					files: map[string]string{fmt.Sprintf("dir/f%d", n%50): fmt.Sprint(n, pad)},
				}.make(b.Context(), r, someone)
				if err != nil {
					b.Errorf("commit: %v", err)
					return
				}
				heads[i] = res.Commit
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
}

func benchRef(i int) refpolicy.RefName {
	return refpolicy.RefName(fmt.Sprintf("refs/namespaces/ephemeral/refs/heads/bench/%d", i))
}
