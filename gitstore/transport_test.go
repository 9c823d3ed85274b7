package gitstore

import (
	"fmt"
	"strings"
	"testing"
)

var protocols = []string{"0", "1", "2"}

// eachProtocol runs a test with clients of every protocol version.
func eachProtocol(t *testing.T, test func(t *testing.T, version string)) {
	for _, v := range protocols {
		t.Run("v"+v, func(t *testing.T) { test(t, "protocol.version="+v) })
	}
}

func TestCloneFetchAndPush(t *testing.T) {
	eachProtocol(t, func(t *testing.T, version string) {
		r := newTestRepo(t, openTestStore(t, nil), "repo")
		s := newGitServer(t, r)
		url := s.url(someone, MainRemote)

		a := newWorkTree(t, version)
		a.git("clone", "-q", url, ".") // of an empty repo
		if got := a.git("symbolic-ref", "HEAD"); got != "refs/heads/main" {
			t.Errorf("HEAD of the clone of an empty repo is %s, want refs/heads/main", got)
		}
		first := a.commit("README", "hello\n")
		a.git("push", "-q", "origin", "main")

		b := newWorkTree(t, version)
		b.git("clone", "-q", url, ".")
		if got := b.git("rev-parse", "HEAD"); got != first {
			t.Errorf("clone is at %s, want %s", got, first)
		}
		for n := range 3 {
			b.commit("README", strings.Repeat("hello\n", n+2))
			b.commit(fmt.Sprintf("dir/sub/%d", n), "x")
			b.git("push", "-q", "origin", "HEAD")
			a.git("pull", "-q", "--ff-only")
			if got, want := a.git("rev-parse", "HEAD"), b.git("rev-parse", "HEAD"); got != want {
				t.Errorf("pull %d: at %s, want %s", n, got, want)
			}
		}
		a.fsck()
		b.fsck()
		s.noErrors()
	})
}
