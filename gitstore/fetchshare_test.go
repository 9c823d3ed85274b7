package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/refpolicy"
)

// A gatedGit runs the installed git, except that what answers fetches, upload-pack or
// pack-objects, stops after the first bytes of its answer until it is let go on.
type gatedGit struct {
	t       testing.TB
	gate    string
	started atomic.Int32 // of these
	ended   atomic.Int32
}

// gatedBytes are said before the gate: of a pack these, framed in an answer shownBytes.
const (
	gatedBytes = 60
	shownBytes = int64(13 + 5 + gatedBytes) // packfile, the head of a packet
)

// newGatedGit makes one. after is what the shell does behind the gate: "cat" passes
// on the rest of the answer.
func newGatedGit(t testing.TB, after string) (*gatedGit, *gitcmd.Runner) {
	t.Helper()
	installed, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	g := &gatedGit{t: t, gate: filepath.Join(t.TempDir(), "gate")}
	if err := syscall.Mkfifo(g.gate, 0o600); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`#!/bin/sh
PATH=%[5]q:$PATH
case "$1 $3" in "upload-pack "*|"pack-objects --stdout") ;; *) exec %[1]s "$@";; esac
%[1]s "$@" | { dd bs=%[2]d count=1 iflag=fullblock 2>/dev/null; read go <%[3]s; %[4]s; }
`, installed, gatedBytes, g.gate, after, os.Getenv("PATH"))
	path := filepath.Join(t.TempDir(), "gated-git")
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	runner, err := gitcmd.New(gitcmd.Options{
		Path:    path,
		OnStart: func(name string) { g.count(&g.started, name) },
		OnExit:  func(name string, _ time.Duration, _ error) { g.count(&g.ended, name) },
	})
	if err != nil {
		t.Fatalf("gitcmd.New: %v", err)
	}
	return g, runner
}

func (g *gatedGit) count(n *atomic.Int32, name string) {
	if name == "upload-pack" || name == "pack-objects" {
		n.Add(1)
	}
}

// open lets one upload-pack that stands at the gate go on.
func (g *gatedGit) open() {
	g.t.Helper()
	if err := os.WriteFile(g.gate, []byte("go\n"), 0); err != nil {
		g.t.Errorf("open gate: %v", err)
	}
}

// sharedRepo is a repo with some commits on main, whose tip is told.
func sharedRepo(t testing.TB, git *gitcmd.Runner, l Limits) (r *Repo, tip refpolicy.OID) {
	t.Helper()
	r = newTestRepo(t, openTestStore(t, func(o *Options) { o.Git, o.Limits = git, l }), "repo")
	for n := range 3 {
		tip = mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": strings.Repeat(fmt.Sprintln("line", n), 2000)}}).Commit
	}
	return r, tip
}

// wantAll is a v2 request for all of some commits.
func wantAll(tips ...refpolicy.OID) string {
	lines := []string{"ofs-delta", "no-progress", "done"}
	for _, tip := range tips {
		lines = append(lines, "want "+tip.String())
	}
	return fetchBody(lines...)
}

func fetchBody(lines ...string) string {
	return pkts("command=fetch", "agent=test/1", "object-format=sha1") + "0001" + pkts(append(lines, "")...)
}

// A fetcher is one client in the middle of a fetch.
type fetcher struct {
	out  *pickyWriter
	done chan error
}

// fetchInto begins a fetch that writes into out.
func (r *Repo) fetchInto(ctx context.Context, c Caller, body string, out *pickyWriter, freed func()) *fetcher {
	f := &fetcher{out, make(chan error, 1)}
	go func() {
		f.done <- r.UploadPack(ctx, c, GitRequest{Protocol: "version=2", In: strings.NewReader(body), Out: out, Freed: freed})
	}()
	return f
}

func newPicky() *pickyWriter { return &pickyWriter{gone: 1 << 40} }

// fetched is a fetch from its beginning to its end.
func (r *Repo) fetched(t testing.TB, c Caller, protocol, body string) string {
	t.Helper()
	var out bytes.Buffer
	if err := r.UploadPack(t.Context(), c, GitRequest{Protocol: protocol, In: strings.NewReader(body), Out: &out}); err != nil {
		t.Fatalf("UploadPack(%q): %v", body, err)
	}
	return out.String()
}

// Twenty equal fetches at once start one git process, and so does one that comes in
// the middle; one that comes after starts none. All get the same bytes.
func TestEqualFetchesShareOneProcess(t *testing.T) {
	g, git := newGatedGit(t, "cat")
	r, tip := sharedRepo(t, git, Limits{})
	var freed atomic.Int32
	var clients []*fetcher
	for range 20 {
		clients = append(clients, r.fetchInto(t.Context(), someone, wantAll(tip), newPicky(), func() { freed.Add(1) }))
	}
	st := r.store
	await(t, "twenty fetches are at work", func() bool { s := st.FetchStats(); return s.Started+s.Joined == 20 && s.Bytes == shownBytes })
	clients = append(clients, r.fetchInto(t.Context(), someone, wantAll(tip, tip), newPicky(), nil)) // asks for the same
	await(t, "the late one has joined", func() bool { return st.FetchStats().Joined == 20 })
	g.open()
	var first string
	for n, c := range clients {
		if err := <-c.done; err != nil {
			t.Errorf("client %d: %v", n, err)
		}
		if n == 0 {
			first = string(c.out.got)
		}
		if string(c.out.got) != first {
			t.Errorf("client %d got %d bytes, the first one %d others", n, len(c.out.got), len(first))
		}
	}
	if !strings.HasPrefix(first, "000dpackfile\n") || !strings.Contains(first, "PACK") || !strings.HasSuffix(first, "0000") {
		t.Errorf("the answer is %.100q...", first)
	}
	if again := r.fetched(t, someone, "version=2", wantAll(tip)); again != first {
		t.Errorf("a fetch afterwards got %d bytes, want the %d of the others", len(again), len(first))
	}
	want := FetchStats{Started: 1, Joined: 20, Served: 1, Bytes: int64(len(first))}
	if got := st.FetchStats(); got != want || g.started.Load() != 1 {
		t.Errorf("stats = %+v and %d processes, want %+v and one", got, g.started.Load(), want)
	}
	if got := freed.Load(); got != 20 {
		t.Errorf("%d of 20 fetches told that they need no process, want all", got)
	}
}

// A client that goes away stops nobody else, also when the process was started for
// it. When all have gone the process ends, and what it said is not kept.
func TestLeavingAFetch(t *testing.T) {
	g, git := newGatedGit(t, "cat")
	r, tip := sharedRepo(t, git, Limits{})
	begin := func() (first, second *fetcher, leave, leaveToo context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		before := r.store.FetchStats()
		first = r.fetchInto(ctx, someone, wantAll(tip), newPicky(), nil)
		await(t, "the first has begun", func() bool { return r.store.FetchStats().Bytes == shownBytes })
		ctx2, cancel2 := context.WithCancel(t.Context())
		second = r.fetchInto(ctx2, someone, wantAll(tip), newPicky(), nil)
		await(t, "the second has joined", func() bool { return r.store.FetchStats().Joined == before.Joined+1 })
		return first, second, cancel, cancel2
	}
	first, second, leave, leaveToo := begin()
	leave()
	leaveToo()
	if a, b := <-first.done, <-second.done; !errors.Is(a, context.Canceled) || !errors.Is(b, context.Canceled) {
		t.Errorf("clients that went away: %v and %v, want context.Canceled", a, b)
	}
	await(t, "the process has ended and nothing is kept", func() bool { return g.ended.Load() == 1 && r.store.FetchStats().Bytes == 0 })

	first, second, leave, leaveToo = begin()
	defer leaveToo()
	leave()
	if err := <-first.done; !errors.Is(err, context.Canceled) {
		t.Errorf("the client that went away: %v, want context.Canceled", err)
	}
	g.open()
	if err := <-second.done; err != nil || !bytes.HasSuffix(second.out.got, []byte("0000")) {
		t.Errorf("the client that stayed got %d bytes, %v", len(second.out.got), err)
	}
	if got := g.started.Load(); got != 2 {
		t.Errorf("%d processes were started, want 2", got)
	}
}

// A client that reads nothing does not hold the process.
func TestSlowClientDoesNotHoldTheProcess(t *testing.T) {
	g, git := newGatedGit(t, "cat")
	r, tip := sharedRepo(t, git, Limits{})
	pause := make(chan struct{})
	slow := r.fetchInto(t.Context(), someone, wantAll(tip), &pickyWriter{pause: pause, gone: 1 << 40}, nil)
	g.open()
	await(t, "the process has ended", func() bool { return g.ended.Load() == 1 })
	other := r.fetched(t, someone, "version=2", wantAll(tip))
	close(pause)
	if err := <-slow.done; err != nil || string(slow.out.got) != other {
		t.Errorf("the slow client got %d bytes, %v; want the %d of the other", len(slow.out.got), err, len(other))
	}
	if s := r.store.FetchStats(); s.Started != 1 || s.Joined+s.Served != 1 { // the process may just be counted out
		t.Errorf("stats = %+v, want one started and one that shared it", s)
	}
}

// A process that fails is told to everybody who reads its answer, and not kept.
func TestFailedFetchIsToldToAllAndNotKept(t *testing.T) {
	g, git := newGatedGit(t, "exit 3")
	r, tip := sharedRepo(t, git, Limits{})
	for round := range 2 {
		a := r.fetchInto(t.Context(), someone, wantAll(tip), newPicky(), nil)
		b := r.fetchInto(t.Context(), someone, wantAll(tip), newPicky(), nil)
		await(t, "both are at work", func() bool { s := r.store.FetchStats(); return s.Joined == uint64(round+1) && s.Bytes == shownBytes })
		g.open()
		for _, c := range []*fetcher{a, b} {
			var exit *gitcmd.ExitError
			if err := <-c.done; !errors.As(err, &exit) || exit.Code != 3 || !bytes.HasSuffix(c.out.got[shownBytes:], []byte("\x03"+packFailed+"\n")) {
				t.Errorf("round %d: a reader of a process that failed got %d bytes to %.100q, %v; want git's word for it and its exit code", round, len(c.out.got), c.out.got[min(len(c.out.got), int(shownBytes)):], err)
			}
		}
		await(t, "nothing is kept", func() bool { return r.store.FetchStats().Bytes == 0 })
	}
	if got := g.started.Load(); got != 2 {
		t.Errorf("%d processes were started, want one for each round", got)
	}
}

// Close ends what is shared when its time is up, and leaves no file.
func TestCloseEndsSharedFetches(t *testing.T) {
	g, git := newGatedGit(t, "cat")
	st, err := Open(t.Context(), Options{Dir: t.TempDir(), Ledger: openTestLedger(t), Git: git})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	if _, err := st.CreateRepo(t.Context(), Caller{}, "acme", "repo", "main", nil); err != nil {
		t.Fatalf("CreateRepo: %v", err)
	}
	r, err := st.Repo(t.Context(), "acme", "repo")
	if err != nil {
		t.Fatalf("Repo: %v", err)
	}
	tip := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1"}}).Commit
	c := r.fetchInto(t.Context(), someone, wantAll(tip), newPicky(), nil)
	await(t, "the fetch has begun", func() bool { return st.FetchStats().Bytes == shownBytes })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := st.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := <-c.done; !errors.Is(err, ErrClosed) {
		t.Errorf("a fetch that Close gave up = %v, want ErrClosed", err)
	}
	if got := g.ended.Load(); got != 1 {
		t.Errorf("%d processes have ended after Close, want 1", got)
	}
	if left, err := filepath.Glob(filepath.Join(st.dir, "scratch", "*")); err != nil || len(left) > 0 {
		t.Errorf("left in scratch: %v, %v", left, err)
	}
}
