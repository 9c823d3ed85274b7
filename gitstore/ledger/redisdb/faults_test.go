package redisdb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/redisdb"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
)

// fillMemory writes until the server refuses and returns the key that was refused.
func fillMemory(t *testing.T, db *redisdb.DB, s ledger.Space) (last int) {
	t.Helper()
	value := bytes.Repeat([]byte("x"), 64<<10)
	for i := range 1000 {
		_, err := db.Apply(t.Context(), ledger.Batch{
			Space: s, Log: []byte("l"),
			Sets: []ledger.Set{{Key: fmt.Sprintf("k%03d", i), Value: value}},
		})
		if errors.Is(err, ledger.ErrNoSpace) {
			return i
		}
		if err != nil {
			t.Fatalf("Apply %d = %v, want it applied or ErrNoSpace", i, err)
		}
	}
	t.Fatal("64 MiB went into 10 MiB of memory")
	return 0
}

func TestFullMemoryIsNoSpace(t *testing.T) {
	s := redistest.Start(t, "--maxmemory", "10mb", "--maxmemory-policy", "noeviction")
	db := open(t, s.URL())
	const space = ledger.Space("repo/full")
	n := fillMemory(t, db, space)
	v := read(t, db, space)
	if seq, err := v.LastSeq(t.Context()); err != nil || seq != uint64(n) {
		t.Fatalf("LastSeq() = %d, %v; want %d: the refused batch left nothing", seq, err, n)
	}
	items, err := v.Scan(t.Context(), "k", "", 1000)
	if err != nil || len(items) != n {
		t.Fatalf("Scan on full memory = %d items, %v; want %d", len(items), err, n)
	}
	both := ledger.Batch{Space: space, Deletes: []string{"k000"}, Sets: []ledger.Set{{Key: "new", Value: make([]byte, 1<<20)}}}
	if _, err := db.Apply(t.Context(), both); !errors.Is(err, ledger.ErrNoSpace) {
		t.Fatalf("Apply that deletes and sets on full memory = %v, want ErrNoSpace", err)
	}
	if _, err := v.Get(t.Context(), "k000"); err != nil {
		t.Fatalf("Get of a key whose deletion was refused = %v, want it there", err)
	}
	room := ledger.Batch{Space: space, Log: []byte("room")}
	for i := range n / 2 {
		room.Deletes = append(room.Deletes, fmt.Sprintf("k%03d", i))
	}
	if _, err := db.Apply(t.Context(), room); err != nil {
		t.Fatalf("Apply that only deletes on full memory = %v, want it applied", err)
	}
	if _, err := db.Apply(t.Context(), ledger.Batch{Space: space, Sets: []ledger.Set{{Key: "new", Value: []byte("v")}}}); err != nil {
		t.Fatalf("Apply after room was made = %v, want it applied", err)
	}
}

// calls are the ledger's methods that ask the server.
func calls(db *redisdb.DB, s ledger.Space) map[string]func(context.Context) error {
	view := func(f func(context.Context, ledger.View) error) func(context.Context) error {
		return func(ctx context.Context) error {
			v, err := db.Read(ctx, s)
			if err != nil {
				return err
			}
			return f(ctx, v)
		}
	}
	return map[string]func(context.Context) error{
		"Apply": func(ctx context.Context) error {
			_, err := db.Apply(ctx, ledger.Batch{Space: s, Sets: []ledger.Set{{Key: "k", Value: []byte("v")}}})
			return err
		},
		"Get":     view(func(ctx context.Context, v ledger.View) error { _, err := v.Get(ctx, "k"); return err }),
		"GetMany": view(func(ctx context.Context, v ledger.View) error { _, err := v.GetMany(ctx, "k"); return err }),
		"Scan":    view(func(ctx context.Context, v ledger.View) error { _, err := v.Scan(ctx, "", "", 1); return err }),
		"Range":   view(func(ctx context.Context, v ledger.View) error { _, err := v.Range(ctx, "", "z", 1); return err }),
		"Log":     view(func(ctx context.Context, v ledger.View) error { _, err := v.Log(ctx, 0, 1); return err }),
		"LastSeq": view(func(ctx context.Context, v ledger.View) error { _, err := v.LastSeq(ctx); return err }),
		"TrimLog": func(ctx context.Context) error { return db.TrimLog(ctx, s, 1) },
		"Drop":    func(ctx context.Context) error { return db.Drop(ctx, s+"-other") },
		"Now":     func(ctx context.Context) error { _, err := db.Now(ctx); return err },
	}
}

func TestCase13_4_UnreachableRedisIsToldWithinTwoSeconds(t *testing.T) {
	s := redistest.Start(t)
	db := open(t, s.URL())
	all := calls(db, "repo/away")
	for _, state := range []struct {
		name      string
		off, back func()
	}{
		{"stopped", s.Kill, s.Restart},
		{"hung", s.Pause, s.Resume},
	} {
		if err := all["Apply"](t.Context()); err != nil {
			t.Fatalf("Apply = %v, want it applied", err)
		}
		state.off()
		delete(all, "Now") // it is reckoned for a moment
		var work sync.WaitGroup
		for name, call := range all {
			work.Go(func() {
				began := time.Now()
				err := call(t.Context())
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("%s on a %s server took %s, want it at once", name, state.name, took)
				}
				if !errors.Is(err, ledger.ErrUnavailable) {
					t.Errorf("%s on a %s server = %v, want ErrUnavailable", name, state.name, err)
				}
			})
		}
		work.Wait()
		state.back()
		for name, call := range all {
			if err := call(t.Context()); err != nil {
				t.Errorf("%s after the server is back = %v, want it to work", name, err)
			}
		}
	}
}

func TestReadOnlyServerIsUnavailable(t *testing.T) {
	s := redistest.Start(t)
	db := open(t, s.URL())
	all := calls(db, "repo/replica")
	if err := all["Apply"](t.Context()); err != nil {
		t.Fatalf("Apply = %v, want it applied", err)
	}
	s.Do("replicaof", "127.0.0.1", "1")
	if err := all["Apply"](t.Context()); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("Apply on a replica = %v, want ErrUnavailable", err)
	}
	s.Do("replicaof", "no", "one")
	if err := all["Apply"](t.Context()); err != nil {
		t.Errorf("Apply on a master again = %v, want it applied", err)
	}
}

func TestContextErrorsAreKept(t *testing.T) {
	s := redistest.Start(t)
	db := open(t, s.URL())
	if err := calls(db, "repo/ctx")["Apply"](t.Context()); err != nil {
		t.Fatalf("Apply = %v, want it applied", err)
	}
	s.Pause()
	defer s.Resume()
	for name, call := range calls(db, "repo/ctx") {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		err := call(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ledger.ErrUnavailable) {
			t.Errorf("%s past its deadline = %v, want the context's error alone", name, err)
		}
	}
}

func TestClusterWithoutOneNode(t *testing.T) {
	c := redistest.StartCluster(t)
	db := open(t, c.URL())
	spaces := make([]ledger.Space, 12) // of 12 spaces some are on each node
	for i := range spaces {
		spaces[i] = ledger.RepoSpace(fmt.Sprint(i))
		if err := calls(db, spaces[i])["Apply"](t.Context()); err != nil {
			t.Fatalf("Apply = %v, want it applied", err)
		}
	}
	c.Nodes[1].Kill()
	refused := 0
	for _, s := range spaces {
		began := time.Now()
		err := calls(db, s)["Apply"](t.Context())
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("Apply to %s took %s, want it at once", s, took)
		}
		if errors.Is(err, ledger.ErrUnavailable) {
			refused++
		} else if err != nil {
			t.Errorf("Apply to %s = %v, want it applied or ErrUnavailable", s, err)
		}
	}
	if refused == 0 {
		t.Error("no space was unavailable with a third of the slots gone")
	}
	c.Nodes[1].Restart()
	c.WaitOK(t)
	for _, s := range spaces {
		if err := calls(db, s)["Apply"](t.Context()); err != nil {
			t.Errorf("Apply to %s after the node is back = %v, want it applied", s, err)
		}
	}
}

func TestOpenLooksAtDurability(t *testing.T) {
	s := redistest.Start(t, "--appendfsync", "everysec", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	var log bytes.Buffer
	o := redisdb.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	db, err := redisdb.Open(t.Context(), s.URL(), o)
	if err != nil {
		t.Fatalf("Open = %v, want a ledger and a warning", err)
	}
	_ = db.Close()
	for _, word := range []string{"level=WARN", "appendfsync", "everysec", "allkeys-lru"} {
		if !strings.Contains(log.String(), word) {
			t.Errorf("the warning is %q, want %q in it", log.String(), word)
		}
	}
	o.RequireDurable = true
	if _, err := redisdb.Open(t.Context(), s.URL(), o); !errors.Is(err, redisdb.ErrNotDurable) {
		t.Errorf("Open with RequireDurable = %v, want ErrNotDurable", err)
	}
	s.Kill()
	if _, err := redisdb.Open(t.Context(), s.URL(), o); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("Open of a stopped server = %v, want ErrUnavailable", err)
	}
}

func TestPassword(t *testing.T) {
	s := redistest.Start(t)
	s.Do("config", "set", "requirepass", "pass@word")
	with := func(userinfo string) string { return strings.Replace(s.URL(), "redis://", "redis://"+userinfo+"@", 1) }
	db := open(t, with(":pass%40word"))
	if err := calls(db, "repo/auth")["Apply"](t.Context()); err != nil {
		t.Errorf("Apply with the right password = %v, want it applied", err)
	}
	for _, url := range []string{s.URL(), with(":wrong-word")} {
		_, err := redisdb.Open(t.Context(), url, redisdb.Options{})
		if !errors.Is(err, ledger.ErrUnavailable) || strings.Contains(err.Error(), "wrong-word") {
			t.Errorf("Open without the right password = %v, want ErrUnavailable that does not tell the password", err)
		}
	}
}
