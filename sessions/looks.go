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
	repo  Repo
	at    time.Time // zero: nothing is due that is known of
	again time.Time // when to look once more, whatever was seen until then; zero: not
}

// applied is how long a batch that is on its way may take until it can be seen.
const applied = 2 * time.Second

func newLooks() *looks {
	return &looks{next: map[string]look{}, sooner: make(chan struct{}, 1)}
}

// note says that repo has to be looked at by then; zero says nothing.
func (l *looks) note(repo Repo, at time.Time) { l.noteAgain(repo, at, time.Time{}) }

// noteAhead is note for what a batch writes that is still to be applied: a look that
// comes before it sees nothing of it.
func (l *looks) noteAhead(repo Repo, at, now time.Time) {
	var again time.Time
	if seen := now.Add(applied); at.Before(seen) {
		again = seen
	}
	l.noteAgain(repo, at, again)
}

func (l *looks) noteAgain(repo Repo, at, again time.Time) {
	if at.IsZero() {
		return
	}
	l.mu.Lock()
	have, ok := l.next[repo.ID]
	again = latest(again, have.again)
	if ok && !have.at.IsZero() && !at.Before(have.at) {
		have.again = again
		l.next[repo.ID] = have
		l.mu.Unlock()
		return
	}
	l.next[repo.ID] = look{repo, at, again}
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
		if !have.again.After(now) {
			delete(l.next, id)
			continue
		}
		have.at = have.again
		l.next[id] = have
		next = earliest(next, have.at)
	}
	return due, next
}
