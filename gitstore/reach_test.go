package gitstore

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// ruled is a caller with the given rules.
func ruled(t testing.TB, rules ...refpolicy.Rule) Caller {
	t.Helper()
	p, err := refpolicy.New(rules, nil)
	if err != nil {
		t.Fatalf("refpolicy.New: %v", err)
	}
	return Caller{Actor: Actor{Org: "acme", Subject: "sandbox"}, Policy: p}
}

// sandboxA may do everything to session A and to refs of its own, and knows no other.
func sandboxA(t testing.TB) Caller {
	return ruled(t,
		refpolicy.Rule{Pattern: string(sessionA)},
		refpolicy.Rule{Pattern: "refs/heads/mine/*"},
		refpolicy.Rule{Pattern: "refs/tags/mine/*"},
		refpolicy.Rule{Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoRead}})
}

// Makers of objects as a client would send them.

func newBlob(text string) NewObject { return newObject(BlobObject, []byte(text)) }

func newTree(entries ...treeEntry) NewObject { return newObject(TreeObject, encodeTree(entries)) }

func newCommitOn(tree refpolicy.OID, parents ...refpolicy.OID) NewObject {
	who := Signature{Name: "T", Email: "t@example.org", When: time.Unix(1_700_000_000, 0)}
	return newObject(CommitObject, encodeCommit(tree, parents, who, who, "pushed"))
}

func newTagOn(oid refpolicy.OID, typ ObjectType, name string) NewObject {
	text := fmt.Sprintf("object %s\ntype %s\ntag %s\ntagger T <t@example.org> 1700000000 +0000\n\ntagged\n", oid, typ, name)
	return newObject(TagObject, []byte(text))
}

// updateOne sends one change with objects and gives its verdict.
func updateOne(t testing.TB, r *Repo, u Update) error {
	t.Helper()
	res, err := r.Update(t.Context(), u)
	if err != nil {
		return err
	}
	return res.Refs[0].Err
}

// twoSessions makes a repo in which sessions A and B have gone apart from main.
type twoSessions struct {
	r       *Repo
	c       Caller // the sandbox of A
	headA   refpolicy.OID
	secrets map[string]refpolicy.OID // what only B reaches, and what nobody does any more
}

func newTwoSessions(t testing.TB, s *Store, name string) twoSessions {
	r := newTestRepo(t, s, name)
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"readme": "hello\n"}})
	a := mustCommit(t, r, someone, testCommit{target: sessionA, base: mainRef, files: map[string]string{"a": "of A\n", "d/x": "deep in A\n"}})
	first := mustCommit(t, r, someone, testCommit{target: sessionB, base: mainRef, files: map[string]string{"b": "of B\n", "secret/key": "the key of B\n"}})
	tip := mustCommit(t, r, someone, testCommit{target: sessionB, files: map[string]string{"b": "of B again\n"}})
	lost := mustCommit(t, r, someone, testCommit{target: "refs/heads/lost", base: mainRef, files: map[string]string{"l": "lost\n"}})
	if err := r.DeleteBranch(t.Context(), someone, "refs/heads/lost", nil); err != nil {
		t.Fatalf("DeleteBranch: %v", err)
	}
	folder := newTree(treeEntry{ModeFile, "key", newBlob("the key of B\n").OID})
	tag := newTagOn(tip.Commit, CommitObject, "of-b")
	if err := updateOne(t, r, Update{Caller: someone, Changes: []Change{{Ref: "refs/tags/of-b", New: tag.OID}}, Objects: []NewObject{tag}}); err != nil {
		t.Fatalf("tag B: %v", err)
	}
	return twoSessions{r, sandboxA(t), a.Commit, map[string]refpolicy.OID{
		"tip of B": tip.Commit, "ancestor in B": first.Commit, "root tree of B": tip.Tree, "folder of B": folder.OID,
		"blob of B": newBlob("the key of B\n").OID, "tag on B": tag.OID,
		"commit of a deleted branch": lost.Commit, "tree of a deleted branch": lost.Tree,
	}}
}

// doors are the ways in which a caller may bring up an object by its id. Every
// answer to one that is not the caller's to read must be that to one that is not there.
var doors = []struct {
	name string
	try  func(t *testing.T, w twoSessions, oid refpolicy.OID) error
}{
	{"branch from a SHA", func(t *testing.T, w twoSessions, oid refpolicy.OID) error {
		_, err := w.r.CreateBranch(t.Context(), w.c, BranchSpec{Target: "refs/heads/mine/b", Base: oid.String()})
		return err
	}},
	{"forced branch from a SHA", func(t *testing.T, w twoSessions, oid refpolicy.OID) error {
		_, err := w.r.CreateBranch(t.Context(), w.c, BranchSpec{Target: sessionA, Base: oid.String(), Force: true})
		return err
	}},
	{"revision", func(t *testing.T, w twoSessions, oid refpolicy.OID) error {
		_, err := w.r.Resolve(t.Context(), w.c, oid.String(), false)
		return err
	}},
	{"expected head", func(t *testing.T, w twoSessions, oid refpolicy.OID) error {
		_, err := testCommit{target: sessionA, expected: oid.String(), files: map[string]string{"x": "1\n"}}.make(t.Context(), w.r, w.c)
		return err
	}},
	{"create without objects", func(t *testing.T, w twoSessions, oid refpolicy.OID) error {
		return updateOne(t, w.r, Update{Caller: w.c, Changes: []Change{{Ref: "refs/heads/mine/b", New: oid}}})
	}},
	{"tag without objects", func(t *testing.T, w twoSessions, oid refpolicy.OID) error {
		return updateOne(t, w.r, Update{Caller: w.c, Changes: []Change{{Ref: "refs/tags/mine/t", New: oid}}})
	}},
	{"move without objects", func(t *testing.T, w twoSessions, oid refpolicy.OID) error {
		return updateOne(t, w.r, Update{Caller: w.c, Changes: []Change{{Ref: sessionA, Old: w.headA, New: oid}}})
	}},
	{"move without objects, fast-forward only", func(t *testing.T, w twoSessions, oid refpolicy.OID) error {
		return updateOne(t, w.r, Update{Caller: w.c, Changes: []Change{{Ref: sessionA, Old: w.headA, New: oid, NoForce: true}}})
	}},
	{"move from a wrong old value", func(t *testing.T, w twoSessions, oid refpolicy.OID) error {
		return updateOne(t, w.r, Update{Caller: w.c, Changes: []Change{{Ref: sessionA, Old: oid, New: w.headA}}})
	}},
	{"commit on it", func(t *testing.T, w twoSessions, oid refpolicy.OID) error {
		return w.push(t, newCommitOn(emptyTree, oid))
	}},
	{"merge with it", func(t *testing.T, w twoSessions, oid refpolicy.OID) error {
		return w.push(t, newCommitOn(emptyTree, w.headA, oid))
	}},
	{"commit with its tree", func(t *testing.T, w twoSessions, oid refpolicy.OID) error {
		return w.push(t, newCommitOn(oid, w.headA))
	}},
	{"tree naming it as a file", func(t *testing.T, w twoSessions, oid refpolicy.OID) error {
		tree := newTree(treeEntry{ModeFile, "stolen", oid})
		return w.push(t, tree, newCommitOn(tree.OID, w.headA))
	}},
	{"tree naming it as a folder", func(t *testing.T, w twoSessions, oid refpolicy.OID) error {
		tree := newTree(treeEntry{ModeTree, "stolen", oid})
		return w.push(t, tree, newCommitOn(tree.OID, w.headA))
	}},
	{"tree naming it as both", func(t *testing.T, w twoSessions, oid refpolicy.OID) error {
		tree := newTree(treeEntry{ModeTree, "stolen", oid}, treeEntry{ModeFile, "taken", oid})
		return w.push(t, tree, newCommitOn(tree.OID, w.headA))
	}},
	{"tag of it as a commit", func(t *testing.T, w twoSessions, oid refpolicy.OID) error { return w.tag(t, oid, CommitObject) }},
	{"tag of it as a tree", func(t *testing.T, w twoSessions, oid refpolicy.OID) error { return w.tag(t, oid, TreeObject) }},
	{"tag of it as a blob", func(t *testing.T, w twoSessions, oid refpolicy.OID) error { return w.tag(t, oid, BlobObject) }},
	{"tag of it as a tag", func(t *testing.T, w twoSessions, oid refpolicy.OID) error { return w.tag(t, oid, TagObject) }},
	{"delta against it", func(t *testing.T, w twoSessions, oid refpolicy.OID) error {
		commit := newCommitOn(emptyTree, w.headA)
		return updateOne(t, w.r, Update{
			Caller: w.c, Changes: []Change{{Ref: sessionA, Old: w.headA, New: commit.OID}},
			Objects: []NewObject{commit}, Bases: []refpolicy.OID{oid},
		})
	}},
	{"pack completed with it", func(t *testing.T, w twoSessions, oid refpolicy.OID) error { return w.appended(t, oid) }},
}

// push moves session A to the last of the objects.
func (w twoSessions) push(t *testing.T, objects ...NewObject) error {
	t.Helper()
	return updateOne(t, w.r, Update{
		Caller: w.c, Objects: objects,
		Changes: []Change{{Ref: sessionA, Old: w.headA, New: objects[len(objects)-1].OID}},
	})
}

func (w twoSessions) tag(t *testing.T, oid refpolicy.OID, typ ObjectType) error {
	t.Helper()
	tag := newTagOn(oid, typ, "mine")
	return updateOne(t, w.r, Update{Caller: w.c, Objects: []NewObject{tag}, Changes: []Change{{Ref: "refs/tags/mine/t", New: tag.OID}}})
}

// appended pushes a large pack that index-pack had to complete with an object of the store.
func (w twoSessions) appended(t *testing.T, oid refpolicy.OID) error {
	t.Helper()
	base, err := w.r.object(t.Context(), oid)
	if err != nil { // one that is not there cannot have been appended; say that another was
		base = object{BlobObject, []byte(oid.String())}
		oid = hashObject(BlobObject, base.data)
	}
	commit := newCommitOn(emptyTree, w.headA)
	pack := packOf(t, w.r, commit, NewObject{oid, base.typ, base.data})
	return updateOne(t, w.r, Update{
		Caller: w.c, Changes: []Change{{Ref: sessionA, Old: w.headA, New: commit.OID}},
		Pack: &IncomingPack{Info: pack, Kind: "pushed", Appended: []refpolicy.OID{oid}},
	})
}

// packOf writes an unregistered pack.
func packOf(t testing.TB, r *Repo, objects ...NewObject) packs.Info {
	t.Helper()
	w, err := r.dir.NewWriter(t.Context())
	if err != nil {
		t.Fatalf("NewWriter: %v", err)
	}
	defer w.Abort()
	for _, o := range objects {
		if _, _, err := w.AddStream(packs.Type(o.Type), int64(len(o.Data)), strings.NewReader(string(o.Data))); err != nil {
			t.Fatalf("AddStream: %v", err)
		}
	}
	info, err := w.Finish()
	if err != nil {
		t.Fatalf("Finish: %v", err)
	}
	return info
}

func TestA13_NoDoorTellsWhatExists(t *testing.T) {
	s := openTestStore(t, nil)
	for _, settled := range []bool{false, true} {
		w := newTwoSessions(t, s, fmt.Sprintf("settled-%v", settled))
		if settled {
			if err := w.r.Settle(t.Context()); err != nil {
				t.Fatalf("Settle: %v", err)
			}
		}
		for _, d := range doors {
			var missing refpolicy.OID
			_, _ = rand.Read(missing[:])
			want := answer(d.try(t, w, missing), missing)
			if want == "went through" {
				t.Errorf("%s: an id that does not exist went through", d.name)
			}
			for what, oid := range w.secrets {
				if got := answer(d.try(t, w, oid), oid); got != want {
					t.Errorf("%s, settled %v: %s gets %q, what does not exist gets %q", d.name, settled, what, got, want)
				}
			}
		}
		ref, err := w.r.Ref(t.Context(), someone, sessionA)
		if err != nil || ref.OID != w.headA {
			t.Errorf("session A is at %s, %v after all doors; want %s", ref.OID, err, w.headA)
		}
	}
}

// answer is what a caller is told, without the id that it named itself.
func answer(err error, oid refpolicy.OID) string {
	if err == nil {
		return "went through"
	}
	kind := "failure"
	for _, v := range []error{ErrUnreachable, ErrObjectNotFound, ErrBadObject, ErrInvalid, ErrBadRevision} {
		if errors.Is(err, v) {
			kind = v.Error()
		}
	}
	return kind + ": " + strings.ReplaceAll(err.Error(), oid.String(), "OID")
}

// What B's refs are called is no more told than what they hold.
func TestA13_NamesOfUnreadableRefs(t *testing.T) {
	w := newTwoSessions(t, openTestStore(t, nil), "names")
	commit := func(base refpolicy.RefName) error {
		_, err := testCommit{target: "refs/heads/mine/n", base: base, files: map[string]string{"x": "1\n"}}.make(t.Context(), w.r, w.c)
		return err
	}
	got, want := commit(sessionB), commit("refs/namespaces/ephemeral/refs/heads/sessions/c")
	if !errors.Is(got, ErrRefNotFound) || !errors.Is(want, ErrRefNotFound) {
		t.Errorf("commit based on session B: %v, on none: %v; want ErrRefNotFound for both", got, want)
	}
	c := ruled(t, refpolicy.Rule{Pattern: "refs/heads/hidden/*", Ops: []refpolicy.Op{refpolicy.NoRead}})
	if _, err := w.r.CreateBranch(t.Context(), someone, BranchSpec{Target: "refs/heads/hidden/plans", Base: "main"}); err != nil {
		t.Fatalf("CreateBranch: %v", err)
	}
	_, err := w.r.CreateBranch(t.Context(), c, BranchSpec{Target: "refs/heads/hidden", Base: "main"})
	var clash *NameClashError
	if !errors.As(err, &clash) || strings.Contains(err.Error(), "plans") || clash.Existing != "" {
		t.Errorf("create a branch over a hidden one: %v, want a NameClashError without the name", err)
	}
}

// What the caller may read, it may build on, whatever way leads to it.
func TestReachIsProvedThrough(t *testing.T) {
	w := newTwoSessions(t, openTestStore(t, nil), "proved")
	wide := Caller{Actor: w.c.Actor, Policy: ruled(t,
		refpolicy.Rule{Pattern: string(sessionA)}, refpolicy.Rule{Pattern: "refs/tags/*"}, refpolicy.Rule{Pattern: "refs/heads/*"},
		refpolicy.Rule{Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoRead}}).Policy}
	ofA, deep, readme := newBlob("of A\n").OID, newBlob("deep in A\n").OID, newBlob("hello\n").OID
	folder := newTree(treeEntry{ModeFile, "x", deep}).OID
	side := mustCommit(t, w.r, someone, testCommit{target: "refs/heads/side", base: mainRef, files: map[string]string{"s/t": "side\n"}})
	if err := updateOne(t, w.r, Update{Caller: someone, Changes: []Change{{Ref: "refs/notes/keep-a", New: w.headA}}}); err != nil {
		t.Fatalf("keep the head of A: %v", err)
	}
	var someID refpolicy.OID
	_, _ = rand.Read(someID[:])
	for _, tc := range []struct {
		name    string
		c       Caller
		entries []treeEntry
		parents []refpolicy.OID
	}{
		{"unchanged at its path", w.c, []treeEntry{{ModeFile, "a", ofA}}, []refpolicy.OID{w.headA}},
		{"unchanged folder", w.c, []treeEntry{{ModeTree, "d", folder}}, []refpolicy.OID{w.headA}},
		{"moved file", w.c, []treeEntry{{ModeFile, "elsewhere", deep}}, []refpolicy.OID{w.headA}},
		{"moved folder", w.c, []treeEntry{{ModeTree, "elsewhere", folder}}, []refpolicy.OID{w.headA}},
		{"new mode", w.c, []treeEntry{{ModeExecutable, "a", ofA}}, []refpolicy.OID{w.headA}},
		{"root commit with an old file", w.c, []treeEntry{{ModeFile, "a", ofA}}, nil},
		{"file of the common ancestor", w.c, []treeEntry{{ModeFile, "r", readme}}, []refpolicy.OID{w.headA}},
		{"file of another readable branch", wide, []treeEntry{{ModeFile, "t", newBlob("side\n").OID}}, []refpolicy.OID{w.headA}},
		{"merge", wide, []treeEntry{{ModeFile, "a", ofA}, {ModeTree, "s", newTree(treeEntry{ModeFile, "t", newBlob("side\n").OID}).OID}}, []refpolicy.OID{w.headA, side.Commit}},
		{"submodule of anything", w.c, []treeEntry{{ModeSubmodule, "sub", someID}}, []refpolicy.OID{w.headA}},
	} {
		tree := newTree(tc.entries...)
		commit := newCommitOn(tree.OID, tc.parents...)
		err := updateOne(t, w.r, Update{
			Caller: tc.c, Objects: []NewObject{tree, commit},
			Changes: []Change{{Ref: sessionA, Old: w.headA, New: commit.OID}},
		})
		if err != nil {
			t.Errorf("%s: %v, want it to go through", tc.name, err)
			continue
		}
		if err := updateOne(t, w.r, Update{Caller: someone, Changes: []Change{{Ref: sessionA, Old: commit.OID, New: w.headA}}}); err != nil {
			t.Fatalf("%s: move session A back: %v", tc.name, err)
		}
	}
	for _, tc := range []struct {
		name string
		oid  refpolicy.OID
		typ  ObjectType
		want error
	}{
		{"tag of the tip", w.headA, CommitObject, nil},
		{"tag of a blob in history", readme, BlobObject, nil},
		{"tag of a folder", folder, TreeObject, nil},
		{"tag of the tip as a tree", w.headA, TreeObject, ErrBadObject},
		{"tag of a blob as a commit", readme, CommitObject, ErrUnreachable},
	} {
		tag := newTagOn(tc.oid, tc.typ, "mine")
		name := refpolicy.RefName("refs/tags/mine/" + strings.ReplaceAll(tc.name, " ", "-"))
		err := updateOne(t, w.r, Update{Caller: w.c, Objects: []NewObject{tag}, Changes: []Change{{Ref: name, New: tag.OID}}})
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}

// A new tag or branch on what a readable tag names, together with new commits that
// need a search: proving must not take the tag for a commit.
func TestReachOverTags(t *testing.T) {
	w := newTwoSessions(t, openTestStore(t, nil), "tags")
	tag := newTagOn(w.headA, CommitObject, "one")
	if err := updateOne(t, w.r, Update{Caller: w.c, Objects: []NewObject{tag}, Changes: []Change{{Ref: "refs/tags/mine/one", New: tag.OID}}}); err != nil {
		t.Fatalf("first tag: %v", err)
	}
	tree := newTree(treeEntry{ModeFile, "moved", newBlob("deep in A\n").OID})
	commit := newCommitOn(tree.OID, w.headA)
	again := newTagOn(tag.OID, TagObject, "of-a-tag")
	res, err := w.r.Update(t.Context(), Update{
		Caller: w.c, Atomic: true, Objects: []NewObject{tree, commit, again},
		Changes: []Change{
			{Ref: "refs/tags/mine/two", New: tag.OID}, {Ref: "refs/tags/mine/three", New: again.OID},
			{Ref: sessionA, Old: w.headA, New: commit.OID},
		},
	})
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	for _, ref := range res.Refs {
		if ref.Err != nil {
			t.Errorf("%s: %v, want it to go through", ref.Ref, ref.Err)
		}
	}
}

// Malformed links between new objects are the client's fault, not ours.
func TestBadLinksAreVerdicts(t *testing.T) {
	w := newTwoSessions(t, openTestStore(t, nil), "links")
	blob, tree := newBlob("new\n"), newTree(treeEntry{ModeFile, "f", newBlob("new\n").OID})
	asFolder := newTree(treeEntry{ModeTree, "f", blob.OID})
	asFile := newTree(treeEntry{ModeFile, "f", tree.OID})
	chain := []NewObject{newCommitOn(emptyTree, w.headA)}
	for n := range peelLimit + 2 {
		last := chain[len(chain)-1]
		chain = append(chain, newTagOn(last.OID, last.Type, fmt.Sprint("t", n)))
	}
	for _, tc := range []struct {
		name    string
		ref     refpolicy.RefName
		old     refpolicy.OID
		objects []NewObject
	}{
		{"parent is a blob", sessionA, w.headA, []NewObject{blob, newCommitOn(emptyTree, blob.OID)}},
		{"parent is a tree", sessionA, w.headA, []NewObject{blob, tree, newCommitOn(emptyTree, tree.OID)}},
		{"tree is a blob", sessionA, w.headA, []NewObject{blob, newCommitOn(blob.OID, w.headA)}},
		{"folder is a blob", sessionA, w.headA, []NewObject{blob, asFolder, newCommitOn(asFolder.OID, w.headA)}},
		{"file is a tree", sessionA, w.headA, []NewObject{blob, tree, asFile, newCommitOn(asFile.OID, w.headA)}},
		{"tag says commit of a blob", "refs/tags/mine/t", refpolicy.OID{}, []NewObject{blob, newTagOn(blob.OID, CommitObject, "t")}},
		{"tags too deep", "refs/tags/mine/t", refpolicy.OID{}, chain},
		{"tag without a type", "refs/tags/mine/t", refpolicy.OID{}, []NewObject{newObject(TagObject, []byte("object "+w.headA.String()+"\n"))}},
	} {
		res, err := w.r.Update(t.Context(), Update{
			Caller: w.c, Objects: tc.objects, Changes: []Change{{Ref: tc.ref, Old: tc.old, New: tc.objects[len(tc.objects)-1].OID}},
		})
		if err != nil || !errors.Is(res.Refs[0].Err, ErrBadObject) {
			t.Errorf("%s: %+v, %v; want the verdict ErrBadObject", tc.name, res.Refs, err)
		}
	}
}

// Trees nested without end are refused, and what earlier pushes have stacked up
// higher than one may does no harm.
func TestDeepTreesAreBounded(t *testing.T) {
	w := newTwoSessions(t, openTestStore(t, nil), "deep")
	nest := func(inner refpolicy.OID, levels int) []NewObject {
		var trees []NewObject
		for range levels {
			o := newTree(treeEntry{ModeTree, "d", inner})
			trees, inner = append(trees, o), o.OID
		}
		return trees
	}
	leaf := newTree(treeEntry{ModeFile, "leaf", newBlob("leaf\n").OID})
	tooDeep := append([]NewObject{newBlob("leaf\n"), leaf}, nest(leaf.OID, maxTreeDepth)...)
	if err := w.push(t, append(tooDeep, newCommitOn(tooDeep[len(tooDeep)-1].OID, w.headA))...); !errors.Is(err, ErrBadObject) {
		t.Errorf("%d folders in each other: %v, want ErrBadObject", maxTreeDepth+1, err)
	}
	objects, top := []NewObject{newBlob("leaf\n"), leaf}, leaf.OID
	for range 3 {
		objects = append(objects, nest(top, maxTreeDepth-2)...)
		top = objects[len(objects)-1].OID
		commit := newCommitOn(top, w.headA)
		if err := w.push(t, append(objects, commit)...); err != nil {
			t.Fatalf("stack %d folders: %v", maxTreeDepth-2, err)
		}
		w.headA, objects = commit.OID, nil
	}
	moved := newTree(treeEntry{ModeFile, "moved", newBlob("leaf\n").OID})
	if err := w.push(t, moved, newCommitOn(moved.OID, w.headA)); err != nil {
		t.Errorf("name a file that an older commit has less deep: %v", err)
	}
}

// A proof that takes too long is not "missing".
func TestProofTimeout(t *testing.T) {
	s := openTestStore(t, func(o *Options) { o.Limits.ProofTimeout = time.Nanosecond })
	r := newTestRepo(t, s, "slow")
	head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1\n"}})
	tree := newTree(treeEntry{ModeFile, "moved", newBlob("1\n").OID})
	commit := newCommitOn(tree.OID, head.Commit)
	err := updateOne(t, r, Update{Caller: someone, Objects: []NewObject{tree, commit}, Changes: []Change{{Ref: mainRef, Old: head.Commit, New: commit.OID}}})
	if !errors.Is(err, ErrProofTimeout) {
		t.Errorf("update: %v, want ErrProofTimeout", err)
	}
}
