package pebbledb

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// A ledger that is being loaded is opened by nobody else until that is finished, and
// only a new one is loaded.
func TestLoadingIsFinishedOrOfNoUse(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ledger")
	open := func(loading bool) (*DB, error) { return Open(dir, Options{Logger: quiet, Loading: loading}) }
	db, err := open(true)
	if err != nil {
		t.Fatalf("Open to load = %v", err)
	}
	at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	if err := db.Load(t.Context(), "s", ledger.Chunk{State: &ledger.State{At: at}}); err != nil {
		t.Fatalf("Load = %v", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for _, loading := range []bool{false, true} {
		if db, err := open(loading); !errors.Is(err, ledger.ErrUnfinished) {
			t.Errorf("Open(loading %v) of a ledger that was not finished = %v, %v; want ErrUnfinished", loading, db, err)
		}
	}
	dir = filepath.Join(t.TempDir(), "ledger")
	if db, err = open(true); err != nil {
		t.Fatal(err)
	}
	if err := db.Load(t.Context(), "s", ledger.Chunk{State: &ledger.State{At: at}}); err != nil {
		t.Fatalf("Load = %v", err)
	}
	if err := errors.Join(db.FinishLoad(t.Context()), db.Close()); err != nil {
		t.Fatalf("finish = %v", err)
	}
	if db, err := open(true); !errors.Is(err, ledger.ErrNotEmpty) {
		t.Errorf("Open to load what is loaded = %v, %v; want ErrNotEmpty", db, err)
	}
	if db, err = open(false); err != nil {
		t.Fatalf("Open of what was loaded = %v", err)
	}
	defer db.Close()
	if now, err := db.Now(t.Context()); err != nil || now.Before(at) {
		t.Errorf("Now() = %s, %v; want not before the loaded %s", now, err, at)
	}
}
