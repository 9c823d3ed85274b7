package gitstore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// Real git clones and pushes, and commits over the API, while packs are pruned,
// merged and removed all the time. Nobody is refused anything, and all is whole.
func TestCase11_1_HousekeepingBesideGit(t *testing.T) {
	s := openTestStore(t, func(o *Options) {
		o.Limits = Limits{SettleObjects: 30, HotPackBytes: 3000, UpkeepEvery: -1}
	})
	r := newTestRepo(t, s, "repo")
	first := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "main\n"}})
	server := newGitServer(t, r)
	url := server.url(someone, MainRemote)
	rounds := 0
	stop := inBackground(t, func(ctx context.Context) error {
		rounds++
		if _, err := r.prune(ctx, true); err != nil {
			return err
		}
		if _, err := r.merge(ctx, 2); err != nil {
			return err
		}
		_, err := r.removeCondemned(ctx, time.Second) // longer than a request here
		return err
	})
	until := time.Now().Add(4 * time.Second)
	var wg sync.WaitGroup
	counts := make([]int, 4)
	work := func(i int, round func(n int)) {
		wg.Go(func() {
			for n := 0; time.Now().Before(until) && !t.Failed(); n++ {
				round(n)
				counts[i]++
			}
		})
	}
	run := func(w *workTree, args ...string) { // the test's own goroutine alone may end it
		if out, err := w.try(args...); err != nil {
			t.Errorf("git %v: %v, %s", args, err, out)
		}
	}
	for i := range 2 {
		w := newWorkTree(t)
		w.git("clone", "-q", url, ".")
		w.git("checkout", "-q", "-b", fmt.Sprint("pusher", i))
		work(i, func(n int) {
			if err := os.WriteFile(filepath.Join(w.dir, fmt.Sprint("f", n%3)), fmt.Append(nil, i, " in round ", n), 0o644); err != nil {
				t.Errorf("write file: %v", err)
			}
			run(w, "add", "-A")
			run(w, "commit", "-q", "-m", fmt.Sprint(i, " in round ", n))
			run(w, "push", "-q", "-f", "origin", "HEAD")
			if n%3 == 2 { // what was pushed becomes garbage, and is pushed again in part
				run(w, "push", "-q", "origin", fmt.Sprint(":pusher", i))
				run(w, "reset", "-q", "--hard", "HEAD~2")
			}
		})
	}
	work(2, func(int) { run(newWorkTree(t), "clone", "-q", url, ".") })
	work(3, func(n int) {
		ref := refpolicy.RefName(fmt.Sprintf("refs/heads/api%d", n%2))
		tc := testCommit{target: ref, base: mainRef, files: map[string]string{"a": fmt.Sprint("round ", n), "x": fmt.Sprint(n % 5)}}
		if _, err := tc.make(t.Context(), r, someone); err != nil {
			t.Errorf("commit %+v: %v", tc, err)
		}
		if n%4 == 3 {
			if err := r.DeleteBranch(t.Context(), someone, ref, nil); err != nil {
				t.Errorf("DeleteBranch: %v", err)
			}
		}
		if _, err := r.Log(t.Context(), someone, first.Commit, "", "", 5); err != nil {
			t.Errorf("Log: %v", err)
		}
	})
	wg.Wait()
	stop()
	if err := checkWhole(t.Context(), r); err != nil {
		t.Error(err)
	}
	if findings, err := s.Fsck(t.Context(), r); err != nil || len(findings) > 0 {
		t.Errorf("Fsck = %v, %v", findings, err)
	}
	t.Logf("%d rounds of upkeep beside %v rounds of pushes, clones and commits", rounds, counts)
}
