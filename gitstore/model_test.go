package gitstore

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// model is what a repo should hold: refs, and of each commit its files and parents.
type model struct {
	refs    map[refpolicy.RefName]refpolicy.OID
	files   map[refpolicy.OID]map[string]string
	parents map[refpolicy.OID][]refpolicy.OID
	made    []refpolicy.OID // commits in the order they were made
}

func newModel() *model {
	return &model{map[refpolicy.RefName]refpolicy.OID{}, map[refpolicy.OID]map[string]string{}, map[refpolicy.OID][]refpolicy.OID{}, nil}
}

// reaches reports whether tip is oid or comes after it.
func (m *model) reaches(tip, oid refpolicy.OID) bool {
	return tip == oid || slices.ContainsFunc(m.parents[tip], func(p refpolicy.OID) bool { return m.reaches(p, oid) })
}

func (m *model) reachable(oid refpolicy.OID) bool {
	for _, tip := range m.refs {
		if m.reaches(tip, oid) {
			return true
		}
	}
	return false
}

// clashes reports whether a ref of that name cannot be created beside the others.
func clashes(name refpolicy.RefName, others ...refpolicy.RefName) bool {
	return slices.ContainsFunc(others, func(o refpolicy.RefName) bool {
		return strings.HasPrefix(string(o), string(name)+"/") || strings.HasPrefix(string(name), string(o)+"/")
	})
}

// verdict is the kind of an answer.
type modelVerdict string

const (
	fine       modelVerdict = "done"
	isMoved    modelVerdict = "ref moved"
	isClash    modelVerdict = "name clash"
	isMissing  modelVerdict = "ref not found"
	isSame     modelVerdict = "no changes"
	isInvalid  modelVerdict = "invalid"
	isThere    modelVerdict = "ref exists"
	isDefault  modelVerdict = "default branch"
	isUnproved modelVerdict = "unreachable"
	isNoForce  modelVerdict = "not a fast-forward"
	isAtomic   modelVerdict = "atomic"
)

func verdictOf(err error) modelVerdict {
	var moved *RefMovedError
	var clash *NameClashError
	switch {
	case err == nil:
		return fine
	case errors.As(err, &moved):
		return isMoved
	case errors.As(err, &clash):
		return isClash
	}
	for _, v := range []struct {
		err error
		is  modelVerdict
	}{
		{ErrRefNotFound, isMissing}, {ErrObjectNotFound, isMissing}, {ErrNoChanges, isSame}, {ErrInvalid, isInvalid}, {ErrRefExists, isThere},
		{ErrDefaultBranch, isDefault}, {ErrUnreachable, isUnproved}, {ErrNotFastForward, isNoForce}, {ErrAtomic, isAtomic},
	} {
		if errors.Is(err, v.err) {
			return v.is
		}
	}
	return modelVerdict("failure: " + err.Error())
}

// machine runs random operations on a store and on the model.
type machine struct {
	t     *testing.T
	open  opener
	dir   string
	name  string
	store *Store
	db    ledger.Ledger
	repo  *Repo
	m     *model
}

var modelRefs = []refpolicy.RefName{
	mainRef, "refs/heads/a", "refs/heads/a/b", "refs/heads/a/b/c", "refs/heads/d",
	"refs/namespaces/ephemeral/refs/heads/a", "refs/namespaces/ephemeral/refs/heads/a/b",
}

func (s *machine) start() {
	s.db = s.open(s.t)
	var err error
	if s.store, err = Open(context.Background(), Options{Dir: s.dir, Ledger: s.db, Limits: Limits{SettleObjects: 40, HotPackBytes: 2000}}); err != nil {
		s.t.Fatalf("Open: %v", err)
	}
}

func (s *machine) openRepo() {
	var err error
	if s.repo, err = s.store.Repo(context.Background(), "acme", s.name); err != nil {
		s.t.Fatalf("Repo(%s): %v", s.name, err)
	}
}

func (s *machine) stop() {
	if err := s.store.Close(context.Background()); err != nil {
		s.t.Errorf("Close: %v", err)
	}
	if err := s.db.Close(); err != nil {
		s.t.Errorf("close ledger: %v", err)
	}
}

func (s *machine) wantVerdict(rt *rapid.T, what string, err error, want modelVerdict) {
	rt.Helper()
	if got := verdictOf(err); got != want {
		rt.Fatalf("%s on %v: %q (%v), want %q", what, s.m.refs, got, err, want)
	}
}

func (s *machine) drawRef(rt *rapid.T, label string) refpolicy.RefName {
	return rapid.SampledFrom(modelRefs).Draw(rt, label)
}

// drawOID gives a commit that was made once, or the value of a ref, or the zero oid.
func (s *machine) drawOID(rt *rapid.T, label string, of refpolicy.OID) refpolicy.OID {
	switch k := rapid.IntRange(0, 5).Draw(rt, label); {
	case k < 3:
		return of
	case k < 5 && len(s.m.made) > 0:
		return rapid.SampledFrom(s.m.made).Draw(rt, label+" made")
	}
	return refpolicy.OID{}
}

func (s *machine) Commit(rt *rapid.T) {
	tc := testCommit{target: s.drawRef(rt, "target"), files: map[string]string{}}
	for range rapid.IntRange(0, 3).Draw(rt, "files") {
		path := rapid.SampledFrom([]string{"x", "y", "x/y", "z/1", "z/2"}).Draw(rt, "path")
		text := rapid.SampledFrom([]string{"", "1\n", "2\n", strings.Repeat("large ", 500)}).Draw(rt, "text")
		tc.files[path] = text
	}
	if len(tc.files) > 1 { // the order of several would decide who is in the way
		delete(tc.files, "x")
	}
	if rapid.Bool().Draw(rt, "with base") {
		tc.base = s.drawRef(rt, "base")
	}
	present, exists := s.m.refs[tc.target]
	if !exists && tc.base != "" {
		present = s.m.refs[tc.base]
	}
	guarded := rapid.Bool().Draw(rt, "guarded")
	expected := s.drawOID(rt, "expected", present)
	if guarded {
		tc.expected = expected.String()
	}
	res, err := tc.make(context.Background(), s.repo, someone)
	want, parent, after := s.expectCommit(tc, guarded, expected)
	s.wantVerdict(rt, fmt.Sprintf("commit %+v", tc), err, want)
	if err != nil {
		return
	}
	s.m.refs[tc.target], s.m.files[res.Commit] = res.Commit, after
	if !parent.IsZero() {
		s.m.parents[res.Commit] = []refpolicy.OID{parent}
	}
	s.m.made = append(s.m.made, res.Commit)
}

// expectCommit is what the model says of a commit: verdict, parent, files after it.
func (s *machine) expectCommit(tc testCommit, guarded bool, expected refpolicy.OID) (modelVerdict, refpolicy.OID, map[string]string) {
	parent, exists := s.m.refs[tc.target]
	switch {
	case exists:
	case tc.base != "":
		var ok bool
		if parent, ok = s.m.refs[tc.base]; !ok {
			return isMissing, parent, nil
		}
	case guarded && !expected.IsZero():
		return isMoved, parent, nil
	case len(s.m.refs) > 0:
		return isMissing, parent, nil
	}
	if guarded && expected != parent {
		return isMoved, parent, nil
	}
	after := maps.Clone(s.m.files[parent])
	if after == nil {
		after = map[string]string{}
	}
	for path, text := range tc.files {
		if text == "" {
			for p := range after {
				if p == path || strings.HasPrefix(p, path+"/") {
					delete(after, p)
				}
			}
		}
	}
	for path, text := range tc.files {
		if text == "" {
			continue
		}
		for p := range after {
			if strings.HasPrefix(p, path+"/") || strings.HasPrefix(path, p+"/") {
				return isInvalid, parent, nil
			}
		}
		after[path] = text
	}
	if maps.Equal(after, s.m.files[parent]) || len(after) == 0 && parent.IsZero() {
		return isSame, parent, nil
	}
	if !exists && clashes(tc.target, slices.Collect(maps.Keys(s.m.refs))...) {
		return isClash, parent, nil
	}
	return fine, parent, after
}

func (s *machine) CreateBranch(rt *rapid.T) {
	b := BranchSpec{Target: s.drawRef(rt, "target"), Force: rapid.Bool().Draw(rt, "force")}
	base := s.drawOID(rt, "base", s.m.refs[s.drawRef(rt, "base ref")])
	b.Base = base.String()
	_, err := s.repo.CreateBranch(context.Background(), someone, b)
	_, exists := s.m.refs[b.Target]
	want := fine
	switch {
	case base.IsZero():
		want = isMissing
	case exists && !b.Force:
		want = isThere
	case !exists && clashes(b.Target, slices.Collect(maps.Keys(s.m.refs))...):
		want = isClash
	case !s.m.reachable(base):
		want = isMissing
	}
	s.wantVerdict(rt, fmt.Sprintf("branch %+v", b), err, want)
	if err == nil {
		s.m.refs[b.Target] = base
	}
}

func (s *machine) DeleteBranch(rt *rapid.T) {
	name := s.drawRef(rt, "name")
	err := s.repo.DeleteBranch(context.Background(), someone, name, nil)
	want := fine
	if _, exists := s.m.refs[name]; !exists {
		want = isMissing
	} else if name == mainRef {
		want = isDefault
	}
	s.wantVerdict(rt, "delete "+string(name), err, want)
	if err == nil {
		delete(s.m.refs, name)
	}
}

func (s *machine) Update(rt *rapid.T) {
	u := Update{Caller: someone, Atomic: rapid.Bool().Draw(rt, "atomic")}
	for range rapid.IntRange(1, 4).Draw(rt, "changes") {
		name := s.drawRef(rt, "ref")
		u.Changes = append(u.Changes, Change{
			Ref: name, Old: s.drawOID(rt, "old", s.m.refs[name]), New: s.drawOID(rt, "new", s.m.refs[s.drawRef(rt, "like")]),
			NoForce: rapid.Bool().Draw(rt, "no force"),
		})
	}
	res, err := s.repo.Update(context.Background(), u)
	if err != nil {
		rt.Fatalf("Update(%+v): %v", u, err)
	}
	want := s.expectUpdate(u)
	for i, ref := range res.Refs {
		if verdictOf(ref.Err) != want[i] {
			rt.Fatalf("Update(%+v) on %v: change %d is %v, want %q", u, s.m.refs, i, ref.Err, want[i])
		}
		if ref.Err == nil && ref.New.IsZero() {
			delete(s.m.refs, ref.Ref)
		} else if ref.Err == nil {
			s.m.refs[ref.Ref] = ref.New
		}
	}
}

// expectUpdate gives the verdicts in the stages of the door: names, values, reach,
// tips. A refusal of an atomic update ends it at its stage.
func (s *machine) expectUpdate(u Update) []modelVerdict {
	v := make([]modelVerdict, len(u.Changes))
	stage := func(judge func(i int, c Change) modelVerdict) {
		for i, c := range u.Changes {
			if v[i] == "" {
				v[i] = judge(i, c)
			}
		}
		if u.Atomic && slices.ContainsFunc(v, func(x modelVerdict) bool { return x != "" }) {
			for i := range v {
				if v[i] == "" {
					v[i] = isAtomic
				}
			}
		}
	}
	stage(func(i int, c Change) modelVerdict {
		if slices.ContainsFunc(u.Changes[:i], func(o Change) bool { return o.Ref == c.Ref }) {
			return isInvalid
		}
		return ""
	})
	names := slices.Collect(maps.Keys(s.m.refs))
	stage(func(i int, c Change) modelVerdict {
		present, exists := s.m.refs[c.Ref]
		switch {
		case present != c.Old:
			return isMoved
		case !exists && !c.New.IsZero() && clashes(c.Ref, names...):
			return isClash
		case exists && c.New.IsZero() && c.Ref == mainRef, !exists && c.New.IsZero() && c.Ref == mainRef:
			return isDefault
		}
		if !exists && !c.New.IsZero() {
			names = append(names, c.Ref)
		}
		return ""
	})
	stage(func(_ int, c Change) modelVerdict {
		if !c.New.IsZero() && !s.m.reachable(c.New) {
			return isUnproved
		}
		return ""
	})
	stage(func(_ int, c Change) modelVerdict {
		if c.NoForce && !c.Old.IsZero() && !c.New.IsZero() && !s.m.reaches(c.New, c.Old) {
			return isNoForce
		}
		return ""
	})
	for i := range v {
		if v[i] == "" {
			v[i] = fine
		}
	}
	return v
}

func (s *machine) Settle(rt *rapid.T) {
	if err := s.repo.Settle(context.Background()); err != nil {
		rt.Fatalf("Settle: %v", err)
	}
}

func (s *machine) Reopen(rt *rapid.T) {
	s.stop()
	s.start()
	s.openRepo()
	s.look(rt)
}

func (s *machine) DeleteRepo(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "really") > 0 {
		return
	}
	ctx := context.Background()
	if _, err := s.store.DeleteRepo(ctx, someone, "acme", s.name, nil); err != nil {
		rt.Fatalf("DeleteRepo: %v", err)
	}
	if _, err := s.store.Repo(ctx, "acme", s.name); !errors.Is(err, ErrRepoNotFound) {
		rt.Fatalf("Repo after DeleteRepo: %v, want ErrRepoNotFound", err)
	}
	if _, err := s.store.CreateRepo(ctx, someone, "acme", s.name, "main", nil); err != nil {
		rt.Fatalf("CreateRepo: %v", err)
	}
	s.m = newModel()
	s.openRepo()
}

// Check compares the refs after each operation.
func (s *machine) Check(rt *rapid.T) {
	refs, err := s.repo.Refs(context.Background(), someone, "refs/", "", 0)
	if err != nil {
		rt.Fatalf("Refs: %v", err)
	}
	got := map[refpolicy.RefName]refpolicy.OID{}
	for _, ref := range refs {
		got[ref.Name] = ref.OID
	}
	if !maps.Equal(got, s.m.refs) {
		rt.Fatalf("refs are %v, want %v", got, s.m.refs)
	}
}

// look compares everything: files, objects, the lists of branches, the log.
func (s *machine) look(rt *rapid.T) {
	ctx := context.Background()
	if err := checkComplete(ctx, s.repo); err != nil {
		rt.Fatalf("objects: %v", err)
	}
	for _, tip := range s.m.refs {
		got, err := filesAt(ctx, s.repo, tip)
		if err != nil || !maps.Equal(got, s.m.files[tip]) {
			rt.Fatalf("files at %s are %v, %v; want %v", tip, got, err, s.m.files[tip])
		}
	}
	for _, ephemeral := range []bool{false, true} {
		page, err := s.repo.Branches(ctx, someone, ephemeral, "", 100)
		if err != nil {
			rt.Fatalf("Branches: %v", err)
		}
		n := 0
		for name := range s.m.refs {
			if name.IsEphemeralBranch() == ephemeral {
				n++
			}
		}
		for _, b := range page.Branches {
			if b.OID != s.m.refs[b.Name] || b.OID.IsZero() {
				rt.Fatalf("listed branch %s is at %s, want %s", b.Name, b.OID, s.m.refs[b.Name])
			}
		}
		if len(page.Branches) != n {
			rt.Fatalf("%d branches are listed (ephemeral %v), want %d", len(page.Branches), ephemeral, n)
		}
	}
	if got, err := replayLog(ctx, s.repo); err != nil || !maps.Equal(got, s.m.refs) {
		rt.Fatalf("the log replays to %v, %v; want %v", got, err, s.m.refs)
	}
}

// filesAt reads all files of a commit.
func filesAt(ctx context.Context, r *Repo, commit refpolicy.OID) (map[string]string, error) {
	entries, _, err := r.Tree(ctx, commit, ListTree{Recursive: true})
	files := map[string]string{}
	for _, e := range entries {
		if e.Mode == ModeTree {
			continue
		}
		if files[e.Path], err = readPath(ctx, r, commit, e.Path); err != nil {
			return nil, err
		}
	}
	return files, err
}

// replayLog plays a repo's log from its beginning and gives the refs it ends with.
// It fails if a number is missing or a change does not begin where the last one ended.
func replayLog(ctx context.Context, r *Repo) (map[refpolicy.RefName]refpolicy.OID, error) {
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	refs := map[refpolicy.RefName]refpolicy.OID{}
	for last := uint64(0); ; {
		entries, err := v.Log(ctx, last, 100)
		if err != nil || len(entries) == 0 {
			return refs, err
		}
		for _, e := range entries {
			if e.Seq != last+1 {
				return nil, fmt.Errorf("entry %d follows %d", e.Seq, last)
			}
			last = e.Seq
			var entry LogEntry
			if err := json.Unmarshal(e.Data, &entry); err != nil {
				return nil, err
			}
			for _, c := range entry.Changes {
				if refs[c.Ref] != c.Old {
					return nil, fmt.Errorf("entry %d moves %s from %s, it was at %s", e.Seq, c.Ref, c.Old, refs[c.Ref])
				}
				if refs[c.Ref] = c.New; c.New.IsZero() {
					delete(refs, c.Ref)
				}
			}
		}
	}
}

// fewerChecks has rapid run n times unless it was told how often.
func fewerChecks(t *testing.T, n int) {
	t.Helper()
	f := flag.Lookup("rapid.checks")
	if f == nil || f.Value.String() != f.DefValue {
		return
	}
	if err := f.Value.Set(fmt.Sprint(n)); err != nil {
		t.Fatalf("set rapid.checks: %v", err)
	}
	t.Cleanup(func() { _ = f.Value.Set(f.DefValue) })
}

// Random operations, with the store closed and opened again between them, do to
// refs, files and log what they do to a simple model.
func TestRepoBehavesLikeItsModel(t *testing.T) {
	fewerChecks(t, 12)
	onEveryEngine(t, func(t *testing.T, start func(testing.TB) opener) {
		n := 0
		rapid.Check(t, func(rt *rapid.T) {
			n++
			s := &machine{t: t, open: start(t), dir: t.TempDir(), name: fmt.Sprint("repo-", n), m: newModel()}
			s.start()
			defer func() { s.stop() }()
			if _, err := s.store.CreateRepo(t.Context(), someone, "acme", s.name, "main", nil); err != nil {
				rt.Fatalf("CreateRepo: %v", err)
			}
			s.openRepo()
			rt.Repeat(map[string]func(*rapid.T){
				"commit": s.Commit, "commit again": s.Commit, "commit more": s.Commit, "create branch": s.CreateBranch, "delete branch": s.DeleteBranch,
				"update": s.Update, "update again": s.Update, "settle": s.Settle, "reopen": s.Reopen, "delete repo": s.DeleteRepo, "": s.Check,
			})
			s.look(rt)
		})
	})
}
