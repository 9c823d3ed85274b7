package integration

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/headgate/headgate/integration/harness"
)

// 200 writers send a commit with the same expected head: one wins, and nothing of
// the others stays (PI-12).
func TestA05_ParallelCASHasOneWinner(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		const writers = 200
		r, main := g.seeded()
		r.session("s", "main")
		answers := make([]harness.Answer, writers)
		// All at the same moment: the last line of each waits for all others.
		var ready, all sync.WaitGroup
		release := make(chan struct{})
		ready.Add(writers)
		g.Client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: writers}}
		for i := range writers {
			all.Go(func() {
				text := harness.Commit{Branch: "s", Ephemeral: true, Expected: main, Files: []harness.File{{Path: "winner", Content: fmt.Sprintf("writer %d", i)}}}.Lines()
				ask := r.packAsk("", r.write)
				ask.Body = io.MultiReader(strings.NewReader(text[:len(text)-5]), &gateReader{ready: &ready, release: release, rest: strings.NewReader(text[len(text)-5:])})
				a, err := g.Do(ask)
				if err != nil {
					t.Errorf("writer %d: %v", i, err)
				}
				answers[i] = a
			})
		}
		ready.Wait()
		close(release)
		all.Wait()
		won, winner := 0, -1
		head := r.head("s", true)
		for i, a := range answers {
			switch {
			case a.Status == 201:
				won, winner = won+1, i
				if a.Text("commit", "commit_sha") != head {
					t.Errorf("writer %d won with %s, but the head is %s", i, a.Text("commit", "commit_sha"), head)
				}
			case a.Status != 409 || a.Text("result", "status") != "precondition_failed" || a.Text("result", "old_sha") != head:
				t.Errorf("writer %d = %s, want 201, or 409 precondition_failed with the head %s", i, a, head)
			}
		}
		if won != 1 {
			t.Fatalf("%d of %d writers won, want 1", won, writers)
		}
		r.wantFile(head, "winner", fmt.Sprintf("writer %d", winner))
		if commits := r.get("/commits", "branch", "s", "ephemeral", "true").List("commits"); len(commits) != 2 {
			t.Errorf("s has %d commits, want main's and the winner's", len(commits))
		}
		// What a loser sent cannot be had: its commit has no name that reads.
		mirror := r.mirror(r.ephemeral(r.read))
		if n := strings.Count(g.run(mirror, "cat-file", "--batch-all-objects", "--batch-check"), " commit "); n != 2 {
			t.Errorf("a mirror has %d commits, want 2", n)
		}
	})
}

// A gateReader says that it is asked for its text, then waits to be let go.
type gateReader struct {
	ready   *sync.WaitGroup
	release chan struct{}
	rest    io.Reader
	once    sync.Once
}

func (g *gateReader) Read(p []byte) (int, error) {
	g.once.Do(func() {
		g.ready.Done()
		<-g.release
	})
	return g.rest.Read(p)
}

// Without a guard every writer gets in, one after another (OQ-K5).
func TestWritersWithoutAGuard(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		const writers, each = 4, 5
		r, _ := g.seeded()
		var all sync.WaitGroup
		var mu sync.Mutex
		made := 0
		for w := range writers {
			all.Go(func() {
				for i := range each {
					a, err := g.Do(r.commitAsk(harness.Commit{Branch: "main", Files: []harness.File{{Path: fmt.Sprintf("w%d/%d", w, i), Content: "x"}}}, r.write))
					switch {
					case err != nil:
						t.Errorf("writer %d: %v", w, err)
					case a.Status == 201:
						mu.Lock()
						made++
						mu.Unlock()
					case a.Status != 409:
						t.Errorf("writer %d = %s, want 201 or 409", w, a)
					}
				}
			})
		}
		all.Wait()
		commits := r.get("/commits", "limit", "100").List("commits")
		files := r.get("/files").List("paths")
		if len(commits) != made+1 || len(files) != made+2 {
			t.Errorf("%d writes were acknowledged; main has %d commits and %d files, want one and two more", made, len(commits), len(files))
		}
	})
}

// Two writers send the same large blob at once, one of them with a stale head. The
// loser's pack goes, and what the winner wrote stays whole.
func TestG01_TwoWritersOfOneLargeBlob(t *testing.T) {
	onEachEnginePlain(t, func(t *testing.T, g *gate) {
		size, rounds := setting(t, "HEADGATE_G01_MIB", 100)<<20, setting(t, "HEADGATE_G01_ROUNDS", 2)
		r, head := g.seeded()
		stale := head
		for round := range rounds {
			content := noise(t, size)
			copy(content, fmt.Sprintf("round %d", round))
			head = r.commit(harness.Commit{Branch: "main", Expected: head, Files: []harness.File{{Path: "round", Content: fmt.Sprint(round)}}})
			answers := make([]harness.Answer, 2)
			var all sync.WaitGroup
			for i, expected := range []string{head, stale} {
				all.Go(func() {
					a, err := g.Do(harness.Ask{Method: "POST", Path: r.path("/commit-pack"), Token: r.write,
						Body: stream(harness.Commit{Branch: "main", Expected: expected}, "big", bytes.NewReader(content))})
					if err != nil {
						t.Errorf("round %d, writer %d: %v", round, i, err)
					}
					answers[i] = a
				})
			}
			all.Wait()
			if answers[0].Status != 201 || answers[1].Status != 409 || answers[1].Text("result", "status") != "precondition_failed" {
				t.Fatalf("round %d = %s and %s, want 201 and 409 precondition_failed", round, answers[0], answers[1])
			}
			head = answers[0].Text("commit", "commit_sha")
			f := r.file(head, "big")
			sameBytes(t, fmt.Sprintf("round %d: the winner's blob", round), f.Body, content)
		}
		wantLeftovers(t, g)
	})
}

// wantLeftovers checks that the data folder holds no pack that nothing refers to, no
// quarantine and no lock. A pack in use is linked to where git sees it.
func wantLeftovers(t testing.TB, g *gate) {
	t.Helper()
	for _, r := range g.repos {
		r.fsck() // whoever reads links what is registered
	}
	if err := g.DataFiles(func(path string, content []byte) error {
		rel, _ := filepath.Rel(g.Data, path)
		name := filepath.Base(path)
		var stat syscall.Stat_t
		if err := syscall.Stat(path, &stat); err != nil {
			return nil // gone meanwhile
		}
		switch {
		case filepath.Base(filepath.Dir(path)) == "packs" && stat.Nlink < 2,
			strings.HasPrefix(name, "tmp_"), strings.HasSuffix(name, ".lock"):
			t.Errorf("left behind: %s, %d bytes", rel, len(content))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
