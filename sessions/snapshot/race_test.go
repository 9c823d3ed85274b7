package snapshot

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/redisdb"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
)

// manyAtOnce saves, starts and ends children, deletes and reaps at once, and checks what
// is left: nothing in use is gone, and all that is kept fits together.
func manyAtOnce(t *testing.T, w *world) {
	t.Helper()
	w.session("s", OID{})
	base := w.save(t, "s", "base")
	if err := w.child(t.Context(), base.Commit, "stays", true); err != nil {
		t.Fatalf("start a child: %v", err)
	}
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 6 {
				got, err := w.trySave(t, snap{SaveSpec: SaveSpec{Session: "s", KeepLast: ptr(2)}, chunks: []string{"base", fmt.Sprint(i, n)}})
				if err != nil && !errors.Is(err, ledger.ErrUnavailable) {
					t.Errorf("save: %v", err)
				}
				if err != nil || n%2 == 0 {
					continue
				}
				if _, err := w.delete(got.Commit); err != nil && !errors.As(err, new(*StateError)) {
					t.Errorf("Delete: %v", err)
				}
			}
		})
	}
	other := w.keeper(w.k.Limits)
	all.Go(func() {
		for range 10 {
			if _, err := other.Reap(t.Context(), w.repo); err != nil {
				t.Errorf("Reap: %v", err)
			}
			_, errBase := w.delete(base.Commit)
			if !errors.As(errBase, new(*InUseError)) {
				t.Errorf("Delete of what is in use: %v", errBase)
			}
		}
	})
	all.Wait()
	w.sound(t)
	if got := w.got(t, base.Commit); got.State != Ready {
		t.Errorf("what is in use is %s", got.State)
	}
}

func TestManyAtOnce(t *testing.T) {
	w := newWorld(t, Limits{})
	manyAtOnce(t, w)
	w.clock.advance(2 * usePatience)
	w.reaped(t)
	w.sound(t)
	if n := len(w.keys(t, keptPrefix("s"))); n > 3 {
		t.Errorf("%d are kept, want the last two and the one in use", n)
	}
}

// The same on the shared engine, with its own clock.
func TestSnapshotsOnRedis(t *testing.T) {
	db, err := redisdb.Open(t.Context(), redistest.Start(t).URL(), redisdb.Options{})
	if err != nil {
		t.Fatalf("redisdb.Open: %v", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	w := worldOn(db, Limits{ReapEvery: 10 * time.Millisecond})
	manyAtOnce(t, w)
	w.session("t", OID{})
	one := w.saveAs(t, snap{SaveSpec: idle("t", 50*time.Millisecond), chunks: []string{"a"}})
	w.save(t, "t", "b")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	grown, err := w.ledger.Watch(ctx, ledger.RepoSpace(w.repo.ID))
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	go func() { done <- w.keeper(w.k.Limits).Run(ctx) }()
	for late := time.After(20 * time.Second); w.got(t, one.Commit).State == Ready; {
		select {
		case <-grown:
		case <-late:
			t.Fatal("it is not reaped")
		}
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want %v", err, context.Canceled)
	}
	w.sound(t)
}
