package gitstore

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/gitstore/wire"
)

var plainFilters = []string{"", "blob:none", "blob:limit=300", "tree:0", "tree:1", "object:type=commit", "combine:blob:none+tree:2"}

// plainFetches are requests for all of some commits, with every choice of flags
// without a filter, and every filter with all of them.
func plainFetches(wants ...string) (bodies []string) {
	flags := []string{"thin-pack", "ofs-delta", "include-tag", "no-progress"}
	body := func(mask int, filter string) string {
		var lines []string
		for n, flag := range flags {
			if mask&(1<<n) != 0 {
				lines = append(lines, flag)
			}
		}
		if filter != "" {
			lines = append(lines, "filter "+filter)
		}
		for _, oid := range wants {
			lines = append(lines, "want "+oid)
		}
		return fetchBody(append(lines, "done")...)
	}
	for mask := range 1 << len(flags) {
		bodies = append(bodies, body(mask, ""))
	}
	for _, filter := range plainFilters[1:] {
		bodies = append(bodies, body(1<<len(flags)-1, filter))
	}
	return bodies
}

var packObjectsRun = regexp.MustCompile(`run_command: (?:unset .*; )?git pack-objects (.*)`)

// What upload-pack would have started is what is started in its place, and the answer
// has the same objects in the same frame.
func TestPlainFetch_IsWhatUploadPackWouldSend(t *testing.T) {
	f := newFetchSource(t, Limits{})
	plain := newWorkTree(t)
	plain.git("clone", "-q", "--mirror", f.url, ".")
	bodies := plainFetches(f.commits[9])
	bodies = append(bodies, plainFetches(f.side, f.commits[4], f.commits[7])[8:]...)
	for _, body := range bodies {
		before := f.r.store.FetchStats().Started
		got := readAnswer(t, f.r, f.r.fetched(t, someone, "version=2", body))
		cmd := exec.CommandContext(t.Context(), "git", "-c", "uploadpack.allowAnySHA1InWant=true", "-c", "uploadpack.allowFilter=true", "upload-pack", "--strict", "--stateless-rpc", plain.dir)
		var trace strings.Builder
		cmd.Stdin, cmd.Stderr = strings.NewReader(body), &trace
		cmd.Env = append(plain.command().Env, "GIT_PROTOCOL=version=2", "GIT_TRACE=1")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git upload-pack %q: %v", body, err)
		}
		want := readAnswer(t, f.r, string(out))
		if !slices.Equal(got.lines, want.lines) || !slices.Equal(got.objects, want.objects) {
			t.Errorf("%q\nwas answered with %q and %d objects\nby git with %q and %d objects", body, got.lines, len(got.objects), want.lines, len(want.objects))
		}
		if now := f.r.store.FetchStats().Started; now != before+1 {
			t.Errorf("%q: %d answers were made, want one", body, now-before)
		}
		ran := packObjectsRun.FindStringSubmatch(trace.String())
		if ran == nil {
			t.Fatalf("git upload-pack has started no pack-objects: %s", trace.String())
		}
		theirs := strings.Fields(strings.ReplaceAll(ran[1], "'", ""))
		order := orderOfBody(t, body)
		if ours := order.args()[1:]; !sameArgs(ours, theirs) {
			t.Errorf("%q\nstarts pack-objects %q\nwith git %q", body, ours, theirs)
		}
	}
}

func sameArgs(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

func orderOfBody(t testing.TB, body string) *packOrder {
	t.Helper()
	q, err := wire.ReadV2Request(strings.NewReader(body), wire.Limits{})
	if err != nil || q.Fetch == nil {
		t.Fatalf("ReadV2Request(%q): %v", body, err)
	}
	return orderOf(q.Fetch)
}

// What needs more than a pack is left to upload-pack.
func TestPlainFetch_IsNoOther(t *testing.T) {
	oid := strings.Repeat("1f", 20)
	for body, plain := range map[string]bool{
		fetchBody("want "+oid, "done"):                               true,
		fetchBody("want " + oid):                                     true, // without haves no more is asked
		fetchBody("want "+oid, "wait-for-done"):                      false,
		fetchBody("want "+oid, "have "+oid, "done"):                  false,
		fetchBody("want "+oid, "have "+oid):                          false,
		fetchBody("want "+oid, "shallow "+oid, "done"):               false,
		fetchBody("want "+oid, "deepen 1", "done"):                   false,
		fetchBody("want "+oid, "deepen-since 100", "done"):           false,
		fetchBody("want "+oid, "deepen-not main", "done"):            false,
		fetchBody("want "+oid, "deepen-relative", "done"):            false,
		fetchBody("want "+oid, "filter tree:0", "thin-pack", "done"): true,
	} {
		if got := orderOfBody(t, body) != nil; got != plain {
			t.Errorf("%q: pack-objects alone answers: %v, want %v", body, got, plain)
		}
	}
}

// Progress comes through as git says it; what git complains of does not.
func TestTalkBuffer_KeepsComplaintsFromClients(t *testing.T) {
	b := talkBuffer{more: make(chan struct{}, 1)}
	said := "Enumerating objects: 5, done.\nCounting objects:  20% (1/5)\rCounting objects: 100% (5/5)\rerror: packfile /data/x does not match\nfatal: gone\nTotal 5 (delta 0)\nwarning: without end"
	for _, piece := range strings.SplitAfter(said, "o") {
		fmt.Fprint(&b, piece)
	}
	want := "Enumerating objects: 5, done.\nCounting objects:  20% (1/5)\rCounting objects: 100% (5/5)\rTotal 5 (delta 0)\n"
	if got := string(b.take()); got != want {
		t.Errorf("take = %q, want %q", got, want)
	}
	for range 3 * talkMost {
		fmt.Fprint(&b, "abc")
	}
	fmt.Fprint(&b, "\n")
	for range talkMost {
		fmt.Fprint(&b, "line\n")
	}
	if got := len(b.take()); got == 0 || got > talkMost {
		t.Errorf("%d bytes are kept of too much, want some and at most %d", got, talkMost)
	}
}

// A client that waits for git to begin hears a sign of life.
func TestPackTalk_GivesSignsOfLife(t *testing.T) {
	in, out := io.Pipe()
	talk, pipe := newPackTalk(wire.NewSideband(out, wire.Sideband64k)), &packPipe{in: strings.NewReader("")}
	talk.begin(pipe, time.Millisecond)
	sign := make([]byte, 5)
	if _, err := io.ReadFull(in, sign); err != nil || string(sign) != "0005\x02" {
		t.Errorf("read %q, %v; want a sign of life", sign, err)
	}
	in.Close()
	talk.end()
}

// A fetch that git cannot begin is an error and nothing is written.
func TestPlainFetch_NoProcess(t *testing.T) {
	git, err := gitcmd.New(gitcmd.Options{MaxProcesses: 1, MaxWait: time.Millisecond})
	if err != nil {
		t.Fatalf("gitcmd.New: %v", err)
	}
	r, tip := sharedRepo(t, git, Limits{})
	p, err := git.Start(t.Context(), gitcmd.Cmd{Args: []string{"hash-object", "--stdin"}})
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	out := newPicky()
	f := r.fetchInto(t.Context(), someone, wantAll(tip), out, nil)
	if err := <-f.done; !errors.Is(err, gitcmd.ErrBusy) || len(out.got) > 0 {
		t.Errorf("a fetch without a process = %v after %d bytes, want ErrBusy and none", err, len(out.got))
	}
	p.StdinPipe().Close()
	_, _ = io.Copy(io.Discard, p.StdoutPipe())
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}
