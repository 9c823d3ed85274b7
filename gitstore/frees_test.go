package gitstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// storedBytes adds up the entries of all objects, hot and in live packs.
func storedBytes(t testing.TB, r *Repo) (sum int64) {
	t.Helper()
	v, err := r.ledger.Read(t.Context(), r.space)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	defer v.Close()
	items, err := scanAll(t.Context(), v, hotKeys)
	if err != nil {
		t.Fatalf("scan hot objects: %v", err)
	}
	for _, it := range items {
		h, err := decodeHot(it.Value)
		if err != nil {
			t.Fatalf("decodeHot: %v", err)
		}
		sum += int64(len(packs.AppendHead(nil, packs.Type(h.typ), h.size)) + len(h.zdata))
	}
	_, list, err := r.livePacks(t.Context())
	if err != nil {
		t.Fatalf("livePacks: %v", err)
	}
	for _, l := range list {
		p, err := r.dir.Pack(l.name)
		if err != nil {
			t.Fatalf("open pack: %v", err)
		}
		for i := range p.Count() {
			n, err := p.StoredSize(p.OID(i))
			if err != nil {
				t.Errorf("StoredSize: %v", err)
			}
			sum += n
		}
		p.Release()
	}
	return sum
}

// wantFreed ends a branch and prunes: what was announced comes back, to within slack
// of what was announced, for what writing packs anew changes.
func wantFreed(t testing.TB, r *Repo, ref refpolicy.RefName, slack float64) int64 {
	t.Helper()
	if _, err := r.prune(t.Context(), true); err != nil { // so that nothing else goes
		t.Fatalf("prune: %v", err)
	}
	before := storedBytes(t, r)
	announced, err := r.Frees(t.Context(), ref)
	if err != nil {
		t.Fatalf("Frees(%s): %v", ref, err)
	}
	if err := r.DeleteBranch(t.Context(), someone, ref, nil); err != nil {
		t.Fatalf("DeleteBranch: %v", err)
	}
	if _, err := r.prune(t.Context(), true); err != nil {
		t.Fatalf("prune: %v", err)
	}
	freed := before - storedBytes(t, r)
	if diff := float64(announced - freed); diff > slack*float64(announced) || -diff > slack*float64(announced) {
		t.Errorf("the end of %s frees %d bytes, announced were %d", ref, freed, announced)
	}
	return announced
}

const (
	freeA = "refs/namespaces/ephemeral/refs/heads/free/a"
	freeB = "refs/namespaces/ephemeral/refs/heads/free/b"
	freeC = "refs/namespaces/ephemeral/refs/heads/free/c"
)

// What the end of a branch frees is what nobody else has, whoever has grown out of it.
func TestFreesIsWhatPruningGivesBack(t *testing.T) {
	commits := func(t *testing.T, r *Repo, ref, base refpolicy.RefName, n int) (last refpolicy.OID) {
		for i := range n {
			name := fmt.Sprint(strings.ReplaceAll(string(ref), "/", "-"), i)
			last = mustCommit(t, r, someone, testCommit{target: ref, base: base, files: map[string]string{
				name: noise(300 + 17*i + len(ref)), "d/e/" + name: name, "same": name,
			}}).Commit
		}
		return last
	}
	branch := func(t *testing.T, r *Repo, target refpolicy.RefName, base string, ephemeral bool) {
		if _, err := r.CreateBranch(t.Context(), someone, BranchSpec{Target: target, Base: base, BaseEphemeral: ephemeral, Force: true}); err != nil {
			t.Fatalf("CreateBranch(%s): %v", target, err)
		}
	}
	end := func(t *testing.T, r *Repo, ref refpolicy.RefName) {
		if err := r.DeleteBranch(t.Context(), someone, ref, nil); err != nil {
			t.Fatalf("DeleteBranch(%s): %v", ref, err)
		}
	}
	for name, grow := range map[string]func(t *testing.T, r *Repo) (none bool){
		"a session":         func(t *testing.T, r *Repo) bool { commits(t, r, freeA, mainRef, 4); return false },
		"nothing new on it": func(t *testing.T, r *Repo) bool { branch(t, r, freeA, "main", false); return true },
		"a child at its head": func(t *testing.T, r *Repo) bool {
			commits(t, r, freeA, mainRef, 4)
			branch(t, r, freeB, "free/a", true)
			return true
		},
		"a child that went on": func(t *testing.T, r *Repo) bool {
			commits(t, r, freeA, mainRef, 3)
			branch(t, r, freeB, "free/a", true)
			commits(t, r, freeB, "", 2)
			commits(t, r, freeA, "", 2)
			return false
		},
		"a child that ended": func(t *testing.T, r *Repo) bool {
			commits(t, r, freeA, mainRef, 2)
			branch(t, r, freeB, "free/a", true)
			commits(t, r, freeB, "", 2)
			end(t, r, freeB)
			return false
		},
		"a grandchild whose parent ended": func(t *testing.T, r *Repo) bool {
			commits(t, r, freeA, mainRef, 2)
			branch(t, r, freeB, "free/a", true)
			commits(t, r, freeB, "", 2)
			branch(t, r, freeC, "free/b", true)
			commits(t, r, freeC, "", 1)
			end(t, r, freeB)
			commits(t, r, freeA, "", 1)
			return false
		},
		"a parent that took it over and went on": func(t *testing.T, r *Repo) bool {
			commits(t, r, freeB, mainRef, 1)
			branch(t, r, freeA, "free/b", true)
			commits(t, r, freeA, "", 2)
			branch(t, r, freeB, "free/a", true)
			commits(t, r, freeB, "", 2)
			return true
		},
		"a child that was rewound": func(t *testing.T, r *Repo) bool {
			commits(t, r, freeA, mainRef, 2)
			branch(t, r, freeB, "free/a", true)
			commits(t, r, freeB, "", 2)
			branch(t, r, freeC, "free/b", true)
			commits(t, r, freeC, "", 1)
			branch(t, r, freeB, "main", false)
			return true
		},
		"a child that was made anew elsewhere": func(t *testing.T, r *Repo) bool {
			commits(t, r, freeA, mainRef, 2)
			branch(t, r, freeB, "free/a", true)
			branch(t, r, freeC, "free/b", true)
			commits(t, r, freeC, "", 1)
			end(t, r, freeB)
			branch(t, r, freeB, "main", false)
			return true
		},
		"a pin below its head": func(t *testing.T, r *Repo) bool {
			at := commits(t, r, freeA, mainRef, 2)
			if _, err := r.Pin(t.Context(), someone, PinSpec{OID: at, Holder: "h"}); err != nil {
				t.Fatalf("Pin: %v", err)
			}
			commits(t, r, freeA, "", 2)
			return false
		},
		"a pin on what a child made": func(t *testing.T, r *Repo) bool {
			commits(t, r, freeA, mainRef, 2)
			branch(t, r, freeB, "free/a", true)
			at := commits(t, r, freeB, "", 2)
			u := Update{Caller: someone, Changes: []Change{{Ref: freeC, New: at}}, Pins: []NewPin{{ID: NewPinID(), OID: at, Holder: "h"}}}
			if res, err := r.Update(t.Context(), u); err != nil || res.Refusal() != nil {
				t.Fatalf("Update: %+v, %v", res, err)
			}
			end(t, r, freeB)
			end(t, r, freeC)
			return true
		},
		"a state it went back to": func(t *testing.T, r *Repo) bool {
			mustCommit(t, r, someone, testCommit{target: freeA, base: mainRef, files: map[string]string{"a": "changed"}})
			mustCommit(t, r, someone, testCommit{target: freeA, files: map[string]string{"a": "0\n"}})
			return false
		},
		"a merge of it into main": func(t *testing.T, r *Repo) bool {
			commits(t, r, freeA, mainRef, 2)
			mergeInto(t, r, mainRef, freeA)
			commits(t, r, mainRef, "", 1)
			return true
		},
	} {
		for _, settled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, settled: %v", name, settled), func(t *testing.T) {
				r := newTestRepo(t, openTestStore(t, nil), "repo")
				mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n", "x/y/z": noise(500)}})
				none := grow(t, r)
				slack := 0.0
				if settled {
					slack = 0.2
					if err := r.Settle(t.Context()); err != nil {
						t.Fatalf("Settle: %v", err)
					}
				}
				if n := wantFreed(t, r, freeA, slack); (n == 0) != none {
					t.Errorf("announced were %d bytes, want none: %v", n, none)
				}
			})
		}
	}
	r := newTestRepo(t, openTestStore(t, nil), "repo")
	if _, err := r.Frees(t.Context(), freeA); !errors.Is(err, ErrRefNotFound) {
		t.Errorf("Frees of no ref: %v, want ErrRefNotFound", err)
	}
}

// mergeInto makes a merge commit of two refs on the first.
func mergeInto(t *testing.T, r *Repo, into, from refpolicy.RefName) {
	t.Helper()
	heads, err := r.Heads(t.Context(), into, from)
	if err != nil {
		t.Fatalf("Heads: %v", err)
	}
	res, err := mergeCommit(t.Context(), r, into, heads[0].OID, heads[1].OID)
	if err != nil || res.Refusal() != nil {
		t.Fatalf("merge: %+v, %v", res, err)
	}
}

// mergeCommit moves a ref from one commit to one with it and another as parents.
func mergeCommit(ctx context.Context, r *Repo, ref refpolicy.RefName, at, other refpolicy.OID) (UpdateResult, error) {
	h, err := graph{r, noFresh}.commit(ctx, other)
	if err != nil {
		return UpdateResult{}, err
	}
	who := Signature{Name: "A", Email: "a@example.com"}
	o := newObject(CommitObject, encodeCommit(h.tree, []refpolicy.OID{at, other}, who, who, "merge"))
	return r.Update(ctx, Update{Caller: someone, Changes: []Change{{Ref: ref, Old: at, New: o.OID}}, Objects: []NewObject{o}})
}

// Whatever refs and pins have come, gone and joined, asking those that joined finds
// the commits that asking everybody finds.
func TestLinesFindWhatAllRefsTell(t *testing.T) {
	fewerChecks(t, 8)
	s := openTestStore(t, nil)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		r := newTestRepo(t, s, fmt.Sprint("repo-", n))
		m := lineMachine{t: t, r: r, refs: map[refpolicy.RefName]refpolicy.OID{}}
		m.refs[mainRef] = mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"n": "0"}}).Commit
		m.all = append(m.all, m.refs[mainRef])
		rt.Repeat(map[string]func(*rapid.T){
			"commit": m.commit, "commit again": m.commit, "branch": m.branch, "move": m.move, "merge": m.merge, "end": m.end, "pin": m.pin,
			"prune": m.prune, "push again": m.pushAgain, "": m.check,
		})
	})
}

type lineMachine struct {
	t    *testing.T
	r    *Repo
	refs map[refpolicy.RefName]refpolicy.OID
	all  []refpolicy.OID
	pins []string
	n    int
}

func (m *lineMachine) draw(rt *rapid.T) refpolicy.RefName {
	return rapid.SampledFrom([]refpolicy.RefName{mainRef, freeA, freeB, freeC, "refs/heads/x"}).Draw(rt, "ref")
}

func (m *lineMachine) existing(rt *rapid.T) (refpolicy.RefName, refpolicy.OID) {
	ref := m.draw(rt)
	if m.refs[ref].IsZero() {
		ref = mainRef
	}
	return ref, m.refs[ref]
}

func (m *lineMachine) update(rt *rapid.T, u Update) {
	u.Caller = someone
	res, err := m.r.Update(m.t.Context(), u)
	if err != nil || errors.Is(res.Refusal(), ErrDefaultBranch) {
		return
	}
	if err := res.Refusal(); errors.Is(err, ErrUnreachable) {
		return // what nobody reaches any more
	} else if err != nil {
		rt.Fatalf("Update(%+v): %v", u, err)
	}
	for _, c := range u.Changes {
		if c.New.IsZero() {
			delete(m.refs, c.Ref)
		} else {
			m.refs[c.Ref] = c.New
			m.all = append(m.all, c.New)
		}
	}
}

// objects is a commit with a tree of its own, and an odd date.
func (m *lineMachine) objects(rt *rapid.T, parents ...refpolicy.OID) (refpolicy.OID, []NewObject) {
	m.n++
	blob := newObject(BlobObject, []byte(fmt.Sprint(m.n)))
	tree := newObject(TreeObject, encodeTree([]treeEntry{{ModeFile, "f", blob.OID}}))
	raw := fmt.Sprintf("tree %s\n", tree.OID)
	for _, p := range parents {
		raw += fmt.Sprintf("parent %s\n", p)
	}
	date := rapid.IntRange(1, 1000).Draw(rt, "date")
	raw += fmt.Sprintf("author A <a@b.c> %d +0000\ncommitter A <a@b.c> %d +0000\n\nm%d\n", date, date, m.n)
	commit := newObject(CommitObject, []byte(raw))
	return commit.OID, []NewObject{blob, tree, commit}
}

func (m *lineMachine) commit(rt *rapid.T) {
	ref, at := m.existing(rt)
	oid, objects := m.objects(rt, at)
	m.update(rt, Update{Changes: []Change{{Ref: ref, Old: at, New: oid}}, Objects: objects})
}

func (m *lineMachine) branch(rt *rapid.T) {
	_, at := m.existing(rt)
	var changes []Change
	for _, ref := range []refpolicy.RefName{m.draw(rt), m.draw(rt)} {
		if m.refs[ref].IsZero() && (len(changes) == 0 || changes[0].Ref != ref) {
			changes = append(changes, Change{Ref: ref, New: at})
		}
	}
	u := Update{Atomic: true, Changes: changes}
	if rapid.Bool().Draw(rt, "fresh") { // the branches begin with a commit of their own
		oid, objects := m.objects(rt, at)
		for n := range u.Changes {
			u.Changes[n].New, u.Objects = oid, objects
		}
	}
	m.update(rt, u)
}

func (m *lineMachine) move(rt *rapid.T) {
	ref, at := m.existing(rt)
	m.update(rt, Update{Changes: []Change{{Ref: ref, Old: at, New: rapid.SampledFrom(m.all).Draw(rt, "to")}}})
}

func (m *lineMachine) merge(rt *rapid.T) {
	ref, at := m.existing(rt)
	_, other := m.existing(rt)
	oid, objects := m.objects(rt, at, other)
	m.update(rt, Update{Changes: []Change{{Ref: ref, Old: at, New: oid}}, Objects: objects})
}

func (m *lineMachine) end(rt *rapid.T) {
	ref, at := m.existing(rt)
	m.update(rt, Update{Changes: []Change{{Ref: ref, Old: at}}})
}

func (m *lineMachine) pin(rt *rapid.T) {
	if len(m.pins) > 0 && rapid.Bool().Draw(rt, "let go") {
		if err := m.r.Unpin(m.t.Context(), someone, m.pins[0], nil); err != nil {
			rt.Fatalf("Unpin: %v", err)
		}
		m.pins = m.pins[1:]
		return
	}
	p, err := m.r.Pin(m.t.Context(), someone, PinSpec{OID: rapid.SampledFrom(m.all).Draw(rt, "pinned"), Holder: "h"})
	if err == nil {
		m.pins = append(m.pins, p.ID)
	}
}

func (m *lineMachine) prune(rt *rapid.T) {
	if _, err := m.r.prune(m.t.Context(), true); err != nil {
		rt.Fatalf("prune: %v", err)
	}
}

// pushAgain brings a stored commit once more, as one does who cannot see it.
func (m *lineMachine) pushAgain(rt *rapid.T) {
	ref, at := m.existing(rt)
	oid := rapid.SampledFrom(m.all).Draw(rt, "again")
	o, err := m.r.object(m.t.Context(), oid)
	if err != nil {
		return // it was pruned
	}
	m.update(rt, Update{Changes: []Change{{Ref: ref, Old: at, New: oid}}, Objects: []NewObject{{OID: oid, Type: CommitObject, Data: o.data}}})
}

// check compares what the lines tell with what asking all refs and pins does.
func (m *lineMachine) check(rt *rapid.T) {
	for ref := range m.refs {
		fast, err := m.r.Frees(m.t.Context(), ref)
		if err != nil {
			rt.Fatalf("Frees(%s): %v", ref, err)
		}
		slow, err := m.slowFrees(ref)
		if err != nil || fast != slow {
			rt.Fatalf("Frees(%s) = %d, asking everybody finds %d, %v", ref, fast, slow, err)
		}
	}
}

// slowFrees is Frees as of a repo that was made before lines were kept.
func (m *lineMachine) slowFrees(ref refpolicy.RefName) (int64, error) {
	_, err := m.r.ledger.Apply(m.t.Context(), ledger.Batch{Space: m.r.space, Deletes: []string{linesKey}})
	if err != nil {
		return 0, err
	}
	n, err := m.r.Frees(m.t.Context(), ref)
	_, err2 := m.r.ledger.Apply(m.t.Context(), ledger.Batch{Space: m.r.space, Sets: []ledger.Set{{Key: linesKey}}})
	return n, errors.Join(err, err2)
}

// What was known of the lines of a branch goes when it is gone and nobody joined it.
func TestPruneForgetsLines(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "repo")
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}})
	mustCommit(t, r, someone, testCommit{target: freeA, base: mainRef, files: map[string]string{"a": "1\n"}})
	at := mustCommit(t, r, someone, testCommit{target: freeB, base: freeA, files: map[string]string{"a": "2\n"}}).Commit
	pin, err := r.Pin(t.Context(), someone, PinSpec{OID: at, Holder: "h"})
	if err != nil {
		t.Fatalf("Pin: %v", err)
	}
	left := func(want int) {
		t.Helper()
		v, err := r.ledger.Read(t.Context(), r.space)
		if err != nil {
			t.Fatalf("Read: %v", err)
		}
		defer v.Close()
		var keys []string
		for _, prefix := range []string{joinKeys, cutKeys} {
			items, err := scanAll(t.Context(), v, prefix)
			if err != nil {
				t.Fatalf("scan %s: %v", prefix, err)
			}
			for _, it := range items {
				keys = append(keys, it.Key)
			}
		}
		if len(keys) != want {
			t.Errorf("%d keys about lines, want %d: %q", len(keys), want, keys)
		}
	}
	prune := func() {
		t.Helper()
		if _, err := r.prune(t.Context(), true); err != nil {
			t.Fatalf("prune: %v", err)
		}
	}
	left(3) // a on main's, b on a's, the pin on b's
	for _, ref := range []refpolicy.RefName{freeA, freeB} {
		if err := r.DeleteBranch(t.Context(), someone, ref, nil); err != nil {
			t.Fatalf("DeleteBranch: %v", err)
		}
	}
	prune()
	left(5) // and two that were cut: the pin is on the one's line, which is on the other's
	if err := r.Unpin(t.Context(), someone, pin.ID, nil); err != nil {
		t.Fatalf("Unpin: %v", err)
	}
	for range 5 {
		prune()
	}
	left(0)
}
