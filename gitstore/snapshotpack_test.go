package gitstore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

const testSnapshotRef refpolicy.RefName = "refs/namespaces/state/refs/snapshots/s1"

// random gives bytes that no deflating makes smaller.
func randomChunk(seed uint64, n int) []byte {
	b := make([]byte, n)
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// addSnapshot adds a commit over chunks, of which kept are in the base already.
func addSnapshot(t *testing.T, p *SnapshotPack, parent refpolicy.OID, kept []refpolicy.OID, chunks ...[]byte) (commit refpolicy.OID, blobs []refpolicy.OID) {
	t.Helper()
	blobs = append(blobs, kept...)
	for _, c := range chunks {
		oid, err := p.AddChunk(c)
		if err != nil {
			t.Fatalf("AddChunk: %v", err)
		}
		blobs = append(blobs, oid)
	}
	var tree bytes.Buffer
	for n, oid := range blobs {
		fmt.Fprintf(&tree, "100644 %04x\x00%s", n, oid[:])
	}
	root, err := p.AddObject(TreeObject, tree.Bytes())
	if err != nil {
		t.Fatalf("AddObject tree: %v", err)
	}
	text := fmt.Sprintf("tree %s\nparent %s\nauthor A <a@x> 1700000000 +0000\ncommitter A <a@x> 1700000000 +0000\n\nsnapshot\n", root, parent)
	if commit, err = p.AddObject(CommitObject, []byte(text)); err != nil {
		t.Fatalf("AddObject commit: %v", err)
	}
	return commit, blobs
}

func newSnapshotPack(t *testing.T, r *Repo) *SnapshotPack {
	t.Helper()
	p, err := r.NewSnapshotPack(t.Context())
	if err != nil {
		t.Fatalf("NewSnapshotPack: %v", err)
	}
	return p
}

// save registers a finished pack with a move of the snapshot ref.
func saveSnapshot(t *testing.T, r *Repo, p *SnapshotPack, old, commit refpolicy.OID, leans ...refpolicy.OID) {
	t.Helper()
	if err := p.Finish(t.Context()); err != nil {
		t.Fatalf("Finish: %v", err)
	}
	res, err := r.Update(t.Context(), Update{
		Caller: someone, Atomic: true, Pack: p.Incoming(), Vouched: true, Leans: leans,
		Changes: []Change{{Ref: testSnapshotRef, Old: old, New: commit}},
	})
	if err != nil || res.Refusal() != nil {
		t.Fatalf("Update: %v, %v", res.Refusal(), err)
	}
	p.Abort()
}

// A snapshot is there with its ref, chunks and all, and a second one leans on it.
func TestSnapshotPack(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "site")
	head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}}).Commit
	chunks := [][]byte{randomChunk(1, 16<<10), {}, randomChunk(2, 200_000), []byte("x")}
	p := newSnapshotPack(t, r)
	first, blobs := addSnapshot(t, p, head, nil, chunks...)
	for n, oid := range blobs {
		if got, err := p.Chunk(oid, []byte("before")); err != nil || !bytes.Equal(got, append([]byte("before"), chunks[n]...)) {
			t.Errorf("Chunk %d before Finish: %d bytes, %v", n, len(got), err)
		}
	}
	if _, err := r.SnapshotChunk(t.Context(), blobs[0], nil); !errors.Is(err, ErrObjectNotFound) {
		t.Errorf("SnapshotChunk before the update: %v, want ErrObjectNotFound", err)
	}
	saveSnapshot(t, r, p, refpolicy.ZeroOID, first)
	for n, oid := range blobs {
		if got, err := r.SnapshotChunk(t.Context(), oid, []byte("before")); err != nil || !bytes.Equal(got, append([]byte("before"), chunks[n]...)) {
			t.Errorf("SnapshotChunk %d: %d bytes, %v", n, len(got), err)
		}
	}
	if typ, _, err := r.SnapshotObject(t.Context(), first); err != nil || typ != CommitObject {
		t.Errorf("SnapshotObject = %s, %v; want commit", typ, err)
	}
	p = newSnapshotPack(t, r)
	second, _ := addSnapshot(t, p, head, blobs[:2], randomChunk(3, 5000))
	saveSnapshot(t, r, p, first, second, first)
	// What leans on nothing that is held is refused, and its pack goes.
	p = newSnapshotPack(t, r)
	third, _ := addSnapshot(t, p, head, blobs, randomChunk(4, 5000))
	if err := p.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := r.Update(t.Context(), Update{
		Caller: someone, Atomic: true, Pack: p.Incoming(), Vouched: true, Leans: []refpolicy.OID{first},
		Changes: []Change{{Ref: testSnapshotRef, Old: second, New: third}},
	})
	if !errors.Is(err, ErrUnreachable) {
		t.Errorf("Update that leans on what nothing holds: %v, want ErrUnreachable", err)
	}
	p.Abort()
	if names, err := r.dir.Files(); err != nil || len(names) != 2 {
		t.Errorf("packs on disk: %v, %v; want two", names, err)
	}
}

// Chunks that were staged make a pack, those of a stage before this one too.
func TestSnapshotStage(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "site")
	head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}}).Commit
	key := func(n byte) StageKey { return StageKey{Hash: [32]byte{n}, Length: uint32(n)} }
	var keys []StageKey
	for round := range byte(3) {
		s, err := r.OpenSnapshotStage(t.Context(), "up-1")
		if err != nil {
			t.Fatalf("OpenSnapshotStage: %v", err)
		}
		for n := range byte(4) {
			k := key(round*3 + n)
			keys = append(keys, k)
			if _, err := s.Add(k, randomChunk(uint64(k.Length), 3000)); err != nil {
				t.Fatalf("Add: %v", err)
			}
		}
		if err := s.Note("round", []byte{round}); err != nil {
			t.Fatalf("Note: %v", err)
		}
		if round < 2 {
			r.store.stages.close() // as when a process ends
		}
	}
	s, _ := r.OpenSnapshotStage(t.Context(), "up-1")
	for try := range 2 {
		p, err := s.Pack(t.Context())
		if err != nil {
			t.Fatalf("Pack: %v", err)
		}
		for n, oid := range s.Has(keys) {
			if oid.IsZero() || !p.Has(oid) {
				t.Errorf("try %d: chunk %d is %s, in pack: %v", try, n, oid, p.Has(oid))
			}
		}
		if try == 0 {
			p.Abort()
			continue
		}
		commit, _ := addSnapshot(t, p, head, s.Has(keys)[:1], []byte("more"))
		saveSnapshot(t, r, p, refpolicy.ZeroOID, commit)
	}
	if err := s.Notes(t.Context(), func(name string, data []byte) error {
		if name != "round" || !bytes.Equal(data, []byte{2}) {
			t.Errorf("note %s = %v", name, data)
		}
		return nil
	}); err != nil {
		t.Errorf("Notes: %v", err)
	}
	if findings, err := r.store.Fsck(t.Context(), r); err != nil || len(findings) > 0 {
		t.Errorf("Fsck beside a stage: %v, %v", findings, err)
	}
	if list, err := r.SnapshotStages(t.Context()); err != nil || len(list) != 1 || list[0].Upload != "up-1" {
		t.Errorf("SnapshotStages = %v, %v", list, err)
	}
	if err := r.RemoveSnapshotStage(t.Context(), "up-1"); err != nil {
		t.Errorf("RemoveSnapshotStage: %v", err)
	}
	if list, err := r.SnapshotStages(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("SnapshotStages = %v, %v; want none", list, err)
	}
}

// A bundle brings the same commit into another repo.
func TestSnapshotBundle(t *testing.T) {
	s := openTestStore(t, nil)
	r, other := newTestRepo(t, s, "site"), newTestRepo(t, s, "other")
	head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}}).Commit
	p := newSnapshotPack(t, r)
	chunk := randomChunk(1, 70_000)
	commit, blobs := addSnapshot(t, p, head, nil, chunk)
	saveSnapshot(t, r, p, refpolicy.ZeroOID, commit)
	var out bytes.Buffer
	if err := r.WriteSnapshotBundle(t.Context(), &out, commit, testSnapshotRef); err != nil {
		t.Fatalf("WriteSnapshotBundle: %v", err)
	}
	tip, got, err := other.ReadBundle(t.Context(), someone, bytes.NewReader(out.Bytes()))
	if err != nil || tip != commit {
		t.Fatalf("ReadBundle = %s, %v; want %s", tip, err, commit)
	}
	if b, err := got.Chunk(blobs[0], nil); err != nil || !bytes.Equal(b, chunk) {
		t.Errorf("Chunk of a bundle: %d bytes, %v", len(b), err)
	}
	saveSnapshot(t, other, got, refpolicy.ZeroOID, commit)
	if b, err := other.SnapshotChunk(t.Context(), blobs[0], nil); err != nil || !bytes.Equal(b, chunk) {
		t.Errorf("SnapshotChunk: %d bytes, %v", len(b), err)
	}
	for name, bad := range map[string][]byte{
		"empty": {}, "other head": []byte("# v3 git bundle\n"), "no ref": []byte("# v2 git bundle\n\n"),
		"prerequisite": []byte("# v2 git bundle\n-" + commit.String() + " x\n"),
		"cut":          out.Bytes()[:out.Len()-30],
		"flipped":      append(out.Bytes()[:out.Len()-30:out.Len()-30], make([]byte, 30)...),
	} {
		if _, _, err := other.ReadBundle(t.Context(), someone, bytes.NewReader(bad)); !errors.Is(err, ErrBadObject) {
			t.Errorf("ReadBundle of a bundle that is %s: %v, want ErrBadObject", name, err)
		}
	}
}

// What a session's branch frees are its commits and files, and no chunk of its snapshots.
func TestFreesLeavesSnapshotsOut(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "site")
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}})
	head := mustCommit(t, r, someone, testCommit{target: sessionA, base: mainRef, files: map[string]string{"b": "of the session\n"}}).Commit
	before, err := r.Frees(t.Context(), sessionA)
	if err != nil || before == 0 {
		t.Fatalf("Frees = %d, %v", before, err)
	}
	p := newSnapshotPack(t, r)
	snapshot, _ := addSnapshot(t, p, head, nil, randomChunk(1, 100_000))
	saveSnapshot(t, r, p, refpolicy.ZeroOID, snapshot)
	if got, err := r.Frees(t.Context(), sessionA); err != nil || got != 0 {
		t.Errorf("Frees of a branch that a snapshot keeps = %d, %v; want 0", got, err)
	}
	if err := updateOne(t, r, Update{Caller: someone, Changes: []Change{{Ref: testSnapshotRef, Old: snapshot}}}); err != nil {
		t.Fatalf("delete ref: %v", err)
	}
	if got, err := r.Frees(t.Context(), sessionA); err != nil || got != before {
		t.Errorf("Frees after the snapshot = %d, %v; want %d", got, err, before)
	}
}

// What cannot be done with a pack is told by its kind.
func TestSnapshotPackErrors(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "site")
	p := newSnapshotPack(t, r)
	defer p.Abort()
	if _, err := p.AddObject(9, nil); !errors.Is(err, packs.ErrBadType) {
		t.Errorf("AddObject of type 9: %v, want ErrBadType", err)
	}
	if _, err := p.Chunk(refpolicy.OID{1}, nil); !errors.Is(err, ErrObjectNotFound) {
		t.Errorf("Chunk that was not added: %v, want ErrObjectNotFound", err)
	}
	if err := p.Finish(t.Context()); !errors.Is(err, packs.ErrEmptyPack) {
		t.Errorf("Finish of nothing: %v, want ErrEmptyPack", err)
	}
	if _, err := p.AddChunk([]byte("late")); !errors.Is(err, packs.ErrWriterDone) {
		t.Errorf("AddChunk after Finish: %v, want ErrWriterDone", err)
	}
}
