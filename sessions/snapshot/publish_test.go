package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

func TestCase14_4_RefusedBeforeDataIsRead(t *testing.T) {
	w := newWorld(t, Limits{})
	owner := w.session("s", OID{})
	owner.Labels = map[string]string{"arch": "amd64"}
	w.session("other", OID{})
	foreign := w.save(t, "other", "x")
	for _, tc := range []struct {
		name  string
		spec  SaveSpec
		field string
	}{
		{"version", SaveSpec{Format: 99}, "format"},
		{"an unknown requirement", SaveSpec{Requires: []string{"teleport"}}, "teleport"},
		{"arch", SaveSpec{Machine: map[string]string{"arch": "arm64"}}, "machine.arch"},
		{"a missing base", SaveSpec{Base: OID{1}}, "base"},
		{"a base of another session", SaveSpec{Base: foreign.Commit}, "base"},
		{"chunk size", SaveSpec{Parts: []PartSpec{{ChunkBytes: 5000}}}, "chunk_bytes"},
		{"a size that cannot fit", SaveSpec{Parts: []PartSpec{{Size: MaxImage + 1}}}, "size_bytes"},
		{"sizes that cannot fit together", SaveSpec{Parts: []PartSpec{{Size: MaxImage}, {Name: "b", Size: 1}}}, "size_bytes"},
		{"a name twice", SaveSpec{Parts: []PartSpec{{}, {}}}, "parts"},
		{"an envelope", SaveSpec{Envelope: json.RawMessage(`"`)}, "envelope"},
		{"a field of our own", SaveSpec{Extra: map[string]json.RawMessage{"parts": json.RawMessage("1")}}, "parts"},
	} {
		tc.spec.Session = "s"
		_, err := w.k.plan(t.Context(), w.as(backend()), &tc.spec)
		var field *FieldError
		if !errors.As(err, &field) || field.Field != tc.field {
			t.Errorf("%s: %v, want field %s", tc.name, err, tc.field)
		}
	}
	kept := SaveSpec{Session: "s", Machine: map[string]string{"arch": "amd64"}, Extra: map[string]json.RawMessage{"colour": json.RawMessage(`"blue"`)}}
	if p, err := w.k.plan(t.Context(), w.as(backend()), &kept); err != nil || string(p.spec.Extra["colour"]) != `"blue"` {
		t.Errorf("an unknown optional field: %v", err)
	}
}

func TestPlanLooksAtTheSession(t *testing.T) {
	w := newWorld(t, Limits{})
	owner := w.session("s", OID{})
	plan := func(repo *fakeRepo, s SaveSpec) error {
		s.Session = "s"
		_, err := w.k.plan(t.Context(), repo, &s)
		return err
	}
	blind, mute := w.as(backend()), w.as(backend())
	blind.canRead = func(string) bool { return false }
	mute.mayWrite = func(ref string) bool { return ref != RefPrefix+"s" }
	stale := errors.New("stale")
	none := OID{}
	for _, tc := range []struct {
		name string
		set  func()
		repo *fakeRepo
		spec SaveSpec
		want error
	}{
		{"who may not read", func() {}, blind, SaveSpec{}, ErrNoSession},
		{"who may not write its snapshot ref", func() {}, mute, SaveSpec{}, errDenied},
		{"a token of another session", func() {}, w.as(Actor{Org: "acme", Session: "x"}), SaveSpec{}, errDenied},
		{"a workspace that is not there", func() {}, w.as(backend()), SaveSpec{Workspace: OID{9}}, ErrNoObject},
		{"a move to nowhere", func() {}, w.as(backend()), SaveSpec{MoveWorkspace: true}, ErrInvalid},
		{"a negative time", func() {}, w.as(backend()), SaveSpec{TTLUnused: -1}, ErrInvalid},
		{"it expects nothing, and that holds", func() {}, w.as(backend()), SaveSpec{ExpectedHead: &none}, nil},
		{"it demands sealed saves", func() { owner.CaptureKey = testKey }, w.as(backend()), SaveSpec{}, ErrSealNeeded},
		{"to its own key", func() {}, w.as(backend()), SaveSpec{Envelope: json.RawMessage(`{"capture_key_id":"0011223344556677"}`)}, ErrSealNeeded},
		{"its state lets no save", func() { owner.Closed = stale }, w.as(backend()), SaveSpec{}, stale},
		{"it has ended", func() { owner.Live = false }, w.as(backend()), SaveSpec{}, ErrNoSession},
	} {
		tc.set()
		if err := plan(tc.repo, tc.spec); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	if id := captureKeyID(testKey); id != testKeyID {
		t.Errorf("id of a capture key: %s, want %s", id, testKeyID)
	}
}

// testKey is an X25519 public key, and testKeyID what sealing calls it.
const (
	testKey = `-----BEGIN PUBLIC KEY-----
MCowBQYDK2VuAyEAAQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA=
-----END PUBLIC KEY-----
`
	testKeyID = "ae216c2ef5247a37"
)

func TestExpectedHead(t *testing.T) {
	w := newWorld(t, Limits{})
	w.session("s", OID{})
	first := w.save(t, "s", "a")
	none := OID{}
	var moved *MovedError
	_, err := w.trySave(t, snap{SaveSpec: SaveSpec{Session: "s", ExpectedHead: &none}})
	if !errors.As(err, &moved) || moved.Actual != first.Commit {
		t.Errorf("expecting none: %v", err)
	}
	// Two who expect the same: the later one is told, though it was planned before.
	repo := w.as(backend())
	spec := SaveSpec{Session: "s", ExpectedHead: &first.Commit}
	p, err := w.k.plan(t.Context(), repo, &spec)
	if err != nil {
		t.Fatalf("plan: %v", err)
	}
	second := w.save(t, "s", "b")
	if _, err := w.k.publish(t.Context(), repo, p, w.build(t, repo, p, snap{chunks: []string{"c"}})); !errors.As(err, &moved) || moved.Actual != second.Commit {
		t.Errorf("publish where the ref has moved: %v", err)
	}
	// Who does not mind is the last one then.
	p, err = w.k.plan(t.Context(), repo, &SaveSpec{Session: "s"})
	if err != nil {
		t.Fatalf("plan: %v", err)
	}
	third := w.save(t, "s", "d")
	fourth, err := w.k.publish(t.Context(), repo, p, w.build(t, repo, p, snap{chunks: []string{"e"}}))
	if err != nil || w.head(t, RefPrefix+"s") != fourth.Commit || !fourth.VerifiedAt.After(third.VerifiedAt) {
		t.Errorf("publish where it does not matter: %v, ref at %s", err, w.head(t, RefPrefix+"s"))
	}
	w.sound(t)
}

func TestWorkspaceMovesWithTheSnapshot(t *testing.T) {
	w := newWorld(t, Limits{})
	owner := w.session("s", OID{})
	if err := w.as(backend()).Move(t.Context(), Move{Changes: []Change{{Ref: owner.Ref, New: owner.Head}}}); err != nil {
		t.Fatalf("make the branch: %v", err)
	}
	next := w.put("commit", []byte("tree "+OID{1}.String()+"\n\nnext\n"))
	s := w.saveAs(t, snap{SaveSpec: SaveSpec{Session: "s", Workspace: next, MoveWorkspace: true}, chunks: []string{"a"}})
	if w.head(t, owner.Ref) != next || s.Workspace != next {
		t.Errorf("branch at %s, snapshot of %s, want %s", w.head(t, owner.Ref), s.Workspace, next)
	}
	var field *FieldError
	_, err := w.trySave(t, snap{SaveSpec: SaveSpec{Session: "s", Workspace: s.Commit, MoveWorkspace: true}, chunks: []string{"b"}})
	if !errors.As(err, &field) || field.Field != "workspace_sha" {
		t.Errorf("a snapshot for a workspace: %v", err)
	}
	other := w.put("commit", []byte("tree "+OID{1}.String()+"\n\nother\n"))
	_, err = w.trySave(t, snap{SaveSpec: SaveSpec{Session: "s", Workspace: other, MoveWorkspace: true}, chunks: []string{"b"}})
	var moved *MovedError
	if !errors.As(err, &moved) || moved.Ref != owner.Ref || moved.Actual != next {
		t.Errorf("where the branch is not at its session's head any more: %v", err)
	}
	if head := w.head(t, RefPrefix+"s"); head != s.Commit {
		t.Errorf("the snapshot ref moved alone to %s", head)
	}
}

func TestSavingIsRepeatable(t *testing.T) {
	w := newWorld(t, Limits{})
	w.session("s", OID{})
	spec := snap{SaveSpec: SaveSpec{Session: "s", Once: onceOf("k")}, chunks: []string{"a"}}
	one := w.saveAs(t, spec)
	_, err := w.trySave(t, spec)
	if answer, ok := ledger.IsRepeated(err); !ok || string(answer) != one.Commit.String() {
		t.Errorf("the same call again: %v", err)
	}
	w.sound(t)
}

func TestSkip(t *testing.T) {
	w := newWorld(t, Limits{Cap: 10})
	w.session("s", OID{})
	spec := SaveSpec{Session: "s", Machine: map[string]string{"arch": "amd64"}, IdleTimeout: ptr(time.Hour), Excluded: []Excluded{{"x", "y"}}}
	one := w.saveAs(t, snap{SaveSpec: spec, chunks: []string{"a"}})
	if _, err := w.trySave(t, snap{SaveSpec: spec, chunks: []string{"b"}, stored: 11}); !errors.As(err, new(*OverCapError)) {
		t.Fatalf("save over the cap: %v", err)
	}
	entries := len(w.log(t))
	repo := w.as(backend())
	p, err := w.k.plan(t.Context(), repo, &spec)
	if err != nil || !p.same(spec.Excluded) || p.same(nil) {
		t.Fatalf("plan of the same again: %v", err)
	}
	if err := w.k.capture(t.Context(), repo, p); err != nil {
		t.Fatalf("capture: %v", err)
	}
	w.clock.advance(time.Minute)
	got, err := w.k.skip(t.Context(), repo, p)
	if err != nil || !got.Skipped || got.Commit != one.Commit || !got.UsedAt.Equal(w.clock.Now()) {
		t.Errorf("skip: %+v, %v", got, err)
	}
	if st := w.standing(t, "s"); st.Stale {
		t.Error("the notice stays, though what is there is what would be saved")
	}
	if n := len(w.log(t)); n != entries {
		t.Errorf("%d events of a save of nothing", n-entries)
	}
	for name, other := range map[string]SaveSpec{
		"another machine": {Session: "s"}, "a name": {Session: "s", Machine: spec.Machine, Name: "n"},
		"another workspace": {Session: "s", Machine: spec.Machine, Workspace: w.put("commit", []byte("tree "+OID{1}.String()+"\n\nother\n"))},
	} {
		if p, err := w.k.plan(t.Context(), repo, &other); err != nil || p.same(spec.Excluded) {
			t.Errorf("%s: %v, want no skipping", name, err)
		}
	}
	w.save(t, "s", "c")
	if _, err := w.k.skip(t.Context(), repo, p); !errors.As(err, new(*MovedError)) {
		t.Errorf("skip when it is not the last any more: %v", err)
	}
	w.sound(t)
}

// A crash between the batch and its answer leaves the new state, or the old.
func TestAFailedBatchLeavesNothing(t *testing.T) {
	w := newWorld(t, Limits{})
	w.session("s", OID{})
	one := w.save(t, "s", "a")
	lost := errors.New("power cut")
	w.ledger.beforeApply(func(b ledger.Batch) error {
		for _, s := range b.Sets {
			if s.Key == testRefKey(RefPrefix+"s") {
				return lost
			}
		}
		return nil
	})
	if _, err := w.trySave(t, snap{SaveSpec: SaveSpec{Session: "s"}, chunks: []string{"b"}}); !errors.Is(err, lost) {
		t.Fatalf("save = %v", err)
	}
	if head := w.head(t, RefPrefix+"s"); head != one.Commit {
		t.Errorf("ref is at %s, want %s", head, one.Commit)
	}
	w.sound(t)
}

func TestD11_DR4_Launchable(t *testing.T) {
	w := newWorld(t, Limits{})
	for _, id := range []string{"a", "b"} {
		w.session(id, OID{})
	}
	save := func(session, arch string) Snapshot {
		s := snap{SaveSpec: SaveSpec{Session: session}, chunks: []string{arch}}
		if arch != "" {
			s.Machine = map[string]string{"arch": arch}
		}
		w.clock.advance(time.Second)
		return w.saveAs(t, s)
	}
	amd, _, _, any := save("a", "amd64"), save("a", ""), save("b", "amd64"), save("a", "")
	arm := w.saveAs(t, snap{SaveSpec: SaveSpec{Session: "a"}, chunks: []string{"arm"}})
	if err := w.k.SetBase(t.Context(), w.as(backend()), "base", amd.Commit); err != nil {
		t.Fatalf("SetBase: %v", err)
	}
	repo := w.as(backend())
	repo.canRead = func(ref string) bool { return ref != RefPrefix+"b" }
	list := func(arch string, limit int) (all []OID) {
		for cursor := ""; ; {
			page, next, err := w.k.Launchable(t.Context(), repo, arch, limit, cursor)
			if err != nil {
				t.Fatalf("Launchable: %v", err)
			}
			for _, s := range page {
				all = append(all, s.Commit)
			}
			if next == "" {
				return all
			}
			cursor = next
		}
	}
	for _, limit := range []int{1, 2, 100} {
		if got := list("", limit); len(got) != 4 || got[0] != arm.Commit || got[1] != any.Commit || got[3] != amd.Commit {
			t.Errorf("by %d: %s, want a's four, newest first", limit, got)
		}
	}
	if got := list("arm64", 2); len(got) != 3 || slices.Contains(got, amd.Commit) {
		t.Errorf("for arm64: %s", got)
	}
	if got, _, err := w.k.Launchable(t.Context(), w.as(backend()), "", 100, ""); err != nil || len(got) != 5 {
		t.Errorf("who may read all is told %d, %v", len(got), err)
	}
	if _, _, err := w.k.Launchable(t.Context(), repo, "", 1, "rubbish"); !errors.Is(err, ErrInvalid) {
		t.Errorf("a cursor of nobody's: %v", err)
	}
}

func TestD12_DR22_LineageOfThreeGenerations(t *testing.T) {
	w := newWorld(t, Limits{})
	w.session("g1", OID{})
	first := w.save(t, "g1", "a")
	second := w.save(t, "g1", "b")
	w.session("g2", second.Commit)
	if err := w.child(t.Context(), second.Commit, "g2", true); err != nil {
		t.Fatalf("start a child: %v", err)
	}
	third := w.save(t, "g2", "b", "c")
	w.session("g3", third.Commit)
	fourth := w.save(t, "g3", "b", "c", "d")
	if third.New != 1 || fourth.New != 1 {
		t.Errorf("what a session was made from is its base: %d and %d new bytes, want 1", third.New, fourth.New)
	}
	ids := func(all []Snapshot) (ids []OID) {
		for _, s := range all {
			ids = append(ids, s.Commit)
		}
		return ids
	}
	before, after, err := w.k.Lineage(t.Context(), w.as(backend()), third.Commit)
	if err != nil || !slices.Equal(ids(before), []OID{second.Commit, first.Commit}) || !slices.Equal(ids(after), []OID{fourth.Commit}) {
		t.Errorf("lineage of the third: %s before, %s after, %v", ids(before), ids(after), err)
	}
	_, after, err = w.k.Lineage(t.Context(), w.as(backend()), first.Commit)
	if err != nil || !slices.Equal(ids(after), []OID{second.Commit, third.Commit, fourth.Commit}) {
		t.Errorf("what came of the first: %s, %v", ids(after), err)
	}
	if got := w.got(t, second.Commit); got.Session != "g1" || got.Parent != first.Commit || !slices.Equal(got.Children, []string{"g2"}) {
		t.Errorf("the second: %+v", got)
	}
	repo := w.as(backend())
	repo.canRead = func(ref string) bool { return ref != RefPrefix+"g2" }
	before, _, err = w.k.Lineage(t.Context(), repo, fourth.Commit)
	if err != nil || !slices.Equal(ids(before), []OID{second.Commit, first.Commit}) {
		t.Errorf("who may not see the third is told %s, %v", ids(before), err)
	}
	if _, _, err := w.k.Lineage(t.Context(), repo, third.Commit); !errors.Is(err, ErrNotFound) {
		t.Errorf("lineage of what may not be seen: %v", err)
	}
}

func TestHotOrder(t *testing.T) {
	w := newWorld(t, Limits{})
	w.session("s", OID{})
	one := w.save(t, "s", "a", "b", "c", "d")
	repo := w.as(backend())
	want := []int{3, 0, 2}
	if err := w.k.HotOrder(t.Context(), repo, one.Commit, "memory", append(slices.Clone(want), 3, 2)); err != nil {
		t.Fatalf("HotOrder: %v", err)
	}
	if got, err := w.k.hotOrder(t.Context(), w.repo, one.Commit, "memory"); err != nil || !slices.Equal(got, want) {
		t.Errorf("hot order %d, %v; want %d", got, err, want)
	}
	if got, err := w.k.hotOrder(t.Context(), w.repo, one.Commit, "disk"); err != nil || got != nil {
		t.Errorf("hot order of another part %d, %v", got, err)
	}
	for _, bad := range [][]int{{-1}, {MaxImage / MinChunk}} {
		if err := w.k.HotOrder(t.Context(), repo, one.Commit, "memory", bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("HotOrder(%d) = %v", bad, err)
		}
	}
	var field *FieldError
	if err := w.k.HotOrder(t.Context(), repo, one.Commit, "", []int{4}); !errors.As(err, &field) || field.Field != "chunks" {
		t.Errorf("HotOrder of a chunk behind the end = %v", err)
	}
	if err := w.k.HotOrder(t.Context(), repo, one.Commit, "disk", want); !errors.As(err, &field) || field.Field != "part" {
		t.Errorf("HotOrder of a part there is none of = %v", err)
	}
	if _, err := w.delete(one.Commit); err != nil {
		t.Fatalf("Delete: %v", err)
	}
	if err := w.k.HotOrder(t.Context(), repo, one.Commit, "memory", want); !errors.As(err, new(*StateError)) {
		t.Errorf("HotOrder of a deleted one: %v", err)
	}
}

func FuzzDecodeHot(f *testing.F) {
	b, _ := encodeHot([]int{3, 1, 2})
	f.Add(b)
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		chunks, err := decodeHot(b)
		if err != nil {
			return
		}
		for _, c := range chunks {
			if c < 0 || c >= MaxImage/MinChunk {
				t.Errorf("decodeHot gives chunk %d", c)
			}
		}
	})
}

func FuzzTreeEntries(f *testing.F) {
	f.Add(treeEntryOf("40000", "m", OID{1}))
	f.Add([]byte("100644 x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var back []byte
		for e, err := range treeEntries(data) {
			if err != nil {
				if !errors.Is(err, ErrDamaged) {
					t.Errorf("treeEntries: %v", err)
				}
				return
			}
			back = append(back, e.id[:]...)
		}
		if len(back) > len(data) {
			t.Errorf("%d bytes of ids from %d bytes", len(back), len(data))
		}
	})
}

// Run deletes by itself, also what another process saved.
func TestRunReapsOnTime(t *testing.T) {
	w := newWorld(t, Limits{ReapEvery: time.Millisecond})
	w.session("s", OID{})
	one := w.saveAs(t, snap{SaveSpec: idle("s", time.Minute), chunks: []string{"a"}})
	w.save(t, "s", "b")
	w.clock.advance(time.Minute)
	ctx, stop := context.WithCancel(t.Context())
	grown, err := w.ledger.Watch(ctx, ledger.RepoSpace(w.repo.ID))
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	other := w.keeper(w.k.Limits) // knows of nothing but the mark
	done := make(chan error, 1)
	go func() { done <- other.Run(ctx) }()
	for late := time.After(20 * time.Second); w.got(t, one.Commit).State == Ready; {
		select {
		case <-grown:
		case <-late:
			t.Fatal("it is not reaped")
		}
	}
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want %v", err, context.Canceled)
	}
}

func TestMarksOfDeletedReposGo(t *testing.T) {
	w := newWorld(t, Limits{})
	w.session("s", OID{})
	w.save(t, "s", "a")
	marks := func() int {
		items, err := reader{ledger.ServerSpace, w.ledger.ReadKeys, w.ledger.Read}.scan(t.Context(), markKeys, "", 10)
		if err != nil {
			t.Fatalf("scan: %v", err)
		}
		return len(items)
	}
	lose := ledger.Batch{Space: ledger.ServerSpace, Deletes: []string{markKey(w.repo.ID)}}
	if _, err := w.ledger.Apply(t.Context(), lose); err != nil {
		t.Fatalf("Apply: %v", err)
	}
	if err := w.k.noteMarked(t.Context(), w.clock.Now()); err != nil || marks() != 1 {
		t.Fatalf("noteMarked = %v, %d marks; want the one that was lost", err, marks())
	}
	if err := w.ledger.Drop(t.Context(), ledger.RepoSpace(w.repo.ID)); err != nil {
		t.Fatalf("Drop: %v", err)
	}
	for range 2 {
		if err := w.k.noteMarked(t.Context(), w.clock.Now()); err != nil || marks() != 0 {
			t.Errorf("after the repo's end: noteMarked = %v, %d marks; want none", err, marks())
		}
	}
}
