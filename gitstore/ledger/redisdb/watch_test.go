package redisdb_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/redisdb"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
)

func openWatching(t *testing.T, url string, recheck time.Duration) *redisdb.DB {
	t.Helper()
	db, err := redisdb.Open(t.Context(), url, redisdb.Options{Recheck: recheck})
	if err != nil {
		t.Fatalf("Open = %v, want a ledger", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func watch(t *testing.T, db *redisdb.DB, s ledger.Space) <-chan struct{} {
	t.Helper()
	ch, err := db.Watch(t.Context(), s)
	if err != nil {
		t.Fatalf("Watch(%s) = %v, want a channel", s, err)
	}
	return ch
}

func wantWake(t *testing.T, ch <-chan struct{}, why string) {
	t.Helper()
	select {
	case _, ok := <-ch:
		if !ok {
			t.Fatalf("the watch was closed, want a wake-up: %s", why)
		}
	case <-time.After(15 * time.Second):
		t.Fatalf("no wake-up within 15 s: %s", why)
	}
}

// quiet waits until the channel has been silent for a while.
func quiet(ch <-chan struct{}) {
	for {
		select {
		case <-ch:
		case <-time.After(300 * time.Millisecond):
			return
		}
	}
}

func TestWatchAcrossNodes(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	writer, watcher := open(t, c.URL()), openWatching(t, c.URL(), time.Hour)
	spaces := []ledger.Space{"server", "org/a", "repo/1", "repo/2", "repo/3", "repo/4"} // on all nodes
	for _, s := range spaces {
		ch := watch(t, watcher, s)
		wantWake(t, ch, "the subscription was confirmed")
		quiet(ch)
		applyN(t, writer, 1, logOne(s))
		wantWake(t, ch, "another node has written to "+string(s))
	}
}

// What is written while the watching connection is cut wakes when it is back.
func TestWatchAfterACutConnection(t *testing.T) {
	s := redistest.Start(t)
	writer, watcher := open(t, s.URL()), openWatching(t, s.URL(), time.Hour)
	ch := watch(t, watcher, "repo/w")
	wantWake(t, ch, "the subscription was confirmed")
	for range 3 {
		quiet(ch)
		s.Do("client", "kill", "type", "pubsub")
		applyN(t, writer, 1, logOne("repo/w"))
		wantWake(t, ch, "written while the connection was cut")
	}
	quiet(ch)
	s.Restart()
	wantWake(t, ch, "the server was started again")
	quiet(ch)
	applyN(t, writer, 1, logOne("repo/w"))
	wantWake(t, ch, "written after the restart")
}

// A message that is lost although no connection was cut is made up for.
func TestWatchWithoutTheMessage(t *testing.T) {
	s := redistest.Start(t)
	db := openWatching(t, s.URL(), 50*time.Millisecond)
	applyN(t, db, 1, logOne("repo/m"))
	ch := watch(t, db, "repo/m")
	wantWake(t, ch, "the subscription was confirmed")
	quiet(ch)
	s.Do("hincrby", "headgate:{repo/m}:meta", "seq", "1")
	wantWake(t, ch, "the log has grown without a message")
}

func TestWatchEnds(t *testing.T) {
	s := redistest.Start(t)
	db := openWatching(t, s.URL(), time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	first, err := db.Watch(ctx, "repo/x")
	if err != nil {
		t.Fatalf("Watch = %v, want a channel", err)
	}
	second := watch(t, db, "repo/x")
	cancel()
	wantClosed(t, first, "its context has ended")
	quiet(second)
	applyN(t, db, 1, logOne("repo/x"))
	wantWake(t, second, "the other watch of the space goes on")
	if err := db.Close(); err != nil {
		t.Fatalf("Close() = %v, want nil", err)
	}
	wantClosed(t, second, "the ledger is closed")
}

func wantClosed(t *testing.T, ch <-chan struct{}, why string) {
	t.Helper()
	limit := time.After(10 * time.Second)
	for {
		select {
		case _, ok := <-ch:
			if !ok {
				return
			}
		case <-limit:
			t.Fatalf("the watch is open after 10 s, want it closed: %s", why)
		}
	}
}
