package sessions

import (
	"testing"

	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
)

// diskWorld is a world on the embedded engine, on disk.
func diskWorld(b *testing.B) *world {
	b.Helper()
	db, err := pebbledb.Open(b.TempDir(), pebbledb.Options{})
	if err != nil {
		b.Fatalf("pebbledb.Open: %v", err)
	}
	b.Cleanup(func() {
		if err := db.Close(); err != nil {
			b.Errorf("close ledger: %v", err)
		}
	})
	return newWorld(db, Limits{MaxForkN: 1_000, MaxLive: 10_000_000})
}

func BenchmarkCreate(b *testing.B) {
	w := diskWorld(b)
	base := w.commit("", "base")
	for b.Loop() {
		w.session(b, CreateSpec{BaseRef: base})
	}
}

func BenchmarkFork1000(b *testing.B) {
	w := diskWorld(b)
	w.session(b, CreateSpec{ID: "p"})
	for b.Loop() {
		w.fork(b, "p", ForkSpec{N: 1_000})
	}
}

func BenchmarkFork1000WithTokens(b *testing.B) {
	w := diskWorld(b)
	w.session(b, CreateSpec{ID: "p"})
	for b.Loop() {
		w.fork(b, "p", ForkSpec{N: 1_000, Token: &TokenSpec{}})
	}
}

func BenchmarkIssue(b *testing.B) {
	w := diskWorld(b)
	w.session(b, CreateSpec{ID: "p"})
	for b.Loop() {
		w.issue(b, "p", TokenSpec{})
	}
}
