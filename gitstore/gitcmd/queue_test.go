package gitcmd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// waiters waits until n wait for a slot of the queue.
func (q *queue) waiters(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; <-time.After(time.Millisecond) {
		q.mu.Lock()
		got := 0
		for _, s := range q.shares {
			got += len(s.waiting)
		}
		q.mu.Unlock()
		if got == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d wait for a slot, want %d", got, n)
		}
	}
}

// While 100 processes of one org wait, another's takes the next slot that comes
// free, and of two such orgs each in its turn.
func TestG05_OneOrgsQueueDelaysNobodyElse(t *testing.T) {
	const slots, greedy = 4, 100
	r := newRunner(t, Options{MaxProcesses: slots, MaxWait: time.Minute})
	var held []func()
	for range slots {
		release, err := r.acquire(ShareOf(t.Context(), "greedy"))
		if err != nil {
			t.Fatalf("acquire: %v", err)
		}
		held = append(held, release)
	}
	type grant struct {
		who     string
		release func()
	}
	got := make(chan grant)
	var all sync.WaitGroup
	wait := func(who string, waiting int) {
		all.Go(func() {
			release, err := r.acquire(ShareOf(t.Context(), who))
			if err != nil {
				t.Errorf("acquire for %s: %v", who, err)
				release = func() {}
			}
			got <- grant{who, release}
		})
		r.slots.waiters(t, waiting)
	}
	for i := range greedy {
		wait("greedy", i+1)
	}
	wait("modest", greedy+1)
	wait("other", greedy+2)
	for i, want := range []string{"modest", "other"} {
		held[i]()
		g := <-got
		if g.who != want {
			t.Errorf("slot %d that came free went to %s, want %s", i, g.who, want)
		}
		defer g.release()
	}
	for _, release := range held[2:] {
		release()
	}
	for range greedy {
		g := <-got
		g.release()
	}
	all.Wait()
}

// Who gives up waiting takes no slot with it, and nothing is remembered of shares
// that have none.
func TestQueueLosesNoSlot(t *testing.T) {
	r := newRunner(t, Options{MaxProcesses: 2, MaxWait: time.Minute})
	gone := errors.New("gone")
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			ctx, cancel := context.WithCancelCause(ShareOf(t.Context(), fmt.Sprint(i%3)))
			if i%2 == 0 {
				go cancel(gone)
			}
			defer cancel(nil)
			release, err := r.acquire(ctx)
			if err == nil {
				release()
			} else if !errors.Is(err, gone) {
				t.Errorf("acquire = %v, want a slot or the context's cause", err)
			}
		})
	}
	all.Wait()
	if len(r.slots.shares) != 0 || r.slots.free != 2 {
		t.Errorf("%d shares and %d free slots are left, want 0 and 2", len(r.slots.shares), r.slots.free)
	}
}
