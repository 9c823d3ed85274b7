package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// readCount is what a piece of work reads of a ledger.
type readCount struct{ calls, keys, hidden, entries int64 }

// countingLedger counts keys that are asked for, items that scans give, and among
// these the refs that the main remote hides.
type countingLedger struct {
	ledger.Ledger
	calls, keys, hidden, entries atomic.Int64
}

func (l *countingLedger) take() readCount {
	return readCount{l.calls.Swap(0), l.keys.Swap(0), l.hidden.Swap(0), l.entries.Swap(0)}
}

func (l *countingLedger) asked(keys ...string) {
	l.calls.Add(1)
	l.keys.Add(int64(len(keys)))
	for _, key := range keys {
		if strings.HasPrefix(key, refKeys+refpolicy.NamespacePrefix) {
			l.hidden.Add(1)
		}
	}
}

func (l *countingLedger) ReadKeys(ctx context.Context, s ledger.Space, keys ...string) ([][]byte, error) {
	l.asked(keys...)
	return l.Ledger.ReadKeys(ctx, s, keys...)
}

func (l *countingLedger) PeekKeys(ctx context.Context, s ledger.Space, keys ...string) ([][]byte, error) {
	l.asked(keys...)
	return l.Ledger.PeekKeys(ctx, s, keys...)
}

func (l *countingLedger) Read(ctx context.Context, s ledger.Space) (ledger.View, error) {
	v, err := l.Ledger.Read(ctx, s)
	return countingView{v, l}, err
}

func (l *countingLedger) Peek(ctx context.Context, s ledger.Space) (ledger.View, error) {
	v, err := l.Ledger.Peek(ctx, s)
	return countingView{v, l}, err
}

func (l *countingLedger) Apply(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
	l.calls.Add(1)
	l.keys.Add(int64(len(b.Checks) + len(b.Sets) + len(b.Adds) + len(b.Deletes)))
	return l.Ledger.Apply(ctx, b)
}

type countingView struct {
	ledger.View
	l *countingLedger
}

func (v countingView) Get(ctx context.Context, key string) ([]byte, error) {
	v.l.asked(key)
	return v.View.Get(ctx, key)
}

func (v countingView) GetMany(ctx context.Context, keys ...string) ([][]byte, error) {
	v.l.asked(keys...)
	return v.View.GetMany(ctx, keys...)
}

func (v countingView) given(items []ledger.Item, err error) ([]ledger.Item, error) {
	keys := make([]string, len(items))
	for n, it := range items {
		keys[n] = it.Key
	}
	v.l.asked(keys...)
	return items, err
}

func (v countingView) Scan(ctx context.Context, prefix, start string, limit int) ([]ledger.Item, error) {
	return v.given(v.View.Scan(ctx, prefix, start, limit))
}

func (v countingView) Range(ctx context.Context, from, to string, limit int) ([]ledger.Item, error) {
	return v.given(v.View.Range(ctx, from, to, limit))
}

func (v countingView) Log(ctx context.Context, after uint64, limit int) ([]ledger.Entry, error) {
	entries, err := v.View.Log(ctx, after, limit)
	v.l.entries.Add(int64(len(entries)))
	return entries, err
}

// A fleet is a repo with many sessions' branches, all of them where main is.
type fleet struct {
	t    *testing.T
	r    *Repo
	l    *countingLedger
	s    *Store
	head refpolicy.OID // of main and all sessions
	gone refpolicy.OID // in main's history; it came in by a branch that was deleted
	own  Caller        // confined to session 1
	two  Caller        // reads main and session 1
	few  Caller        // reads what is below team/
	not  Caller        // reads everything but the sessions
	all  Caller
}

const (
	sessions  = refpolicy.EphemeralBranchPrefix + "s/"
	session1  = refpolicy.RefName(sessions + "1") // many others' names begin with it
	teamRefs  = refpolicy.EphemeralBranchPrefix + "team/"
	fleetTags = 3
)

// anySignature takes all commits for signed.
type anySignature struct{}

func (anySignature) VerifyCommit(string, []byte) error { return nil }

func newFleet(t *testing.T, open opener, n int) *fleet {
	l := &countingLedger{Ledger: open(t)}
	t.Cleanup(func() { l.Close() })
	s := openTestStore(t, func(o *Options) {
		o.Ledger, o.Signatures, o.Limits.UpkeepEvery = l, anySignature{}, -1
	})
	name := fmt.Sprint("fleet-of-", n)
	if _, err := s.CreateRepo(t.Context(), someone, "acme", name, "main", nil); err != nil {
		t.Fatalf("CreateRepo: %v", err)
	}
	r, err := s.Repo(t.Context(), "acme", name)
	if err != nil {
		t.Fatalf("Repo: %v", err)
	}
	no := refpolicy.Rule{Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoRead}}
	f := &fleet{t: t, r: r, l: l, s: s, all: someone, own: confined(t, session1),
		two: ruled(t, refpolicy.Rule{Pattern: string(session1)}, refpolicy.Rule{Pattern: "main"}, no),
		few: ruled(t, refpolicy.Rule{Pattern: teamRefs + "*"}, no),
		not: ruled(t, refpolicy.Rule{Pattern: sessions + "*", Ops: no.Ops}),
	}
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"old": "in the first commit alone\n", "keep": "1\n"}})
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"old": ""}})
	side := mustCommit(t, r, someone, testCommit{target: "refs/heads/side", base: mainRef, files: map[string]string{"side": "1\n"}})
	f.gone = side.Commit
	f.move(mainRef, side.Commit)
	f.delete("refs/heads/side")
	f.head = mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"keep": "2\n"}}).Commit
	for i := range fleetTags {
		tag := newTagOn(f.head, CommitObject, fmt.Sprint("v", i))
		f.update(Update{Caller: someone, Objects: []NewObject{tag}, Changes: []Change{{Ref: refpolicy.RefName(fmt.Sprint("refs/tags/v", i)), New: tag.OID}}})
		f.update(Update{Caller: someone, Changes: []Change{{Ref: refpolicy.RefName(fmt.Sprint(teamRefs, i)), New: f.head}}})
	}
	f.seed(n)
	return f
}

// seed makes the sessions through the door, a thousand at a time.
func (f *fleet) seed(n int) {
	var changes []Change
	for i := range n {
		changes = append(changes, Change{Ref: refpolicy.RefName(fmt.Sprint(sessions, i)), New: f.head})
	}
	for chunk := range slices.Chunk(changes, 1000) {
		f.update(Update{Caller: someone, Changes: chunk})
	}
}

func (f *fleet) update(u Update) {
	f.t.Helper()
	res, err := f.r.Update(f.t.Context(), u)
	if err != nil {
		f.t.Fatalf("Update: %v", err)
	}
	for _, ref := range res.Refs {
		if ref.Err != nil {
			f.t.Fatalf("Update %s: %v", ref.Ref, ref.Err)
		}
	}
}

func (f *fleet) at(name refpolicy.RefName) refpolicy.OID {
	f.t.Helper()
	ref, err := f.r.Ref(f.t.Context(), someone, name)
	if err != nil {
		f.t.Fatalf("Ref(%s): %v", name, err)
	}
	return ref.OID
}

func (f *fleet) move(name refpolicy.RefName, to refpolicy.OID) {
	f.update(Update{Caller: someone, Changes: []Change{{Ref: name, Old: f.at(name), New: to}}})
}

func (f *fleet) delete(name refpolicy.RefName) {
	f.t.Helper()
	if err := f.r.DeleteBranch(f.t.Context(), someone, name, nil); err != nil {
		f.t.Fatalf("DeleteBranch(%s): %v", name, err)
	}
}

// git answers one request of a git client.
func (f *fleet) git(do func(context.Context, Caller, GitRequest) error, c Caller, m Remote, protocol, body string) string {
	f.t.Helper()
	var out bytes.Buffer
	q := GitRequest{Remote: m, Protocol: protocol, In: strings.NewReader(body), Out: &out}
	if err := do(f.t.Context(), c, q); err != nil {
		f.t.Fatalf("git request %.100q: %v", body, err)
	}
	return out.String()
}

func (f *fleet) push(c Caller, m Remote, command, pack, want string) {
	f.t.Helper()
	if got := f.git(f.r.ReceivePack, c, m, "", pkts(command+"\x00report-status", "")+pack); !strings.Contains(got, want) {
		f.t.Fatalf("push %s: %q, want %q in it", command, got, want)
	}
}

func (f *fleet) lsRefs(c Caller, m Remote, prefixes ...string) string {
	f.t.Helper()
	lines := []string{"peel", "symrefs"}
	for _, p := range prefixes {
		lines = append(lines, "ref-prefix "+p)
	}
	return f.git(f.r.UploadPack, c, m, "version=2", pkts("command=ls-refs", "object-format=sha1")+"0001"+pkts(append(lines, "")...))
}

func (f *fleet) fetch(c Caller, m Remote, lines ...string) string {
	f.t.Helper()
	return f.git(f.r.UploadPack, c, m, "version=2", pkts("command=fetch", "object-format=sha1")+"0001"+pkts(append(lines, "done", "")...))
}

// wantRefs fails unless text names these and no other refs below refs/.
func (f *fleet) wantRefs(text string, n int) {
	f.t.Helper()
	if got := strings.Count(text, " refs/"); got != n {
		f.t.Fatalf("answer names %d refs, want %d: %.500q", got, n, text)
	}
}

func (f *fleet) wantErr(err, want error) {
	f.t.Helper()
	if !errors.Is(err, want) {
		f.t.Fatalf("error %v, want %v", err, want)
	}
}

// pushOf is a small push onto a commit: what moves ref there and the pack.
func (f *fleet) pushOf(shown string, on refpolicy.OID, entries ...treeEntry) (command, pack string) {
	p := &rawPack{}
	blob := p.add(BlobObject, "pushed to "+shown)
	tree := p.add(TreeObject, string(encodeTree(append([]treeEntry{{ModeFile, "a-pushed", blob}}, entries...))))
	id := p.add(CommitObject, fmt.Sprintf("tree %s\nparent %s\n%s", tree, on, author13))
	return fmt.Sprintf("%s %s %s", on, id, shown), p.pack()
}

// fleetWork is all that must cost the same however many sessions there are, in the
// order in which it is done. unseen says that no session's ref may be read for it.
var fleetWork = []struct {
	name   string
	unseen bool
	do     func(f *fleet)
}{
	{"look up", false, func(f *fleet) { f.at(session1) }},
	{"look up, confined", false, func(f *fleet) {
		if _, err := f.r.Ref(f.t.Context(), f.own, session1); err != nil {
			f.t.Fatalf("Ref: %v", err)
		}
	}},
	{"create", true, func(f *fleet) {
		if _, err := f.r.CreateBranch(f.t.Context(), f.all, BranchSpec{Target: "refs/heads/new", Base: "main"}); err != nil {
			f.t.Fatalf("CreateBranch: %v", err)
		}
	}},
	{"create a session", false, func(f *fleet) {
		if _, err := f.r.CreateBranch(f.t.Context(), f.all, BranchSpec{Target: teamRefs + "new", Base: "main"}); err != nil {
			f.t.Fatalf("CreateBranch: %v", err)
		}
	}},
	{"create what is there", false, func(f *fleet) {
		_, err := f.r.CreateBranch(f.t.Context(), f.all, BranchSpec{Target: session1, Base: "main"})
		f.wantErr(err, ErrRefExists)
	}},
	{"create where a folder is", false, func(f *fleet) {
		var clash *NameClashError
		if _, err := f.r.CreateBranch(f.t.Context(), f.all, BranchSpec{Target: refpolicy.EphemeralBranchPrefix + "s", Base: "main"}); !errors.As(err, &clash) {
			f.t.Fatalf("CreateBranch: %v, want a *NameClashError", err)
		}
	}},
	{"create at an old commit whose branch is gone", true, func(f *fleet) {
		if _, err := f.r.CreateBranch(f.t.Context(), f.all, BranchSpec{Target: "refs/heads/old", Base: f.gone.String()}); err != nil {
			f.t.Fatalf("CreateBranch: %v", err)
		}
	}},
	{"create by a token that must sign", true, func(f *fleet) {
		signs := ruled(f.t, refpolicy.Rule{Pattern: "*", Ops: []refpolicy.Op{refpolicy.VerifySig}})
		if _, err := f.r.CreateBranch(f.t.Context(), signs, BranchSpec{Target: "refs/heads/signed", Base: "main"}); err != nil {
			f.t.Fatalf("CreateBranch: %v", err)
		}
	}},
	{"create by a token that reads no session", false, func(f *fleet) {
		if _, err := f.r.CreateBranch(f.t.Context(), f.not, BranchSpec{Target: "refs/heads/not", Base: f.head.String()}); err != nil {
			f.t.Fatalf("CreateBranch: %v", err)
		}
	}},
	{"commit with compare-and-swap", false, func(f *fleet) {
		mustCommit(f.t, f.r, f.own, testCommit{target: session1, expected: f.head.String(), files: map[string]string{"a": "1\n"}})
	}},
	{"commit that lost", false, func(f *fleet) {
		_, err := testCommit{target: session1, expected: f.head.String(), files: map[string]string{"a": "2\n"}}.make(f.t.Context(), f.r, f.own)
		var moved *RefMovedError
		if !errors.As(err, &moved) {
			f.t.Fatalf("commit: %v, want a *RefMovedError", err)
		}
	}},
	{"commit to a new session", false, func(f *fleet) {
		mustCommit(f.t, f.r, f.all, testCommit{target: teamRefs + "begun", base: mainRef, files: map[string]string{"b": "begun\n"}})
	}},
	{"advertise to a push", true, func(f *fleet) {
		f.wantRefs(f.git(f.r.AdvertiseReceivePack, f.all, MainRemote, "", ""), 5+fleetTags)
	}},
	{"advertise to a push, confined", false, func(f *fleet) {
		f.wantRefs(f.git(f.r.AdvertiseReceivePack, f.own, EphemeralRemote, "", ""), 1)
	}},
	{"advertise to a fetch in v0", true, func(f *fleet) {
		f.wantRefs(f.git(f.r.AdvertiseUploadPack, f.all, MainRemote, "", ""), 5+2*fleetTags)
	}},
	{"advertise to a fetch in v0, confined", false, func(f *fleet) {
		f.wantRefs(f.git(f.r.AdvertiseUploadPack, f.own, EphemeralRemote, "", ""), 1)
	}},
	{"advertise to a fetch in v2", true, func(f *fleet) { f.git(f.r.AdvertiseUploadPack, f.all, MainRemote, "version=2", "") }},
	{"ls-refs", true, func(f *fleet) { f.wantRefs(f.lsRefs(f.all, MainRemote), 5+fleetTags) }},
	{"ls-refs of branches", true, func(f *fleet) { f.wantRefs(f.lsRefs(f.all, MainRemote, "HEAD", "refs/heads/"), 5) }},
	{"ls-refs of two remotes by a token that reads no session", false, func(f *fleet) {
		f.wantRefs(f.lsRefs(f.not, MainRemote), 5+fleetTags)
		f.wantRefs(f.lsRefs(f.not, EphemeralRemote), fleetTags+2)
	}},
	{"ls-refs, confined", false, func(f *fleet) { f.wantRefs(f.lsRefs(f.own, EphemeralRemote), 1) }},
	{"ls-refs of a prefix", false, func(f *fleet) {
		f.wantRefs(f.lsRefs(f.all, EphemeralRemote, "refs/heads/team/", "refs/tags/"), fleetTags+2)
	}},
	{"push onto a session, confined", false, func(f *fleet) {
		command, pack := f.pushOf("refs/heads/s/1", f.at(session1))
		f.push(f.own, EphemeralRemote, command, pack, "ok refs/heads/s/1")
	}},
	{"push a new session", false, func(f *fleet) {
		f.push(f.all, EphemeralRemote, fmt.Sprintf("%s %s refs/heads/team/pushed", refpolicy.ZeroOID, f.head), emptyPack, "ok refs/heads/team/pushed")
	}},
	{"push a new session, confined to few", false, func(f *fleet) {
		f.push(f.few, EphemeralRemote, fmt.Sprintf("%s %s refs/heads/team/few", refpolicy.ZeroOID, f.head), emptyPack, "ok refs/heads/team/few")
	}},
	{"push what may not be read", false, func(f *fleet) {
		command, pack := f.pushOf("refs/heads/s/1", f.at(session1), treeEntry{ModeFile, "b-stolen", newBlob("in the first commit alone\n").OID})
		// What its own branch reaches it may take back, and that is all of main's history.
		f.push(f.own, EphemeralRemote, command, pack, "ok refs/heads/s/1")
		command, pack = f.pushOf("refs/heads/s/1", f.at(session1), treeEntry{ModeFile, "c-stolen", newBlob("nowhere").OID})
		f.push(f.own, EphemeralRemote, command, pack, "ng refs/heads/s/1")
	}},
	{"push a revert", false, func(f *fleet) {
		command, pack := f.pushOf("refs/heads/main", f.head, treeEntry{ModeFile, "old", newBlob("in the first commit alone\n").OID})
		f.push(f.all, MainRemote, command, pack, "ok refs/heads/main")
	}},
	{"push what is missing", false, func(f *fleet) {
		command, pack := f.pushOf("refs/heads/main", f.at(mainRef), treeEntry{ModeFile, "old", newBlob("nowhere").OID})
		f.push(f.all, MainRemote, command, pack, "ng refs/heads/main")
	}},
	{"fetch, confined", false, func(f *fleet) {
		got := f.fetch(f.own, EphemeralRemote, "include-tag", "want "+f.at(session1).String(), "have "+f.head.String())
		if !strings.Contains(got, "PACK") {
			f.t.Fatalf("fetch: %.300q, want a pack", got)
		}
	}},
	{"fetch of what is another's, confined", false, func(f *fleet) {
		if got := f.fetch(f.own, EphemeralRemote, "want "+f.at(teamRefs+"begun").String()); !strings.Contains(got, "not our ref") {
			f.t.Fatalf("fetch: %.300q, want a refusal", got)
		}
	}},
	{"fetch by a token that reads no session", false, func(f *fleet) {
		got := f.fetch(f.not, MainRemote, "include-tag", "want "+f.at(mainRef).String(), "have "+f.gone.String())
		if !strings.Contains(got, "PACK") {
			f.t.Fatalf("fetch: %.300q, want a pack", got)
		}
	}},
	{"resolve", false, func(f *fleet) {
		for _, c := range []Caller{f.own, f.two, f.not, f.all} {
			if _, err := f.r.Resolve(f.t.Context(), c, f.gone.String(), false); err != nil {
				f.t.Fatalf("Resolve: %v", err)
			}
		}
		_, err := f.r.Resolve(f.t.Context(), f.own, f.at(teamRefs+"begun").String(), false)
		f.wantErr(err, ErrObjectNotFound)
		_, err = f.r.Resolve(f.t.Context(), f.own, "", false)
		f.wantErr(err, ErrRefNotFound)
	}},
	{"list by prefix", false, func(f *fleet) {
		page, err := f.r.BranchesBelow(f.t.Context(), f.all, true, "s/", "", 5)
		if err != nil || len(page.Branches) != 5 {
			f.t.Fatalf("BranchesBelow: %v, %v; want 5 branches", page, err)
		}
		if page, err = f.r.BranchesBelow(f.t.Context(), f.all, true, "s/", page.Next, 4); err != nil || len(page.Branches) != 4 {
			f.t.Fatalf("BranchesBelow: %v, %v; want 4 branches", page, err)
		}
		if refs, err := f.r.Refs(f.t.Context(), f.all, sessions, "", 3); err != nil || len(refs) != 3 {
			f.t.Fatalf("Refs: %v, %v; want 3", refs, err)
		}
	}},
	{"list branches", false, func(f *fleet) {
		for _, tc := range []struct {
			c         Caller
			ephemeral bool
			want      int
		}{{f.all, true, 3}, {f.all, false, 3}, {f.own, true, 1}, {f.own, false, 0}, {f.two, false, 1}, {f.few, true, 3}, {f.not, false, 3}, {f.not, true, 3}} {
			page, err := f.r.Branches(f.t.Context(), tc.c, tc.ephemeral, "", 3)
			if err != nil || len(page.Branches) != tc.want {
				f.t.Fatalf("Branches(ephemeral %v): %v, %v; want %d", tc.ephemeral, page, err, tc.want)
			}
		}
	}},
	{"pin and unpin", false, func(f *fleet) {
		p, err := f.r.Pin(f.t.Context(), f.all, PinSpec{OID: f.head, Holder: "somebody", TTL: time.Hour})
		if err == nil {
			err = f.r.Unpin(f.t.Context(), f.all, p.ID, nil)
		}
		if err != nil {
			f.t.Fatalf("Pin and Unpin: %v", err)
		}
	}},
	{"default branch", false, func(f *fleet) {
		if _, err := f.r.SetDefaultBranch(f.t.Context(), f.all, "main", nil); err != nil {
			f.t.Fatalf("SetDefaultBranch: %v", err)
		}
	}},
	{"delete", false, func(f *fleet) {
		f.delete(session1)
		f.delete("refs/heads/new")
	}},
	{"push a deletion", false, func(f *fleet) {
		f.push(f.all, EphemeralRemote, fmt.Sprintf("%s %s refs/heads/team/few", f.head, refpolicy.ZeroOID), "", "ok refs/heads/team/few")
	}},
	{"upkeep looks", false, func(f *fleet) {
		if _, err := f.r.prunedLongAgo(f.t.Context()); err != nil {
			f.t.Fatalf("prunedLongAgo: %v", err)
		}
		f.r.due()
	}},
	{"settle", false, func(f *fleet) {
		if err := f.r.Settle(f.t.Context()); err != nil {
			f.t.Fatalf("Settle: %v", err)
		}
	}},
	{"open", false, func(f *fleet) {
		f.s.mu.Lock()
		delete(f.s.repos, f.r.id)
		f.s.mu.Unlock()
		r, err := f.s.Repo(f.t.Context(), "acme", f.r.Info().Name)
		if err != nil || r == f.r {
			f.t.Fatalf("Repo: %v, %v; want it opened anew", r, err)
		}
		f.r.dir.Close()
		f.r = r
	}},
}

// Whatever is done in a repo reads as many keys with ten sessions' branches as with
// ten thousand, and what is done on the main remote reads none of these.
func TestF02_WorkReadsAsMuchWithManySessions(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, start func(testing.TB) opener) {
		many := 10_000
		if strings.HasSuffix(t.Name(), "redis") {
			many = 2_000
		}
		var counts [2]map[string]readCount
		for i, n := range []int{10, many} {
			counts[i] = map[string]readCount{}
			f := newFleet(t, start(t), n)
			for _, w := range fleetWork {
				f.l.take()
				w.do(f)
				counts[i][w.name] = f.l.take()
			}
		}
		for _, w := range fleetWork {
			few, lots := counts[0][w.name], counts[1][w.name]
			t.Logf("%s: %+v", w.name, few)
			if few != lots {
				t.Errorf("%s read %+v with ten sessions and %+v with %d", w.name, few, lots, many)
			}
			if w.unseen && lots.hidden > 0 {
				t.Errorf("%s read %d refs that the main remote hides", w.name, lots.hidden)
			}
		}
		if names := slices.Collect(maps.Keys(counts[0])); len(names) != len(fleetWork) {
			t.Errorf("%d names of work for %d pieces: some stand twice", len(names), len(fleetWork))
		}
	})
}
