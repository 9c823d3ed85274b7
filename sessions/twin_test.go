package sessions

import (
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// twin is a second node on the ledger of w: a keeper and a door of its own. Commits
// are made before both are used at once.
func twin(w *world) *world {
	o := &world{clock: w.clock, ledger: w.ledger, repo: w.repo, parents: w.parents}
	o.k = New(Options{Ledger: w.ledger, Limits: w.k.Limits, Doors: func(_ Repo, by Actor) (Door, error) {
		return o.door(by), nil
	}})
	return o
}

// until waits for what a change of the log brings about.
func until(t testing.TB, w *world, what string, is func() bool) {
	t.Helper()
	grown, err := w.ledger.Watch(t.Context(), ledger.RepoSpace(w.repo.ID))
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	for !is() {
		select {
		case <-grown:
		case <-late.C:
			t.Fatalf("waited too long until %s", what)
		}
	}
}
