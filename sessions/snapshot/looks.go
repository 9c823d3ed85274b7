package snapshot

import (
	"sync"
	"time"
)

// looks remembers when each repo is to be looked at next, as far as this process knows.
type looks struct {
	state *lookState
	// sooner gets a value when something earlier than before was noted.
	sooner chan struct{}
}

type lookState struct {
	mu     sync.Mutex // over all below
	next   map[string]look
	marked map[string]RepoID // repos known to be marked as having snapshots
}

type look struct {
	repo RepoID
	at   time.Time
}

func newLooks() looks {
	return looks{&lookState{next: map[string]look{}, marked: map[string]RepoID{}}, make(chan struct{}, 1)}
}

// note says that repo has to be looked at by then; zero says nothing.
func (l looks) note(repo RepoID, at time.Time) {
	if at.IsZero() {
		return
	}
	l.state.mu.Lock()
	have, ok := l.state.next[repo.ID]
	if ok && !at.Before(have.at) {
		l.state.mu.Unlock()
		return
	}
	l.state.next[repo.ID] = look{repo, at}
	l.state.mu.Unlock()
	select {
	case l.sooner <- struct{}{}:
	default:
	}
}

// take gives the repos that are due, and when the first of the others is; zero: never.
func (l looks) take(now time.Time) (due []RepoID, next time.Time) {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	for id, have := range l.state.next {
		if have.at.After(now) {
			next = earliest(next, have.at)
			continue
		}
		due = append(due, have.repo)
		delete(l.state.next, id)
	}
	return due, next
}

func (l looks) isMarked(id string) bool {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	_, ok := l.state.marked[id]
	return ok
}

func (l looks) mark(repo RepoID) {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	l.state.marked[repo.ID] = repo
}

func (l looks) unmark(id string) {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	delete(l.state.marked, id)
}

// allMarked are the repos that this process knows to be marked.
func (l looks) allMarked() (all []RepoID) {
	l.state.mu.Lock()
	defer l.state.mu.Unlock()
	for _, repo := range l.state.marked {
		all = append(all, repo)
	}
	return all
}
