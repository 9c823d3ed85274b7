package redisdb_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
	"github.com/headgate/headgate/gitstore/ledger/redisdb"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
)

var silent = slog.New(slog.DiscardHandler)

// whole is what a ledger holds, as text.
func whole(t *testing.T, b ledger.Bulk) string {
	t.Helper()
	all := map[ledger.Space]string{}
	err := b.Spaces(t.Context(), func(s ledger.Space) error {
		d, err := b.Dump(t.Context(), s)
		if err != nil {
			return err
		}
		defer d.Close()
		var file strings.Builder
		err = ledger.WriteDump(t.Context(), &file, s, d, nil)
		all[s] = file.String()
		return err
	})
	if err != nil {
		t.Fatalf("read the whole ledger: %v", err)
	}
	return fmt.Sprintf("%q", all) // in the order of the spaces
}

func openPebble(t *testing.T, loading bool) *pebbledb.DB {
	t.Helper()
	db, err := pebbledb.Open(filepath.Join(t.TempDir(), "ledger"), pebbledb.Options{Logger: silent, Loading: loading})
	if err != nil {
		t.Fatalf("open pebble: %v", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func openLoading(t *testing.T, url string) *redisdb.DB {
	t.Helper()
	db, err := redisdb.Open(t.Context(), url, redisdb.Options{Logger: silent, Loading: true})
	if err != nil {
		t.Fatalf("open redis to load: %v", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func copied(t *testing.T, from, to ledger.Bulk) {
	t.Helper()
	n := 0
	err := ledger.Copy(t.Context(), from, to, func(ledger.Space) { n++ })
	if err == nil {
		err = to.FinishLoad(t.Context())
	}
	if err != nil || n == 0 {
		t.Fatalf("Copy of %d spaces = %v", n, err)
	}
}

// From one engine to the other and back nothing changes: no key, no number, no time.
func TestCopyThereAndBack(t *testing.T) {
	from := openPebble(t, false)
	for i := range 60 {
		s := ledger.RepoSpace(fmt.Sprint("{", i%7, "}"))
		b := ledger.Batch{Space: s, Adds: []ledger.Add{{Key: "n", Delta: 1}}, Log: fmt.Append(nil, i)}
		for j := range 100 {
			b.Sets = append(b.Sets, ledger.Set{Key: fmt.Sprintf("\x00%d/%d\xff", i, j), Value: []byte(strings.Repeat("v", i*j%700))})
		}
		if _, err := from.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if err := from.TrimLog(t.Context(), ledger.RepoSpace("{1}"), 3); err != nil {
		t.Fatal(err)
	}
	want := whole(t, from)
	redis := openLoading(t, redistest.Start(t).URL())
	copied(t, from, redis)
	if got := whole(t, redis); got != want {
		t.Errorf("redis after the copy = %d bytes, want the same as pebble's %d", len(got), len(want))
	}
	back := openPebble(t, true)
	copied(t, redis, back)
	if got := whole(t, back); got != want {
		t.Errorf("pebble after the copy back = %d bytes, want the same as the first's %d", len(got), len(want))
	}
}

func TestLoadingIsFinishedOrOfNoUse(t *testing.T) {
	server := redistest.Start(t)
	db := openLoading(t, server.URL())
	if err := db.Load(t.Context(), "s", ledger.Chunk{State: &ledger.State{At: time.Now()}}); err != nil {
		t.Fatalf("Load = %v", err)
	}
	for _, loading := range []bool{false, true} {
		if _, err := redisdb.Open(t.Context(), server.URL(), redisdb.Options{Logger: silent, Loading: loading}); !errors.Is(err, ledger.ErrUnfinished) {
			t.Errorf("Open(loading %v) beside one that loads = %v, want ErrUnfinished", loading, err)
		}
	}
	if err := db.FinishLoad(t.Context()); err != nil {
		t.Fatalf("FinishLoad = %v", err)
	}
	open(t, server.URL())
	if _, err := redisdb.Open(t.Context(), server.URL(), redisdb.Options{Logger: silent, Loading: true}); !errors.Is(err, ledger.ErrNotEmpty) {
		t.Errorf("Open to load what is loaded = %v, want ErrNotEmpty", err)
	}
}

// What a loading that failed has left is taken away, also of a space that was not
// finished: the next one begins with nothing.
func TestClearLoad(t *testing.T) {
	server := redistest.Start(t)
	db := openLoading(t, server.URL())
	half := ledger.Chunk{Items: []ledger.Item{{Key: "stale", Value: []byte("v")}}, Log: []ledger.Entry{{Seq: 1, At: time.Now(), Data: []byte("l")}}}
	if err := errors.Join(db.Load(t.Context(), "half", half), db.Load(t.Context(), "whole", ledger.Chunk{State: &ledger.State{At: time.Now()}})); err != nil {
		t.Fatalf("Load = %v", err)
	}
	if err := db.ClearLoad(t.Context()); err != nil {
		t.Fatalf("ClearLoad = %v", err)
	}
	if keys := server.Do("KEYS", "*"); keys != "" {
		t.Errorf("redis holds %q, want nothing", keys)
	}
	openLoading(t, server.URL())
	server.Do("DEL", "headgate:loading")
	if err := open(t, server.URL()).ClearLoad(t.Context()); !errors.Is(err, ledger.ErrNotEmpty) {
		t.Errorf("ClearLoad of a ledger in use = %v, want it refused", err)
	}
}

// A node that knew the space writes no more to what was loaded in its place.
func TestLoadedSpaceIsANewIncarnation(t *testing.T) {
	server := redistest.Start(t)
	node := open(t, server.URL())
	r, err := node.Apply(t.Context(), logOne("s"))
	if err != nil {
		t.Fatal(err)
	}
	server.Do("FLUSHALL")
	db := openLoading(t, server.URL())
	err = db.Load(t.Context(), "s", ledger.Chunk{Log: []ledger.Entry{{Seq: 1, At: r.At, Data: []byte("entry")}}, State: &ledger.State{LastSeq: 1, At: r.At}})
	if err == nil {
		err = db.FinishLoad(t.Context())
	}
	if err != nil {
		t.Fatalf("load = %v", err)
	}
	wantLost(t, node, logOne("s"))
	if r, err := open(t, server.URL()).Apply(t.Context(), logOne("s")); err != nil || r.Seq != 2 {
		t.Errorf("Apply of a new node = %+v, %v; want number 2", r, err)
	}
}

// A dump whose process died holds the space for a while only, and is then over for
// good; one that is read slowly is held on.
func TestHoldRunsOut(t *testing.T) {
	server := redistest.Start(t)
	short := func() *redisdb.DB {
		t.Helper()
		db, err := redisdb.Open(t.Context(), server.URL(), redisdb.Options{Logger: silent, Hold: 80 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	db := short()
	dump := func(db *redisdb.DB) ledger.Dump {
		t.Helper()
		d, err := db.Dump(t.Context(), "s")
		if err != nil {
			t.Fatalf("Dump = %v", err)
		}
		return d
	}
	set := func() {
		t.Helper()
		if _, err := db.Apply(t.Context(), ledger.Batch{Space: "s", Adds: []ledger.Add{{Key: "k", Delta: 1}}}); err != nil {
			t.Fatal(err)
		}
	}
	set()
	slow := dump(db)
	until := func() string { return server.Do("HGET", "headgate:{s}:meta", "until") }
	for first, end := until(), time.Now().Add(20*time.Second); until() == first; {
		if time.Now().After(end) {
			t.Fatal("a dump that is not read is not held on")
		}
	}
	set()
	if items, _, err := slow.Items(t.Context(), ""); err != nil || len(items) != 1 || string(items[0].Value) != "1" {
		t.Errorf("Items of a dump that is read late = %v, %v; want k at 1", items, err)
	}
	if err := slow.Close(); err != nil {
		t.Fatal(err)
	}
	if keys := server.Do("KEYS", "headgate:*before*"); keys != "" {
		t.Errorf("after its end the dump leaves %q", keys)
	}

	dying := short()
	dump(dying)
	set() // what stood there is kept
	if err := dying.Close(); err != nil {
		t.Fatal(err)
	}
	next := dump(db) // waits for the first to run out
	if items, _, err := next.Items(t.Context(), ""); err != nil || len(items) != 1 || string(items[0].Value) != "3" {
		t.Errorf("Items of the next dump = %v, %v; want k at 3", items, err)
	}
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	// One that nobody followed is cleared away by a write after its time.
	dying = short()
	dump(dying)
	if err := dying.Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; {
		set()
		if server.Do("EXISTS", "headgate:{s}:before") == "0" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("what a dump kept is never cleared away")
		}
	}
}

// A hold that was taken over ends the dump that had it.
func TestHoldThatIsLost(t *testing.T) {
	server := redistest.Start(t)
	db := open(t, server.URL())
	if _, err := db.Apply(t.Context(), logOne("s")); err != nil {
		t.Fatal(err)
	}
	d, err := db.Dump(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	server.Do("HSET", "headgate:{s}:meta", "hold", "other 1 1 0")
	if _, _, err := d.Items(t.Context(), ""); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("Items = %v, want ErrUnavailable", err)
	}
	if _, err := d.Log(t.Context(), 0); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("Log = %v, want ErrUnavailable", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if hold := server.Do("HGET", "headgate:{s}:meta", "hold"); hold != "other 1 1 0" {
		t.Errorf("Close of the lost one leaves the hold at %q, want the other's", hold)
	}
}

// With full memory what only deletes goes on under a dump, which is given up.
func TestDumpWithFullMemory(t *testing.T) {
	server := redistest.Start(t)
	db := open(t, server.URL())
	if _, err := db.Apply(t.Context(), ledger.Batch{Space: "s", Sets: []ledger.Set{{Key: "k", Value: []byte("v")}, {Key: "l", Value: []byte("v")}}}); err != nil {
		t.Fatal(err)
	}
	d, err := db.Dump(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	server.Do("CONFIG", "SET", "maxmemory", "1")
	if _, err := db.Apply(t.Context(), ledger.Batch{Space: "s", Sets: []ledger.Set{{Key: "m", Value: []byte("v")}}}); !errors.Is(err, ledger.ErrNoSpace) {
		t.Errorf("a batch that sets = %v, want ErrNoSpace", err)
	}
	if _, _, err := d.Items(t.Context(), ""); errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("the dump before anything changes = %v", err)
	}
	if _, err := db.Apply(t.Context(), ledger.Batch{Space: "s", Deletes: []string{"k"}}); err != nil {
		t.Errorf("a batch that deletes = %v, want it applied", err)
	}
	server.Do("CONFIG", "SET", "maxmemory", "0")
	if items, _, err := d.Items(t.Context(), ""); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("Items of a dump that was given up = %v, %v; want ErrUnavailable", items, err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	if v, err := db.ReadKeys(context.Background(), "s", "k", "l"); err != nil || v[0] != nil || v[1] == nil {
		t.Errorf("keys = %q, %v", v, err)
	}
}
