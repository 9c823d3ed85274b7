package snapshot

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// snap is a save of a test: an image of one leaf whose chunks have these contents.
type snap struct {
	SaveSpec
	by     Actor
	repo   *fakeRepo // nil: the world as by sees it
	chunks []string
	stored int64 // 0: what the chunks have
}

// page is the content of a chunk of a page.
func page(s string) []byte {
	b := make([]byte, MinChunk)
	copy(b, s)
	return b
}

// build makes the objects of a planned save, as a save does.
func (w *world) build(t fataler, repo Repo, p *planned, s snap) made {
	t.Helper()
	pack, err := repo.NewPack(context.Background())
	if err != nil {
		t.Fatalf("NewPack: %v", err)
	}
	m := Manifest{
		Format: FormatVersion, Session: p.spec.Session, Name: p.spec.Name, Parent: p.parent.String(), Workspace: p.workspace.String(),
		CreatedAt: p.at, Machine: p.spec.Machine, Boundary: p.spec.Boundary, Excluded: p.spec.Excluded, Envelope: p.spec.Envelope,
	}
	leaf := Leaf{}
	entries := map[string]OID{}
	for i, c := range s.chunks {
		id, _ := pack.AddChunk([]byte(c))
		entries[fmt.Sprintf("%02x", i)] = id
		leaf.Chunks = append(leaf.Chunks, ChunkOf(page(c)))
		m.Stored += int64(len(c))
	}
	if s.stored > 0 {
		m.Stored = s.stored
	}
	part := Part{Name: KindMemory, Kind: KindMemory, Layout: Pages, ChunkBytes: MinChunk, Size: int64(len(s.chunks) * MinChunk), Leaves: min(1, len(s.chunks))}
	var leaves []Hash
	if len(s.chunks) > 0 {
		entries["h"], _ = pack.AddObject("blob", AppendList(nil, leaf.Chunks))
		leaves = []Hash{leaf.Hash(Pages)}
	}
	part.Root = ImageRoot(part, leaves).String()
	m.Parts, m.Size, m.Root = []Part{part}, part.Size, part.Root
	data, err := m.Encode()
	if err != nil {
		t.Fatalf("Encode: %v", err)
	}
	text, _ := pack.AddObject("blob", data)
	lt := addTree(pack, entries, false)
	image := addTree(pack, map[string]OID{"000000": lt}, true)
	root, _ := pack.AddObject("tree", append(treeEntryOf("40000", "m", image), treeEntryOf("100644", manifestName, text)...))
	commit, _ := pack.AddObject("commit", fmt.Appendf(nil, "tree %s\nparent %s\n\n%s %s\n", root, p.workspace, p.id, p.at))
	if err := pack.Finish(context.Background()); err != nil {
		t.Fatalf("Finish: %v", err)
	}
	return made{Commit: commit, Manifest: m, Pack: pack, New: w.newBytes(p, s)}
}

// newBytes are those of chunks that the base has not.
func (w *world) newBytes(p *planned, s snap) (n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	have := map[string]bool{}
	if p.base != nil {
		for _, c := range w.images[p.base.Commit] {
			have[c] = true
		}
	}
	for _, c := range s.chunks {
		if !have[c] {
			n += int64(len(c))
		}
		have[c] = true
	}
	return max(n, s.stored)
}

func addTree(p Pack, entries map[string]OID, dirs bool) OID {
	mode := "100644"
	if dirs {
		mode = "40000"
	}
	var names []string
	for name := range entries {
		names = append(names, name)
	}
	sort.Strings(names)
	var data []byte
	for _, name := range names {
		data = append(data, treeEntryOf(mode, name, entries[name])...)
	}
	id, _ := p.AddObject("tree", data)
	return id
}

func treeEntryOf(mode, name string, id OID) []byte {
	return append(fmt.Appendf(nil, "%s %s\x00", mode, name), id[:]...)
}

// trySave saves as the engine does: plan, capture, publish or refuse.
func (w *world) trySave(t fataler, s snap) (Snapshot, error) {
	t.Helper()
	ctx := context.Background()
	if s.by.Org == "" {
		s.by = backend()
	}
	repo := s.repo
	if repo == nil {
		repo = w.as(s.by)
	}
	p, err := w.k.plan(ctx, repo, &s.SaveSpec)
	if err != nil {
		return Snapshot{}, err
	}
	if err := w.k.capture(ctx, repo, p); err != nil {
		return Snapshot{}, err
	}
	m := w.build(t, repo, p, s)
	got, err := w.k.publish(ctx, repo, p, m)
	if err != nil {
		return got, w.k.refuse(ctx, repo, p, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.images[got.Commit] = s.chunks
	return got, nil
}

// save saves what must succeed.
func (w *world) save(t fataler, session string, chunks ...string) Snapshot {
	t.Helper()
	return w.saveAs(t, snap{SaveSpec: SaveSpec{Session: session}, chunks: chunks})
}

func (w *world) saveAs(t fataler, s snap) Snapshot {
	t.Helper()
	got, err := w.trySave(t, s)
	if err != nil {
		t.Fatalf("save of session %s: %v", s.Session, err)
	}
	return got
}

// got gets a snapshot as the backend.
func (w *world) got(t fataler, id OID) Snapshot {
	t.Helper()
	s, err := w.k.Get(context.Background(), w.as(backend()), id)
	if err != nil {
		t.Fatalf("Get(%s): %v", id, err)
	}
	return s
}

// gone reports whether a snapshot is deleted, or forgotten.
func (w *world) gone(t fataler, id OID) bool {
	t.Helper()
	s, err := w.k.Get(context.Background(), w.as(backend()), id)
	if err != nil && !errors.Is(err, ErrNotFound) {
		t.Fatalf("Get(%s): %v", id, err)
	}
	return err != nil || s.State == Deleted
}

// reaped does one round.
func (w *world) reaped(t fataler) time.Time {
	t.Helper()
	next, err := w.k.Reap(context.Background(), w.repo)
	if err != nil {
		t.Fatalf("Reap: %v", err)
	}
	return next
}

// delete deletes as an admin.
func (w *world) delete(id OID) (Deletion, error) {
	return w.k.Delete(context.Background(), w.as(backend()), id, false, true, nil)
}

// standing is how a session stands.
func (w *world) standing(t fataler, session string) Standing {
	t.Helper()
	all, err := w.k.Standing(context.Background(), w.repo, session)
	if err != nil {
		t.Fatalf("Standing(%s): %v", session, err)
	}
	return all[0]
}

// sound checks what must hold at all times: counters are the sum over what is kept, refs
// are at the last one, every kept snapshot has its pin, and every pin its snapshot.
func (w *world) sound(t fataler) {
	t.Helper()
	ctx := context.Background()
	by := w.k.reads(w.repo)
	var bytes, count int64
	there := map[string]bool{}
	for _, key := range w.keys(t, "pin/") {
		there[key] = true
	}
	items, err := by.scan(ctx, recordKeys, "", 100_000)
	if err != nil {
		t.Fatalf("scan: %v", err)
	}
	pins, lasts := map[string]bool{}, map[string]stored{}
	for _, it := range items {
		r, err := decodeRecord(it.Value)
		if err != nil {
			t.Fatalf("record %s: %v", it.Key, err)
		}
		if r.kept() || r.State == Deleting { // of which the pin may be there still
			pins[testPinKey(pinID(r.Commit))] = true
		}
		if !r.kept() {
			continue
		}
		bytes, count = bytes+r.Charged, count+1
		if !there[testPinKey(pinID(r.Commit))] {
			t.Fatalf("snapshot %s is %s, and has no pin", r.Commit, r.State)
		}
		if old := lasts[r.Session]; r.State == Ready && r.at().After(old.at()) {
			lasts[r.Session] = r
		}
	}
	if b, n, err := by.counters(ctx); err != nil || b != bytes || n != count {
		t.Fatalf("counters are %d bytes, %d snapshots (%v); what is kept has %d and %d", b, n, err, bytes, count)
	}
	for key := range there {
		if !pins[key] {
			t.Fatalf("%s keeps nothing", key)
		}
	}
	for session, last := range lasts {
		st := w.standing(t, session)
		if head := w.head(t, RefPrefix+session); head != st.Last || st.Usable && head != last.Commit {
			t.Fatalf("ref of %s is at %s, its standing at %+v, the newest ready one is %s", session, head, st, last.Commit)
		}
	}
}

func ptr[T any](v T) *T { return &v }

// onceOf is a Once whose stored answer is the snapshot's id.
func onceOf(key string) *ledger.Once[Snapshot] {
	return &ledger.Once[Snapshot]{Key: key, Answer: func(s Snapshot) ([]byte, error) { return []byte(s.Commit.String()), nil }}
}
