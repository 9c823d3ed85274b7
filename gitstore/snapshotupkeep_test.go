package gitstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// snapshotPacks are the names of a repo's live packs of chunks.
func snapshotPacks(t *testing.T, r *Repo) (names []string) {
	t.Helper()
	_, list, err := r.livePacks(t.Context())
	if err != nil {
		t.Fatalf("livePacks: %v", err)
	}
	for _, l := range list {
		if l.rec.Kind == kindSnapshot {
			names = append(names, l.name)
		}
	}
	return names
}

// wantChunks reads chunks back and compares them, and that they are stored as they are.
func wantChunks(t *testing.T, r *Repo, where string, blobs []refpolicy.OID, chunks [][]byte) {
	t.Helper()
	for n, oid := range blobs {
		if got, err := r.SnapshotChunk(t.Context(), oid, nil); err != nil || !bytes.Equal(got, chunks[n]) {
			t.Errorf("%s: chunk %d is %d bytes, %v", where, n, len(got), err)
		}
		for _, name := range snapshotPacks(t, r) {
			p, err := r.dir.Pack(name)
			if err != nil {
				t.Fatalf("Pack: %v", err)
			}
			if size, err := p.StoredSize(oid); err == nil && size < int64(len(chunks[n])) {
				t.Errorf("%s: chunk %d of %d bytes was deflated to %d", where, n, len(chunks[n]), size)
			}
			p.Release()
		}
	}
}

// Many snapshots, each of its own pack, are united with each other alone, chunks as they
// stand; what no snapshot has any more is pruned away; no index and no clone has them.
func TestSnapshotUpkeep(t *testing.T) {
	s := openTestStore(t, nil)
	r := newTestRepo(t, s, "site")
	head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}}).Commit
	var old refpolicy.OID
	var blobs []refpolicy.OID
	var chunks [][]byte
	for n := range 2*catalogFrom + 3 {
		p := newSnapshotPack(t, r)
		chunk := bytes.Repeat(randomChunk(uint64(n), 100), 50) // deflating would pay
		var leans []refpolicy.OID
		if n > 0 {
			leans = append(leans, old)
		}
		keep := blobs[len(blobs)/2:]
		commit, all := addSnapshot(t, p, head, keep, chunk)
		saveSnapshot(t, r, p, old, commit, leans...)
		chunks = append(chunks[len(blobs)/2:], chunk)
		old, blobs = commit, all
		if n%10 == 0 {
			wantChunks(t, r, fmt.Sprint("save ", n), blobs, chunks)
		}
	}
	wantChunks(t, r, "after all saves", blobs, chunks)
	if _, err := r.merge(t.Context(), 2); err != nil {
		t.Fatalf("merge: %v", err)
	}
	if names := snapshotPacks(t, r); len(names) != 1 {
		t.Errorf("after merging there are %d packs of chunks, want 1", len(names))
	}
	wantChunks(t, r, "after merging", blobs, chunks)
	if err := r.Settle(t.Context()); err != nil {
		t.Fatalf("Settle: %v", err)
	}
	if written, err := r.writeIndex(t.Context(), true); err != nil || !written {
		t.Fatalf("writeIndex = %v, %v", written, err)
	}
	if _, rec, err := r.currentIndex(t.Context()); err != nil || !rec.bitmaps() || slices.ContainsFunc(rec.Packs, func(name string) bool { return slices.Contains(snapshotPacks(t, r), name) }) {
		t.Errorf("index: %+v, %v; want one with bitmaps, without packs of chunks", rec, err)
	}
	report, err := r.prune(t.Context(), true)
	if err != nil || report.Dead == 0 {
		t.Fatalf("prune = %+v, %v; want dead chunks", report, err)
	}
	wantChunks(t, r, "after pruning", blobs, chunks)
	if _, err := r.removeCondemned(t.Context(), 0); err != nil {
		t.Fatalf("removeCondemned: %v", err)
	}
	wantChunks(t, r, "after removing", blobs, chunks)
	if findings, err := s.Fsck(t.Context(), r); err != nil || len(findings) > 0 {
		t.Errorf("Fsck = %v, %v", findings, err)
	}
}

// A save that leans on a base which is let go and pruned away is refused, whenever that
// happens; while something holds the base, a prune in between only makes it look again.
func TestG02_SnapshotBaseAndPrune(t *testing.T) {
	for _, held := range []bool{true, false} {
		t.Run(fmt.Sprintf("held %v", held), func(t *testing.T) {
			var between func()
			guard := guardFunc(func([]Change) error {
				if f := between; f != nil {
					between = nil
					f()
				}
				return nil
			})
			r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Guard = guard }), "site")
			head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}}).Commit
			p := newSnapshotPack(t, r)
			chunk := randomChunk(1, 3000)
			base, blobs := addSnapshot(t, p, head, nil, chunk)
			saveSnapshot(t, r, p, refpolicy.ZeroOID, base)
			pin, err := r.Pin(t.Context(), someone, PinSpec{OID: base, Holder: "snapshot:" + base.String()})
			if err != nil {
				t.Fatalf("Pin: %v", err)
			}
			if err := updateOne(t, r, Update{Caller: someone, Changes: []Change{{Ref: testSnapshotRef, Old: base}}}); err != nil {
				t.Fatalf("delete ref: %v", err)
			}
			p = newSnapshotPack(t, r)
			next, _ := addSnapshot(t, p, head, blobs, randomChunk(2, 100))
			if err := p.Finish(t.Context()); err != nil {
				t.Fatalf("Finish: %v", err)
			}
			defer p.Abort()
			between = func() { // after the door has looked, before its batch
				if !held {
					if err := r.Unpin(t.Context(), someone, pin.ID, nil); err != nil {
						t.Errorf("Unpin: %v", err)
					}
				}
				for range 2 {
					if _, err := r.prune(t.Context(), true); err != nil {
						t.Errorf("prune: %v", err)
					}
				}
			}
			res, err := r.Update(t.Context(), Update{
				Caller: someone, Atomic: true, Pack: p.Incoming(), Vouched: true, Leans: []refpolicy.OID{base},
				Changes: []Change{{Ref: testSnapshotRef, New: next}},
			})
			if !held {
				if !errors.Is(err, ErrUnreachable) {
					t.Errorf("Update: %v, %v; want ErrUnreachable", res.Refusal(), err)
				}
				return
			}
			if err != nil || res.Refusal() != nil {
				t.Fatalf("Update: %v, %v", res.Refusal(), err)
			}
			wantChunks(t, r, "after the save", blobs, [][]byte{chunk})
		})
	}
}

// A damaged chunk is told with what leads to it, the snapshot named.
func TestFsckNamesTheSnapshot(t *testing.T) {
	s := openTestStore(t, nil)
	r := newTestRepo(t, s, "site")
	head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}}).Commit
	p := newSnapshotPack(t, r)
	first, blobs := addSnapshot(t, p, head, nil, randomChunk(1, 5000))
	saveSnapshot(t, r, p, refpolicy.ZeroOID, first)
	if _, err := r.Pin(t.Context(), someone, PinSpec{OID: first, Holder: "snapshot:" + first.String()}); err != nil {
		t.Fatalf("Pin: %v", err)
	}
	p = newSnapshotPack(t, r)
	second, more := addSnapshot(t, p, head, nil, randomChunk(2, 5000))
	saveSnapshot(t, r, p, first, second)
	for _, name := range snapshotPacks(t, r) {
		path := filepath.Join(r.dir.Root(), "packs", name+".pack")
		damageAt(t, path, 2000)
		t.Cleanup(func() { damageAt(t, path, 2000) }) // git looks at the repo after the test
	}
	if _, err := r.SnapshotChunk(t.Context(), blobs[0], nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("SnapshotChunk of a damaged chunk: %v, want ErrDamaged", err)
	}
	findings, err := s.Fsck(t.Context(), r)
	if err != nil {
		t.Fatalf("Fsck: %v", err)
	}
	for oid, want := range map[refpolicy.OID]string{
		blobs[0]: "pin snapshot:" + first.String() + " (snapshot " + first.String() + ")",
		more[0]:  string(testSnapshotRef) + " (snapshot " + second.String() + ")",
	} {
		if !slices.ContainsFunc(findings, func(f Finding) bool { return f.Subject == oid.String() && strings.Contains(f.Detail, want) }) {
			t.Errorf("findings %v do not name %s for %s", findings, want, oid)
		}
	}
}

// damageAt flips a bit of a file.
func damageAt(t *testing.T, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		if err = os.Chmod(path, 0o644); err == nil {
			f, err = os.OpenFile(path, os.O_RDWR, 0)
		}
	}
	if err != nil {
		t.Fatalf("damage: %v", err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatalf("damage: %v", err)
	}
	b[0] ^= 4
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatalf("damage: %v", err)
	}
}
