package gitstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// No remote shows a snapshot, gives its objects or takes its ref, and nothing can lean
// on what is in snapshots alone. For who may not read the ref it does not exist.
func TestA13_SnapshotsAreInNoRemote(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "site")
	head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}}).Commit
	p := newSnapshotPack(t, r)
	snapshot, blobs := addSnapshot(t, p, head, nil, randomChunk(1, 3000))
	saveSnapshot(t, r, p, refpolicy.ZeroOID, snapshot)
	if _, err := r.Pin(t.Context(), someone, PinSpec{OID: snapshot, Holder: "snapshot:" + snapshot.String()}); err != nil {
		t.Fatalf("Pin: %v", err)
	}
	tree := newTree(treeEntry{ModeFile, "stolen", blobs[0]})
	commit := newCommitOn(tree.OID, head)
	res, err := r.Update(t.Context(), Update{
		Caller: someone, Changes: []Change{{Ref: mainRef, Old: head, New: commit.OID}}, Objects: []NewObject{tree, commit},
	})
	if err != nil || !errors.Is(res.Refusal(), ErrUnreachable) {
		t.Errorf("Update that leans on a chunk: %v, %v; want ErrUnreachable", res.Refusal(), err)
	}
	s := newGitServer(t, r)
	for _, remote := range []Remote{MainRemote, EphemeralRemote} {
		url := s.url(someone, remote)
		w := cloneOf(t, url, "--mirror")
		if refs := w.git("for-each-ref") + w.git("ls-remote", url, "refs/*"); strings.Contains(refs, "state/") || strings.Contains(refs, snapshot.String()) {
			t.Errorf("remote %v shows %s", remote, refs)
		}
		if all := w.git("cat-file", "--batch-all-objects", "--batch-check"); strings.Contains(all, snapshot.String()) || strings.Contains(all, blobs[0].String()) {
			t.Errorf("remote %v gave objects of a snapshot", remote)
		}
	}
	w := cloneOf(t, s.url(someone, MainRemote))
	w.refused("push", "origin", "HEAD:"+string(testSnapshotRef))
	w.refused("push", "origin", ":"+string(testSnapshotRef))
	if ref, err := r.Ref(t.Context(), someone, testSnapshotRef); err != nil || ref.OID != snapshot {
		t.Errorf("after pushes the ref is %v, %v", ref, err)
	}
	blind := callerWithout(t, string(testSnapshotRef))
	_, err = r.Resolve(t.Context(), blind, snapshot.String(), false)
	_, none := r.Resolve(t.Context(), blind, refpolicy.OID{1}.String(), false)
	if !errors.Is(err, ErrObjectNotFound) || !errors.Is(none, ErrObjectNotFound) {
		t.Errorf("Resolve by who may not read it: %v; of one that is not there: %v", err, none)
	}
	if got, err := r.Resolve(t.Context(), someone, snapshot.String(), false); err != nil || got.Commit != snapshot {
		t.Errorf("Resolve by who may read it: %v, %v", got, err)
	}
	if _, err := r.Resolve(t.Context(), someone, string(testSnapshotRef), false); !errors.Is(err, ErrRefNotFound) {
		t.Errorf("Resolve of the ref: %v, want ErrRefNotFound", err)
	}
	w = cloneOf(t, s.url(blind, MainRemote))
	w.refused("fetch", "origin", snapshot.String())
	w.refused("fetch", "origin", blobs[0].String())
}
