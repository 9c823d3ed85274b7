package gitstore

import (
	"fmt"
	"path/filepath"
	"testing"
)

// A repo that is closed as too many are open while a request works on it leaves
// no hot pack behind when that ends.
func TestRepoClosedAtWorkLeavesNoHotPack(t *testing.T) {
	s := openTestStore(t, func(o *Options) { o.Limits = Limits{UpkeepEvery: -1, OpenRepos: 1} })
	r := newTestRepo(t, s, "repo")
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "main\n"}})
	newTestRepo(t, s, "other")
	for n := range 3 {
		_, _, release, err := r.gitObjects(t.Context())
		if err != nil {
			t.Fatalf("gitObjects: %v", err)
		}
		release()
		if left, err := filepath.Glob(filepath.Join(s.scratch.path, "hot-*")); err != nil || len(left) > 0 {
			t.Errorf("round %d leaves %v, %v; want none", n, left, err)
		}
		mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": fmt.Sprint(n)}})
	}
}
