package redisdb_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/redisdb"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
)

const mendLimit = 20 * time.Second

// raise is what the tests' nodes do to a space that lost writes: as the program does,
// the base grows by more than any resync that was lost had added.
func raise(lost *redisdb.LostWritesError) (ledger.Batch, bool) {
	steps := 1 + max(0, lost.Known.Resyncs-lost.Found.Resyncs)
	return ledger.Batch{Adds: []ledger.Add{{Key: "base", Delta: 100 * steps}}, Log: []byte("resync")}, true
}

func openMending(t testing.TB, url string) *redisdb.DB {
	t.Helper()
	db, err := redisdb.Open(t.Context(), url, redisdb.Options{Resync: raise, Recheck: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("Open(%q) = %v, want a ledger", url, err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// inUse writes what a ledger in use has: the server's space.
func inUse(t *testing.T, db *redisdb.DB) {
	t.Helper()
	applyN(t, db, 1, ledger.Batch{Space: ledger.ServerSpace, Sets: []ledger.Set{{Key: "id", Value: []byte("x")}}})
}

// lose gives the server the data again that restore has kept.
func lose(s *redistest.Server, restore func()) {
	s.Kill()
	restore()
	s.Restart()
}

func keep(s *redistest.Server) (restore func()) {
	s.Kill()
	restore = s.Keep()
	s.Restart()
	return restore
}

// applySoon applies b, however often the space is found behind before.
func applySoon(t fataler, db *redisdb.DB, b ledger.Batch) (r ledger.Result, refused int) {
	t.Helper()
	for deadline := time.Now().Add(mendLimit); ; refused++ {
		r, err := db.Apply(context.Background(), b)
		if err == nil {
			return r, refused
		}
		if !errors.Is(err, ledger.ErrUnavailable) || time.Now().After(deadline) {
			t.Fatalf("Apply to %s that was resynced = %v, want it applied soon", b.Space, err)
		}
		time.Sleep(time.Millisecond)
	}
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A space that lost writes is stopped, then goes on by itself in a new incarnation:
// one of the nodes that remember begins it, the others follow.
func TestDR21_SpaceThatLostWritesGoesOnInANewIncarnation(t *testing.T) {
	const space = ledger.Space("repo/renewed")
	s := redistest.Start(t)
	nodes := make([]*redisdb.DB, 4)
	for i := range nodes {
		nodes[i] = openMending(t, s.URL())
	}
	inUse(t, nodes[0])
	for _, db := range nodes {
		applyN(t, db, 2, logOne(space))
	}
	restore := keep(s)
	last := uint64(8)
	for _, db := range nodes {
		applyN(t, db, 3, logOne(space))
		last += 3
	}
	lose(s, restore)

	results := make([]ledger.Result, len(nodes))
	refused := make([]int, len(nodes))
	var work sync.WaitGroup
	for i, db := range nodes {
		work.Go(func() { results[i], refused[i] = applySoon(t, db, logOne(space)) })
	}
	work.Wait()
	if fmt.Sprint(refused) == "[0 0 0 0]" {
		t.Log("no write was refused: the sweep was first") // it may be, see TestIdleNodeNoticesALoss
	}
	seen := map[uint64]bool{}
	for i, r := range results {
		if r.Seq <= last || seen[r.Seq] {
			t.Errorf("node %d wrote number %d after the loss, want one of its own above %d, which was told before", i, r.Seq, last)
		}
		seen[r.Seq] = true
	}
	if got := get(t, nodes[0], space, "base"); got != "100" {
		t.Errorf("base = %s after one loss that four nodes noticed, want 100: resynced once", got)
	}
	entries, err := read(t, nodes[1], space).Log(t.Context(), last, 100)
	if err != nil || len(entries) != 5 || string(entries[0].Data) != "resync" {
		t.Fatalf("Log(%d) = %d entries %v, %v; want the resync, then four", last, len(entries), entries, err)
	}
	for i, e := range entries {
		if e.Seq != entries[0].Seq+uint64(i) {
			t.Errorf("entry %d behind the resync has number %d, want %d: no gap", i, e.Seq, entries[0].Seq+uint64(i))
		}
	}
	if kept, err := read(t, nodes[2], space).Log(t.Context(), 0, 100); err != nil || len(kept) != 8+5 {
		t.Errorf("Log(0) = %d entries, %v; want the 8 that were not lost and 5", len(kept), err)
	}
	applyN(t, openMending(t, s.URL()), 1, logOne(space)) // a node that was away
}

// A node that remembers more than the one that noticed first raises the numbers again
// only where it must, and a loss of the resync itself never brings a base back.
func TestLostResyncBringsNoBaseBack(t *testing.T) {
	const space = ledger.Space("repo/twice")
	s := redistest.Start(t)
	one, two, three := openMending(t, s.URL()), openMending(t, s.URL()), openMending(t, s.URL())
	inUse(t, one)
	applyN(t, one, 2, logOne(space))
	applyN(t, three, 1, logOne(space))
	restore := keep(s)
	applyN(t, one, 2, logOne(space))
	lose(s, restore)
	first, _ := applySoon(t, one, logOne(space))
	second, _ := applySoon(t, two, logOne(space))
	if got := get(t, two, space, "base"); got != "100" {
		t.Fatalf("base = %s after the first loss, want 100", got)
	}

	lose(s, restore) // as it was before the first resync
	third, _ := applySoon(t, three, logOne(space))
	if third.Seq != 4 {
		t.Errorf("a node that knows of no loss wrote number %d, want 4", third.Seq)
	}
	for _, db := range []*redisdb.DB{two, one} {
		r, _ := applySoon(t, db, logOne(space))
		if r.Seq <= max(first.Seq, second.Seq) {
			t.Errorf("after the second loss a node wrote number %d, want one above %d", r.Seq, max(first.Seq, second.Seq))
		}
	}
	if got := get(t, one, space, "base"); got != "200" && got != "300" {
		t.Errorf("base = %s after the resync was lost, want 200, above the 100 that was told", got)
	}
	before := get(t, one, space, "base")
	applySoon(t, three, logOne(space))
	if got := get(t, one, space, "base"); got != before {
		t.Errorf("base = %s, was %s: a node of an incarnation that this one follows resynced again", got, before)
	}
}

// A Redis without anything is not filled anew, whoever remembers what was there; one
// that has only forgotten a whole space is.
func TestWholeSpaceLost(t *testing.T) {
	const space = ledger.Space("org/young")
	s := redistest.Start(t)
	db := openMending(t, s.URL())
	inUse(t, db)
	restore := keep(s)
	applyN(t, db, 3, logOne(space))
	lose(s, restore)
	r, _ := applySoon(t, db, logOne(space))
	if r.Seq <= 3 {
		t.Errorf("the space that was lost whole goes on with number %d, want one above 3, which was told", r.Seq)
	}
	s.Kill()
	s.Wipe()
	s.Restart()
	for range 20 {
		wantLost(t, db, logOne(space))
		time.Sleep(time.Millisecond)
	}
	if keys := s.Do("--scan", "--pattern", "headgate:*"); keys != "" {
		t.Errorf("keys in the emptied Redis: %q, want none", keys)
	}
}

// A node that only reads notices too, and those who watch the log are told.
func TestReaderNoticesALoss(t *testing.T) {
	const space = ledger.Space("repo/read")
	s := redistest.Start(t)
	writer, reader := openMending(t, s.URL()), openMending(t, s.URL())
	inUse(t, writer)
	applyN(t, writer, 2, logOne(space))
	restore := keep(s)
	applyN(t, writer, 3, logOne(space))
	grown, err := reader.Watch(t.Context(), space)
	if err != nil {
		t.Fatalf("Watch = %v, want a channel", err)
	}
	if got, err := read(t, reader, space).Log(t.Context(), 0, 10); err != nil || len(got) != 5 {
		t.Fatalf("Log = %d entries, %v; want 5", len(got), err)
	}
	_ = writer.Close()
	lose(s, restore)
	after := uint64(5)
	for deadline := time.After(mendLimit); ; {
		select {
		case <-grown:
		case <-deadline:
			t.Fatal("no resync came to who watches the log")
		}
		got, err := read(t, reader, space).Log(t.Context(), after, 10)
		if err == nil && len(got) == 1 && string(got[0].Data) == "resync" && got[0].Seq > after {
			return
		}
		if err == nil && len(got) > 0 {
			t.Fatalf("Log(%d) after a loss = %v, want the resync", after, got)
		}
	}
}

// A node that does nothing with a space notices when it meets the server that took over.
func TestIdleNodeNoticesALoss(t *testing.T) {
	s := redistest.Start(t)
	idle, other := openMending(t, s.URL()), openMending(t, s.URL())
	inUse(t, idle)
	spaces := make([]ledger.Space, 30)
	for i := range spaces {
		spaces[i] = ledger.RepoSpace(fmt.Sprint("idle-", i))
		applyN(t, idle, 1, logOne(spaces[i]))
	}
	restore := keep(s)
	for i := range spaces {
		applyN(t, idle, 1, logOne(spaces[i]))
	}
	lose(s, restore)
	for _, space := range spaces {
		for deadline := time.Now().Add(mendLimit); ; time.Sleep(time.Millisecond) {
			_, _ = idle.Now(t.Context()) // any call meets the new server
			got, err := read(t, other, space).Get(t.Context(), "base")
			if err == nil && string(got) == "100" {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("base of %s = %q, %v; want 100: the idle node remembers", space, got, err)
			}
		}
	}
}

// What is dumped of a space that was resynced has no gap in its log.
func TestResyncedSpaceCanBeDumped(t *testing.T) {
	const space = ledger.Space("repo/dumped")
	s := redistest.Start(t)
	db := openMending(t, s.URL())
	inUse(t, db)
	applyN(t, db, 2, logOne(space))
	restore := keep(s)
	applyN(t, db, 2, logOne(space))
	lose(s, restore)
	applySoon(t, db, logOne(space))
	d, err := db.Dump(t.Context(), space)
	if err != nil {
		t.Fatalf("Dump = %v, want a dump", err)
	}
	defer d.Close()
	if st := d.State(); st.LastSeq != st.Trimmed+2 {
		t.Errorf("dump of %+v, want the resync and what follows it", st)
	}
	if err := ledger.WriteDump(t.Context(), io.Discard, space, d, nil); err != nil {
		t.Errorf("WriteDump of a resynced space = %v, want nil", err)
	}
}

// Whatever is lost and whoever remembers: no node is told a log number twice or
// numbers that run back, and a node that was told more than there is never again
// meets the base it knew.
func TestNoNodeIsToldTwice(t *testing.T) {
	s := redistest.Start(t)
	raw := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer raw.Close()
	inUse(t, openMending(t, s.URL()))
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		run++
		h := &history{rt: rt, raw: raw, space: ledger.Space(fmt.Sprint("repo/model-", run))}
		for range 3 {
			db, err := redisdb.Open(context.Background(), s.URL(), redisdb.Options{Resync: raise, PoolSize: 2, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				rt.Fatalf("Open = %v", err)
			}
			defer db.Close()
			h.nodes = append(h.nodes, &teller{db: db})
		}
		for range rapid.IntRange(3, 25).Draw(rt, "steps") {
			h.step()
		}
		for _, n := range h.nodes {
			h.write(n)
		}
	})
}

// history is a space whose past can come back.
type history struct {
	rt    *rapid.T
	raw   *redis.Client
	space ledger.Space
	nodes []*teller
	kept  []map[string]string // as DUMP gives the keys
}

// teller is a node with what it was told.
type teller struct {
	db      *redisdb.DB
	seq     uint64
	base    int64
	version int64 // of the server's meta
	inc     string
}

func (h *history) step() {
	switch rapid.SampledFrom([]string{"write", "write", "write", "keep", "lose"}).Draw(h.rt, "step") {
	case "write":
		h.write(h.nodes[rapid.IntRange(0, len(h.nodes)-1).Draw(h.rt, "node")])
	case "keep":
		h.kept = append(h.kept, h.dump())
	case "lose":
		if len(h.kept) > 0 {
			h.restore(h.kept[rapid.IntRange(0, len(h.kept)-1).Draw(h.rt, "kept")])
		}
	}
}

func (h *history) keys() []string {
	keys, err := h.raw.Keys(context.Background(), "headgate:{"+string(h.space)+"}:*").Result()
	if err != nil {
		h.rt.Fatalf("KEYS = %v", err)
	}
	return keys
}

func (h *history) dump() map[string]string {
	kept := map[string]string{}
	for _, key := range h.keys() {
		value, err := h.raw.Dump(context.Background(), key).Result()
		if err != nil {
			h.rt.Fatalf("DUMP = %v", err)
		}
		kept[key] = value
	}
	return kept
}

func (h *history) restore(kept map[string]string) {
	ctx := context.Background()
	_, err := h.raw.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for _, key := range h.keys() {
			p.Del(ctx, key)
		}
		for key, value := range kept {
			p.Restore(ctx, key, 0, value)
		}
		return nil
	})
	if err != nil {
		h.rt.Fatalf("RESTORE = %v", err)
	}
}

// behind reports whether what is there is surely not what n was told.
func (h *history) behind(n *teller) bool {
	m, err := h.raw.HGetAll(context.Background(), "headgate:{"+string(h.space)+"}:meta").Result()
	if err != nil {
		h.rt.Fatalf("HGETALL = %v", err)
	}
	version, _ := strconv.ParseInt(m["ver"], 10, 64)
	return n.seq > 0 && m["inc"] == n.inc && version < n.version
}

func (h *history) write(n *teller) {
	behind := h.behind(n)
	r, _ := applySoon(h.rt, n.db, ledger.Batch{Space: h.space, Adds: []ledger.Add{{Key: "n", Delta: 1}}, Log: []byte("x")})
	if r.Seq <= n.seq {
		h.rt.Fatalf("a node was told number %d after %d", r.Seq, n.seq)
	}
	got, err := h.raw.HGet(context.Background(), "headgate:{"+string(h.space)+"}:values", "base").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		h.rt.Fatalf("HGET = %v", err)
	}
	base, _ := strconv.ParseInt(got, 10, 64)
	if base < n.base || behind && base == n.base {
		h.rt.Fatalf("base = %d for a node that was told %d (behind: %t), want it grown over a loss", base, n.base, behind)
	}
	m := h.raw.HMGet(context.Background(), "headgate:{"+string(h.space)+"}:meta", "inc", "ver").Val()
	n.seq, n.base = r.Seq, base
	n.inc, _ = m[0].(string)
	ver, _ := m[1].(string)
	n.version, _ = strconv.ParseInt(ver, 10, 64)
}
