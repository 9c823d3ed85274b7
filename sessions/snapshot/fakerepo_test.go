package snapshot

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strconv"
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

// A world is one repo with a keeper of its snapshots. Refs and pins are kept in the
// ledger, moved in one batch with what the guard says; objects in memory.
type world struct {
	clock  *testClock // nil on an engine with a clock of its own
	ledger *faultyLedger
	k      *Keeper
	repo   RepoID
	users  *fakeUsers

	mu      sync.Mutex
	objects map[OID]fakeObject
	stages  map[string]*fakeStage
	images  map[OID][]string // the chunks of what tests have saved by hand
}

type fakeObject struct {
	Type string
	Data []byte
}

func newWorld(t testing.TB, limits Limits) *world {
	t.Helper()
	clock := &testClock{now: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)}
	db, err := pebbledb.Open("ledger", pebbledb.Options{FS: vfs.NewMem(), Clock: clock.Now})
	if err != nil {
		t.Fatalf("pebbledb.Open: %v", err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close ledger: %v", err)
		}
	})
	w := worldOn(db, limits)
	w.clock = clock
	return w
}

func worldOn(db ledger.Ledger, limits Limits) *world {
	w := &world{
		ledger: &faultyLedger{Ledger: db}, repo: RepoID{ID: "r1", Org: "acme", Name: "site"},
		objects: map[OID]fakeObject{}, stages: map[string]*fakeStage{}, images: map[OID][]string{},
	}
	w.users = &fakeUsers{w: w, sessions: map[string]*Owner{}, told: map[string]string{}}
	w.k = w.keeper(limits)
	return w
}

// keeper makes one more keeper, as a process that begins would.
func (w *world) keeper(limits Limits) *Keeper {
	k := New(Options{Ledger: w.ledger, Users: w.users, Limits: limits, Logger: slog.New(slog.DiscardHandler), Repos: func(_ RepoID, by Actor) (Repo, error) {
		return w.as(by), nil
	}})
	k.coder = testCoder // one takes more to make than most tests do
	return k
}

var testCoder = NewCoder()

// backend is who works with a token of the customer's own.
func backend() Actor { return Actor{Org: "acme", Subject: "backend", KeyID: "k1"} }

// A fakeRepo is a world as one caller may see and move it.
type fakeRepo struct {
	w        *world
	by       Actor
	mayWrite func(ref string) bool // nil: everything
	canRead  func(ref string) bool
	pinned   map[OID]bool // by others
}

var _ Repo = (*fakeRepo)(nil)

func (w *world) as(by Actor) *fakeRepo { return &fakeRepo{w: w, by: by} }

func (w *world) put(typ string, data []byte) OID {
	id := objectID(typ, data)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.objects[id] = fakeObject{typ, bytes.Clone(data)}
	return id
}

func objectID(typ string, data []byte) OID {
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", typ, len(data))
	h.Write(data)
	return OID(h.Sum(nil))
}

func (r *fakeRepo) ID() RepoID   { return r.w.repo }
func (r *fakeRepo) Actor() Actor { return r.by }

func (r *fakeRepo) stored(id OID) (fakeObject, error) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	o, ok := r.w.objects[id]
	if !ok {
		return o, fmt.Errorf("%w: %s", ErrNoObject, id)
	}
	return o, nil
}

func (r *fakeRepo) Object(_ context.Context, id OID) (string, []byte, error) {
	o, err := r.stored(id)
	if err == nil && objectID(o.Type, o.Data) != id {
		err = fmt.Errorf("%w: %s", ErrDamaged, id)
	}
	return o.Type, bytes.Clone(o.Data), err
}

func (r *fakeRepo) Chunk(_ context.Context, id OID, buf []byte) ([]byte, error) {
	o, err := r.stored(id)
	return append(buf, o.Data...), err
}

func (r *fakeRepo) NewPack(context.Context) (Pack, error) {
	return &fakePack{w: r.w, objects: map[OID]fakeObject{}}, nil
}

func testRefKey(ref string) string { return "ref/" + ref }
func testPinKey(id string) string  { return "pin/" + id }

func (r *fakeRepo) Head(ctx context.Context, ref string) (h Head, err error) {
	got, err := r.w.ledger.ReadKeys(ctx, ledger.RepoSpace(r.w.repo.ID), testRefKey(ref))
	if err == nil && got[0] != nil {
		err = json.Unmarshal(got[0], &h)
	}
	return h, err
}

var errDenied = errors.New("denied by policy")

func (r *fakeRepo) MayWrite(ref string) error {
	if r.mayWrite != nil && !r.mayWrite(ref) || !r.CanRead(ref) {
		return fmt.Errorf("%w: %s", errDenied, ref)
	}
	return nil
}

func (r *fakeRepo) CanRead(ref string) bool { return r.canRead == nil || r.canRead(ref) }

func (r *fakeRepo) Readable(_ context.Context, commit OID) error {
	_, err := r.stored(commit)
	return err
}

var errMoved = errors.New("ref is elsewhere")

func (r *fakeRepo) Move(ctx context.Context, m Move) error {
	for range 100 {
		b, err := r.prepare(ctx, m)
		if err != nil {
			return err
		}
		_, err = r.w.ledger.Apply(ctx, b)
		if isCheck(err) {
			continue
		}
		if p, ok := m.Pack.(*fakePack); ok && err == nil {
			p.register()
		}
		return err
	}
	return fmt.Errorf("move refs: %w", ledger.ErrUnavailable)
}

func (r *fakeRepo) prepare(ctx context.Context, m Move) (ledger.Batch, error) {
	b := ledger.Batch{Space: ledger.RepoSpace(r.w.repo.ID)}
	now, err := r.w.ledger.Now(ctx)
	if err != nil {
		return b, err
	}
	for _, c := range m.Changes {
		key := testRefKey(c.Ref)
		got, err := r.w.ledger.PeekKeys(ctx, b.Space, key)
		if err != nil {
			return b, err
		}
		var h Head
		if got[0] != nil {
			if err := json.Unmarshal(got[0], &h); err != nil {
				return b, err
			}
			b.Checks = append(b.Checks, ledger.Equal(key, got[0]))
		} else {
			b.Checks = append(b.Checks, ledger.Absent(key))
		}
		switch {
		case h.Commit != c.Old:
			return b, fmt.Errorf("%w: %s", errMoved, c.Ref)
		case c.New.IsZero():
			b.Deletes = append(b.Deletes, key)
		default:
			b.Sets = append(b.Sets, ledger.Set{Key: key, Value: mustJSON(Head{Commit: c.New, At: now})})
		}
	}
	a, err := r.w.k.Guard(ctx, GuardRequest{Repo: r.w.repo, Changes: m.Changes, Actor: r.by, Now: now, Intent: m.Intent})
	if err != nil {
		return b, err
	}
	b.Carry(a.Rider)
	for _, p := range m.Pins {
		b.Sets = append(b.Sets, ledger.Set{Key: testPinKey(p.ID), Value: []byte(p.Commit.String())})
	}
	b.Log = logEntry{Type: a.Type, Actor: r.by, Session: a.Session, Data: a.Data}.encode()
	return b, nil
}

func (r *fakeRepo) Unpin(ctx context.Context, id string) error {
	_, err := r.w.ledger.Apply(ctx, ledger.Batch{Space: ledger.RepoSpace(r.w.repo.ID), Deletes: []string{testPinKey(id)}})
	return err
}

func (r *fakeRepo) Pinned(_ context.Context, commit OID) (bool, error) {
	return r.pinned[commit] || r.w.users.isPinned(commit), nil
}

type fakeBundle struct {
	Tip     OID
	Objects map[string]fakeObject
}

// WriteBundle writes all there is: it is for the keeper to say what is asked for.
func (r *fakeRepo) WriteBundle(_ context.Context, w io.Writer, tip OID, _ string) error {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	b := fakeBundle{Tip: tip, Objects: map[string]fakeObject{}}
	for id, o := range r.w.objects {
		b.Objects[id.String()] = o
	}
	return gob.NewEncoder(w).Encode(b)
}

func (r *fakeRepo) ReadBundle(_ context.Context, in io.Reader) (OID, Pack, error) {
	var b fakeBundle
	if err := gob.NewDecoder(in).Decode(&b); err != nil {
		return OID{}, nil, fmt.Errorf("%w: bundle: %w", ErrInvalid, err)
	}
	p := &fakePack{w: r.w, objects: map[OID]fakeObject{}}
	for _, o := range b.Objects {
		p.add(o.Type, o.Data)
	}
	return b.Tip, p, nil
}

// A fakePack is a pack in memory.
type fakePack struct {
	w       *world
	objects map[OID]fakeObject
	bytes   int64
}

func (p *fakePack) add(typ string, data []byte) OID {
	id := objectID(typ, data)
	if _, ok := p.objects[id]; !ok {
		p.objects[id] = fakeObject{typ, bytes.Clone(data)}
		p.bytes += int64(len(data))
	}
	return id
}

func (p *fakePack) AddChunk(content []byte) (OID, error) { return p.add("blob", content), nil }

func (p *fakePack) AddObject(typ string, data []byte) (OID, error) { return p.add(typ, data), nil }

func (p *fakePack) Chunk(id OID, buf []byte) ([]byte, error) {
	o, ok := p.objects[id]
	if !ok {
		return buf, ErrNoObject
	}
	return append(buf, o.Data...), nil
}

func (p *fakePack) Has(id OID) bool { _, ok := p.objects[id]; return ok }
func (p *fakePack) Bytes() int64    { return p.bytes }
func (p *fakePack) Abort()          {}

func (p *fakePack) Finish(context.Context) error {
	for id, o := range p.objects {
		if objectID(o.Type, o.Data) != id {
			return fmt.Errorf("%w: %s", ErrDamaged, id)
		}
	}
	return nil
}

func (p *fakePack) register() {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	maps.Copy(p.w.objects, p.objects)
}

// A fakeStage is a stage in memory.
type fakeStage struct {
	w      *world
	mu     sync.Mutex
	chunks map[Hash]fakeObject
	notes  map[string][]byte
	bytes  int64
}

func (r *fakeRepo) OpenStage(_ context.Context, upload string) (Stage, error) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	if r.w.stages[upload] == nil {
		r.w.stages[upload] = &fakeStage{w: r.w, chunks: map[Hash]fakeObject{}, notes: map[string][]byte{}}
	}
	return r.w.stages[upload], nil
}

func (r *fakeRepo) RemoveStage(_ context.Context, upload string) error {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	delete(r.w.stages, upload)
	return nil
}

func (s *fakeStage) Add(c Chunk, blob []byte) (OID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.chunks[c.Hash]; !ok {
		s.chunks[c.Hash] = fakeObject{"blob", bytes.Clone(blob)}
		s.bytes += int64(len(blob))
	}
	return objectID("blob", s.chunks[c.Hash].Data), nil
}

func (s *fakeStage) Sizes(chunks []Chunk) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sizes := make([]int, len(chunks))
	for i, c := range chunks {
		sizes[i] = len(s.chunks[c.Hash].Data)
	}
	return sizes
}

func (s *fakeStage) Has(chunks []Chunk) []OID {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]OID, len(chunks))
	for i, c := range chunks {
		if o, ok := s.chunks[c.Hash]; ok {
			ids[i] = objectID(o.Type, o.Data)
		}
	}
	return ids
}

func (s *fakeStage) Note(name string, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes[name] = bytes.Clone(data)
	return nil
}

func (s *fakeStage) Notes(_ context.Context, each func(name string, data []byte) error) error {
	s.mu.Lock()
	notes := maps.Clone(s.notes)
	s.mu.Unlock()
	for name, data := range notes {
		if err := each(name, data); err != nil {
			return err
		}
	}
	return nil
}

func (s *fakeStage) Bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

func (s *fakeStage) Pack(context.Context) (Pack, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &fakePack{w: s.w, objects: map[OID]fakeObject{}}
	for _, o := range s.chunks {
		p.add(o.Type, o.Data)
	}
	return p, nil
}

// fakeUsers are sessions that are only what a test says they are. Who uses a snapshot
// stands in the ledger, as it does for sessions.
type fakeUsers struct {
	w        *world
	mu       sync.Mutex
	sessions map[string]*Owner
	told     map[string]string // why a session cannot be restored
	pins     map[OID]bool      // of others
}

var _ Users = (*fakeUsers)(nil)

// session makes a live session with a workspace of one commit.
func (w *world) session(id string, from OID) *Owner {
	tree := w.put("tree", nil)
	head := w.put("commit", []byte("tree "+tree.String()+"\n\nworkspace of "+id+"\n"))
	o := &Owner{ID: id, Ref: "refs/namespaces/ephemeral/refs/heads/sessions/" + id, Head: head, Live: true, From: from}
	w.users.mu.Lock()
	defer w.users.mu.Unlock()
	w.users.sessions[id] = o
	return o
}

// end ends a session.
func (w *world) end(id string) {
	w.users.mu.Lock()
	defer w.users.mu.Unlock()
	w.users.sessions[id].Live, w.users.sessions[id].EndedAt = false, w.clock.Now()
}

func testUseKeys(sha string) (started, freed, prefix string) {
	return "session-from-started/" + sha, "session-from-freed/" + sha, "session-from/" + sha + "/"
}

// child makes, or ends, a session of a snapshot, with what is demanded of that.
func (w *world) child(ctx context.Context, sha OID, id string, live bool, ready ...ledger.Check) error {
	started, freed, prefix := testUseKeys(sha.String())
	now, err := w.ledger.Now(ctx)
	if err != nil {
		return err
	}
	when := []byte(strconv.FormatInt(now.UnixMicro(), 10))
	b := ledger.Batch{Space: ledger.RepoSpace(w.repo.ID), Checks: ready}
	if live {
		b.Sets = []ledger.Set{{Key: started, Value: when}, {Key: prefix + id}}
	} else {
		b.Sets, b.Deletes = []ledger.Set{{Key: freed, Value: when}}, []string{prefix + id}
	}
	_, err = w.ledger.Apply(ctx, b)
	return err
}

func (u *fakeUsers) UsesOf(ctx context.Context, repo RepoID, commits ...string) ([]Use, error) {
	v, err := u.w.ledger.Read(ctx, ledger.RepoSpace(repo.ID))
	if err != nil {
		return nil, err
	}
	defer v.Close()
	uses := make([]Use, len(commits))
	for i, sha := range commits {
		started, freed, prefix := testUseKeys(sha)
		items, err := v.Scan(ctx, prefix, "", 100)
		if err != nil {
			return nil, err
		}
		for _, it := range items {
			uses[i].Sessions = append(uses[i].Sessions, it.Key[len(prefix):])
		}
		got, err := v.GetMany(ctx, started, freed)
		if err != nil {
			return nil, err
		}
		for n, into := range []*time.Time{&uses[i].Started, &uses[i].Freed} {
			if got[n] != nil {
				us, _ := strconv.ParseInt(string(got[n]), 10, 64)
				*into = time.UnixMicro(us).UTC()
			}
		}
		uses[i].Keys = []string{started, freed}
		uses[i].Nobody = []ledger.Check{ledger.AbsentPrefix(prefix), ledger.Absent(started)}
		if got[0] != nil {
			uses[i].Nobody[1] = ledger.Equal(started, got[0])
		}
	}
	return uses, nil
}

func (u *fakeUsers) Session(_ context.Context, repo Repo, id string) (Owner, bool, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	o, ok := u.sessions[id]
	if !ok {
		return Owner{}, false, nil
	}
	got := *o
	if by := repo.Actor(); by.Session != "" && by.Session != id {
		got.Fenced = errDenied
	}
	return got, true, nil
}

func (u *fakeUsers) SetUsable(_ context.Context, _ RepoID, session string, usable bool, why string) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.told, session)
	if !usable {
		u.told[session] = why
	}
	return nil
}

// pin pins a commit for somebody else, or lets go of it.
func (u *fakeUsers) pin(commit OID, keep bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pins == nil {
		u.pins = map[OID]bool{}
	}
	u.pins[commit] = keep
}

func (u *fakeUsers) isPinned(commit OID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.pins[commit]
}

// head is where a ref is.
func (w *world) head(t fataler, ref string) OID {
	t.Helper()
	h, err := w.as(backend()).Head(context.Background(), ref)
	if err != nil {
		t.Fatalf("Head(%s): %v", ref, err)
	}
	return h.Commit
}

// keys are all keys of the repo's space that begin with prefix.
func (w *world) keys(t fataler, prefix string) (keys []string) {
	t.Helper()
	items, err := w.k.reads(w.repo).scan(context.Background(), prefix, "", 100_000)
	if err != nil {
		t.Fatalf("scan(%q): %v", prefix, err)
	}
	for _, it := range items {
		keys = append(keys, it.Key)
	}
	return keys
}

// log is the repo's log.
func (w *world) log(t fataler) (entries []logEntry) {
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
		var entry logEntry
		if err := json.Unmarshal(e.Data, &entry); err != nil {
			t.Fatalf("log entry %d: %v", e.Seq, err)
		}
		entries = append(entries, entry)
	}
	return entries
}
