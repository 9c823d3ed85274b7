package gitstore

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
)

// deltasIn counts the deltas of a repo's packs as git sees them.
func deltasIn(t *testing.T, r *Repo) (deltas, whole int) {
	t.Helper()
	for _, name := range r.packNames() {
		out := git(t, r.dir.Root(), nil, "verify-pack", "-v", filepath.Join(r.dir.ObjectsPath(), "pack", name+".idx"))
		for _, line := range strings.Split(out, "\n") {
			switch f := strings.Fields(line); len(f) {
			case 5:
				whole++
			case 7:
				deltas++
			}
		}
	}
	return deltas, whole
}

// What was settled whole gets deltas when it is merged, also between objects of one
// settled pack, and keeps them in later merges.
func TestMergeMakesDeltas(t *testing.T) {
	s := openTestStore(t, func(o *Options) { o.Limits.UpkeepEvery = -1 })
	r := newTestRepo(t, s, "repo")
	rng := rand.New(rand.NewPCG(1, 2))
	lines := make([]string, 200)
	for i := range lines {
		lines[i] = fmt.Sprintln("line", rng.Uint64())
	}
	settled := func(commits int) {
		for range commits {
			lines[rng.IntN(len(lines))] = fmt.Sprintln("line", rng.Uint64())
			mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": strings.Join(lines, "")}})
		}
		if err := r.Settle(t.Context()); err != nil {
			t.Fatalf("Settle: %v", err)
		}
	}
	settled(20)
	if deltas, _ := deltasIn(t, r); deltas != 0 {
		t.Fatalf("a settled pack has %d deltas, want none", deltas)
	}
	before := packedBytes(t, r)
	if n, err := r.merge(t.Context(), 1); err != nil || n != 1 {
		t.Fatalf("merge = %d, %v; want one pack written anew", n, err)
	}
	if deltas, whole := deltasIn(t, r); deltas < 18 {
		t.Errorf("merged pack has %d deltas and %d whole objects, want nearly all 20 files as deltas", deltas, whole)
	}
	if after := packedBytes(t, r); after > before/4 {
		t.Errorf("merged pack has %d bytes, the settled one had %d", after, before)
	}
	settled(10)
	settled(10)
	for range 2 { // the settled ones with each other, then what that made with the rest
		if _, err := r.merge(t.Context(), 2); err != nil {
			t.Fatalf("merge: %v", err)
		}
	}
	if deltas, whole := deltasIn(t, r); deltas < 36 || len(r.packNames()) != 1 {
		t.Errorf("%d packs have %d deltas and %d whole objects, want one with nearly all 40 files as deltas", len(r.packNames()), deltas, whole)
	}
}

func packedBytes(t *testing.T, r *Repo) (n int64) {
	t.Helper()
	_, list, err := r.livePacks(t.Context())
	if err != nil {
		t.Fatalf("livePacks: %v", err)
	}
	for _, p := range list {
		n += p.rec.Size
	}
	return n
}

// A large blob goes into a pack of its own when its pack is merged, and is not copied
// again by later merges.
func TestLargeBlobsGetPacksOfTheirOwn(t *testing.T) {
	s := openTestStore(t, func(o *Options) { o.Limits.UpkeepEvery = -1 })
	r := newTestRepo(t, s, "repo")
	noise := make([]byte, bigBlob+1)
	rand.NewChaCha8([32]byte{7}).Read(noise) // never fails
	large := newBlob(string(noise))
	head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "first\n"}}).Commit
	for i := range 3 {
		small := newBlob(fmt.Sprintln("small", i))
		entries := []treeEntry{{ModeFile, "a", small.OID}}
		objects := []NewObject{small}
		if i == 0 {
			entries, objects = append(entries, treeEntry{ModeFile, "large", large.OID}), append(objects, large)
		}
		tree := newTree(entries...)
		commit := newCommitOn(tree.OID, head)
		info, err := adoptPack(t, r, append(objects, tree, commit)...)
		if err == nil {
			err = updateOne(t, r, Update{
				Caller: someone, Changes: []Change{{Ref: mainRef, Old: head, New: commit.OID}},
				Pack: &IncomingPack{Info: info, Kind: kindPushed},
			})
		}
		if err != nil {
			t.Fatalf("push %d: %v", i, err)
		}
		head = commit.OID
	}
	homeOf := func() (name, kind string) {
		p, err := r.packWith(large.OID)
		if err != nil || p == nil {
			t.Fatalf("packWith(the large blob) = %v, %v", p, err)
		}
		defer p.Release()
		_, list, err := r.livePacks(t.Context())
		if err != nil {
			t.Fatalf("livePacks: %v", err)
		}
		for _, l := range list {
			if l.name == p.Name() {
				if p.Count() != 1 {
					t.Errorf("pack of the large blob has %d objects, want it alone", p.Count())
				}
				return l.name, l.rec.Kind
			}
		}
		return "", ""
	}
	rule := mergeRules[1]
	_, list, err := r.livePacks(t.Context())
	if err == nil {
		err = r.mergeGroup(t.Context(), rule, list)
	}
	if err != nil {
		t.Fatalf("merge: %v", err)
	}
	name, kind := homeOf()
	if kind != kindBlobs || len(r.packNames()) != 2 {
		t.Errorf("the large blob is in a pack of kind %q of %d packs, want one of blobs and one of the rest", kind, len(r.packNames()))
	}
	if n, err := r.merge(t.Context(), 1); err != nil || n != 0 {
		t.Errorf("second merge = %d, %v; want nothing to do", n, err)
	}
	if _, err := r.removeCondemned(t.Context(), 0); err != nil {
		t.Errorf("removeCondemned: %v", err)
	}
	if err := r.Settle(t.Context()); err != nil {
		t.Fatalf("Settle: %v", err)
	}
	if again, _ := homeOf(); again != name {
		t.Errorf("the large blob has been copied from %s to %s", name, again)
	}
	if got, err := readPath(t.Context(), r, head, "a"); err != nil || got != "small 2\n" {
		t.Errorf("a at main = %q, %v", got, err)
	}
}
