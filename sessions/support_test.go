package sessions

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
)

// testClock is a clock that only moves when it is told to.
type testClock struct {
	mu  sync.Mutex
	now time.Time
}

func newTestClock() *testClock {
	return &testClock{now: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)}
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *testClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// faultyLedger is a ledger whose Apply can be made to fail, or to wait.
type faultyLedger struct {
	ledger.Ledger
	mu     sync.Mutex
	before func(ledger.Batch) error // nil: nothing
}

func (f *faultyLedger) beforeApply(fn func(ledger.Batch) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = fn
}

func (f *faultyLedger) Apply(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
	f.mu.Lock()
	before := f.before
	f.mu.Unlock()
	if before != nil {
		if err := before(b); err != nil {
			return ledger.Result{}, err
		}
	}
	return f.Ledger.Apply(ctx, b)
}

// fataler is a test, rapid's or the standard library's.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A world is one repo with a keeper of its sessions, and a door that stands in for
// the store's: refs are kept in the ledger, moved in one batch with what the guard says.
type world struct {
	clock  *testClock // nil on an engine with a clock of its own
	ledger *faultyLedger
	k      *Keeper
	repo   Repo

	mu      sync.Mutex
	parents map[string]string // of every commit
}

// testLimits are small enough to be met.
var testLimits = Limits{MaxForkN: 8, MaxLive: 2_000}

// pebbleWorld is a world on the embedded engine, in memory.
func pebbleWorld(t testing.TB, limits Limits) *world {
	t.Helper()
	clock := newTestClock()
	db, err := pebbledb.Open("ledger", pebbledb.Options{FS: vfs.NewMem(), Clock: clock.Now})
	if err != nil {
		t.Fatalf("pebbledb.Open: %v", err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close ledger: %v", err)
		}
	})
	w := newWorld(db, limits)
	w.clock = clock
	return w
}

func newWorld(db ledger.Ledger, limits Limits) *world {
	w := &world{
		ledger:  &faultyLedger{Ledger: db},
		repo:    Repo{ID: "r1", Org: "acme", Name: "site"},
		parents: map[string]string{},
	}
	w.k = New(Options{Ledger: w.ledger, Limits: limits, Doors: func(_ Repo, by Actor) (Door, error) {
		return w.door(by), nil
	}})
	return w
}

// commit makes a commit upon parent; an empty one begins a history.
func (w *world) commit(parent, content string) string {
	sum := sha1.Sum([]byte(parent + "\x00" + content))
	sha := hex.EncodeToString(sum[:])
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parents[sha] = parent
	return sha
}

func (w *world) descends(older, newer string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for newer != "" && newer != older {
		newer = w.parents[newer]
	}
	return newer == older
}

var (
	errNotForward = errors.New("not a fast-forward")
	errMoved      = errors.New("ref is elsewhere")
	errDenied     = errors.New("denied by policy")
)

// backend is who works on sessions with a token of the customer's own.
func backend() Actor { return Actor{Org: "acme", Subject: "backend", KeyID: "k1"} }

// A testDoor is a world as one caller may see and move it.
type testDoor struct {
	w        *world
	by       Actor
	mayWrite func(ref string) bool // nil: everything
	canRead  func(ref string) bool
	pinned   map[string]bool
}

var _ Door = (*testDoor)(nil)

func (w *world) door(by Actor) *testDoor { return &testDoor{w: w, by: by} }

func testRefKey(ref string) string { return "ref/" + ref }

func testPinKey(id string) string { return "pin/" + id }

func (d *testDoor) Resolve(ctx context.Context, rev string, ephemeral bool) (string, error) {
	d.w.mu.Lock()
	_, known := d.w.parents[rev]
	d.w.mu.Unlock()
	if known {
		return rev, nil
	}
	ref := "refs/heads/" + rev
	if ephemeral {
		ref = ephemeralPrefix + rev
	}
	heads, err := d.Heads(ctx, ref)
	if err != nil {
		return "", err
	}
	if heads[0].SHA == "" || !d.CanRead(ref) {
		return "", fmt.Errorf("%w: no commit %s", ErrNotFound, rev)
	}
	return heads[0].SHA, nil
}

func (d *testDoor) Heads(ctx context.Context, refs ...string) ([]Head, error) {
	return d.heads(ctx, d.w.ledger.ReadKeys, refs)
}

func (d *testDoor) heads(ctx context.Context, read func(context.Context, ledger.Space, ...string) ([][]byte, error), refs []string) ([]Head, error) {
	keys := make([]string, len(refs))
	for i, ref := range refs {
		keys[i] = testRefKey(ref)
	}
	if len(keys) == 0 {
		return nil, nil
	}
	got, err := read(ctx, ledger.RepoSpace(d.w.repo.ID), keys...)
	if err != nil {
		return nil, err
	}
	heads := make([]Head, len(refs))
	for i, raw := range got {
		if raw != nil {
			if err := json.Unmarshal(raw, &heads[i]); err != nil {
				return nil, err
			}
		}
	}
	return heads, nil
}

func (d *testDoor) MayWrite(ref string) error {
	if d.mayWrite != nil && !d.mayWrite(ref) || !d.CanRead(ref) {
		return fmt.Errorf("%w: %s", errDenied, ref)
	}
	return nil
}

func (d *testDoor) CanRead(ref string) bool { return d.canRead == nil || d.canRead(ref) }

func (d *testDoor) Move(ctx context.Context, m Move) error {
	for range 100 {
		b, err := d.prepare(ctx, m)
		if err != nil {
			return err
		}
		_, err = d.w.ledger.Apply(ctx, b)
		var check *ledger.CheckError
		if !errors.As(err, &check) {
			return err
		}
	}
	return fmt.Errorf("move refs: %w", ledger.ErrUnavailable)
}

func (d *testDoor) prepare(ctx context.Context, m Move) (ledger.Batch, error) {
	b := ledger.Batch{Space: ledger.RepoSpace(d.w.repo.ID)}
	now, err := d.w.ledger.Now(ctx)
	if err != nil {
		return b, err
	}
	refs := make([]string, len(m.Changes))
	for i, c := range m.Changes {
		refs[i] = c.Ref
	}
	heads, err := d.heads(ctx, d.w.ledger.PeekKeys, refs)
	if err != nil {
		return b, err
	}
	for i, c := range m.Changes {
		if err := d.move(&b, c, heads[i], now); err != nil {
			return b, err
		}
	}
	a, err := d.w.k.Guard(ctx, GuardRequest{Repo: d.w.repo, Changes: m.Changes, Actor: d.by, Now: now, Intent: m.Intent})
	if err != nil {
		return b, err
	}
	b.Carry(a.Rider)
	for _, p := range m.Pins {
		b.Sets = append(b.Sets, ledger.Set{Key: testPinKey(p.ID), Value: []byte(p.SHA)})
	}
	b.Log, err = testEntry(a, d.by, m.Changes)
	return b, err
}

func (d *testDoor) move(b *ledger.Batch, c Change, head Head, now time.Time) error {
	switch {
	case head.SHA != c.Old:
		return fmt.Errorf("%w: %s", errMoved, c.Ref)
	case c.Old == "":
		b.Checks = append(b.Checks, ledger.Absent(testRefKey(c.Ref)))
	default:
		b.Checks = append(b.Checks, ledger.Equal(testRefKey(c.Ref), mustJSON(head)))
	}
	if c.Old == c.New {
		return nil
	}
	if err := d.MayWrite(c.Ref); err != nil {
		return err
	}
	if c.New == "" {
		b.Deletes = append(b.Deletes, testRefKey(c.Ref))
		return nil
	}
	if c.Old != "" && !d.w.descends(c.Old, c.New) {
		return fmt.Errorf("%w: %s", errNotForward, c.Ref)
	}
	b.Sets = append(b.Sets, ledger.Set{Key: testRefKey(c.Ref), Value: mustJSON(Head{SHA: c.New, At: now, Writer: d.by.Subject})})
	return nil
}

// testLogEntry is what the log holds.
type testLogEntry struct {
	Type    string          `json:"type"`
	Actor   Actor           `json:"actor"`
	Changes []testChange    `json:"changes"`
	Session string          `json:"session,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

type testChange struct {
	Ref     string `json:"ref"`
	Old     string `json:"old_sha"`
	New     string `json:"new_sha"`
	Session string `json:"session,omitempty"`
}

func testEntry(a GuardAnswer, by Actor, changes []Change) ([]byte, error) {
	e := testLogEntry{Type: a.Type, Actor: by, Session: a.Session, Data: a.Data}
	if e.Type == "" {
		e.Type = "ref.updated"
	}
	for i, c := range changes {
		if c.Old != c.New {
			e.Changes = append(e.Changes, testChange{c.Ref, c.Old, c.New, a.Sessions[i]})
		}
	}
	if len(e.Changes) == 0 {
		return nil, nil
	}
	return json.Marshal(e)
}

func (d *testDoor) Pinned(_ context.Context, sha string) (bool, error) { return d.pinned[sha], nil }

func (d *testDoor) Unpin(ctx context.Context, id string) error {
	_, err := d.w.ledger.Apply(ctx, ledger.Batch{Space: ledger.RepoSpace(d.w.repo.ID), Deletes: []string{testPinKey(id)}})
	return err
}

func (d *testDoor) Frees(context.Context, string) (int64, error) { return 4_096, nil }

// head is where a ref is; empty: there is none.
func (w *world) head(t fataler, ref string) string {
	t.Helper()
	heads, err := w.door(backend()).Heads(context.Background(), ref)
	if err != nil {
		t.Fatalf("Heads(%s): %v", ref, err)
	}
	return heads[0].SHA
}

// pins are the ids of all pins.
func (w *world) pins(t fataler) (ids []string) {
	t.Helper()
	for _, key := range w.keys(t, "pin/") {
		ids = append(ids, strings.TrimPrefix(key, "pin/"))
	}
	return ids
}

// keys are all keys of the repo's space that begin with prefix.
func (w *world) keys(t fataler, prefix string) (keys []string) {
	t.Helper()
	v, err := w.ledger.Read(context.Background(), ledger.RepoSpace(w.repo.ID))
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	defer v.Close()
	items, err := v.Scan(context.Background(), prefix, "", 100_000)
	if err != nil {
		t.Fatalf("Scan(%q): %v", prefix, err)
	}
	for _, it := range items {
		keys = append(keys, it.Key)
	}
	return keys
}

// log is the repo's log.
func (w *world) log(t fataler) (entries []testLogEntry) {
	t.Helper()
	v, err := w.ledger.Read(context.Background(), ledger.RepoSpace(w.repo.ID))
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	defer v.Close()
	all, err := v.Log(context.Background(), 0, 100_000)
	if err != nil {
		t.Fatalf("Log: %v", err)
	}
	for _, e := range all {
		var entry testLogEntry
		if err := json.Unmarshal(e.Data, &entry); err != nil {
			t.Fatalf("log entry %d: %v", e.Seq, err)
		}
		entries = append(entries, entry)
	}
	return entries
}

// write moves a session's branch by a new commit, as a push of by's would.
func (w *world) write(t fataler, by Actor, ref, content string) (sha string, err error) {
	t.Helper()
	old := w.head(t, ref)
	sha = w.commit(old, content)
	return sha, w.door(by).Move(context.Background(), Move{Changes: []Change{{Ref: ref, Old: old, New: sha}}})
}
