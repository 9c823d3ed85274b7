package gitstore

import (
	"fmt"
	"runtime"
	"testing"
)

// More repos than may be open are used in turn, while a commit to the first one is
// still being uploaded: it ends well although its repo was let go meanwhile.
func TestOpenReposAreBounded(t *testing.T) {
	s := openTestStore(t, func(o *Options) { o.Limits.OpenRepos = 2 })
	first := newTestRepo(t, s, "first")
	w, err := first.NewCommit(t.Context(), someone, CommitSpec{
		Target: mainRef, Message: "m", Author: Signature{Name: "T", Email: "t@example.org"},
		Files: []FileChange{{Path: "a", ContentID: "a"}},
	})
	if err != nil {
		t.Fatalf("NewCommit: %v", err)
	}
	defer w.Abort()
	for i := range 6 {
		r := newTestRepo(t, s, fmt.Sprintf("other-%d", i))
		mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1\n"}})
		if err := r.Settle(t.Context()); err != nil {
			t.Fatalf("Settle: %v", err)
		}
	}
	if n := len(s.repos); n > 2 {
		t.Errorf("%d repos are open, want at most 2", n)
	}
	runtime.GC()
	if err := w.Write("a", []byte("late\n"), true); err != nil {
		t.Fatalf("Write: %v", err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Errorf("Commit to a repo that was let go: %v", err)
	}
	again, err := s.Repo(t.Context(), "acme", "first")
	if err != nil {
		t.Fatalf("Repo: %v", err)
	}
	if _, err := again.Ref(t.Context(), someone, mainRef); err != nil {
		t.Errorf("Ref after the late commit: %v", err)
	}
}
