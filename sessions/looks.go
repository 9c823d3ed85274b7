package sessions

import (
	"sync"
	"time"
)

// looks remembers when each repo is to be looked at next, as far as this process knows.
type looks struct {
	mu   sync.Mutex // over all below
	next map[string]look
	// sooner gets a value when something earlier than before was noted.
	sooner chan struct{}
}

type look struct {
	repo Repo
	at   time.Time // zero: nothing is due that is known of
}

func newLooks() *looks {
	return &looks{next: map[string]look{}, sooner: make(chan struct{}, 1)}
}

// note says that repo has to be looked at by then; zero says nothing.
func (l *looks) note(repo Repo, at time.Time) {
	if at.IsZero() {
		return
	}
	l.mu.Lock()
	have, ok := l.next[repo.ID]
	if ok && !have.at.IsZero() && !at.Before(have.at) {
		l.mu.Unlock()
		return
	}
	l.next[repo.ID] = look{repo, at}
	l.mu.Unlock()
	select {
	case l.sooner <- struct{}{}:
	default:
	}
}

// take gives the repos that are due, and when the first of the others is; zero: never.
func (l *looks) take(now time.Time) (due []Repo, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, have := range l.next {
		if have.at.After(now) {
			next = earliest(next, have.at)
			continue
		}
		due = append(due, have.repo)
		delete(l.next, id)
	}
	return due, next
}
