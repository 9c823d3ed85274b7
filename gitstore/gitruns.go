package gitstore

import (
	"sync"
	"time"
)

// gitRuns are the git processes that read in repos, by when they began. git opens a
// pack again whose window it had to give up, so one that runs for very long needs the
// files of packs that have been replaced since.
type gitRuns struct {
	mu   sync.Mutex
	runs map[string]map[*time.Time]bool // by repo id
}

// begin notes a process; the function it gives is called when that has ended.
func (g *gitRuns) begin(repo string) (end func()) {
	began := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.runs == nil {
		g.runs = map[string]map[*time.Time]bool{}
	}
	if g.runs[repo] == nil {
		g.runs[repo] = map[*time.Time]bool{}
	}
	g.runs[repo][&began] = true
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if delete(g.runs[repo], &began); len(g.runs[repo]) == 0 {
			delete(g.runs, repo)
		}
	}
}

// any reports whether a process reads in any repo.
func (g *gitRuns) any() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.runs) > 0
}

// longest is for how long the oldest process in a repo has been running; 0 if there is none.
func (g *gitRuns) longest(repo string) (d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for began := range g.runs[repo] {
		d = max(d, time.Since(*began))
	}
	return d
}
