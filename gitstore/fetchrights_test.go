package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/gitstore/wire"
	"github.com/headgate/headgate/refpolicy"
)

// What another token's fetches have left behind tells a confined token nothing: to
// the very same request it is answered as if nobody had asked before.
func TestA13_SharedFetchesTellNothing(t *testing.T) {
	x := newA13(t, Limits{})
	owner := *x
	owner.c = someone
	st := x.r.store
	for _, d := range doors13 {
		if !strings.HasPrefix(d.name, "want") && !strings.HasPrefix(d.name, "have") && !strings.HasPrefix(d.name, "shallow") {
			continue
		}
		for n, s := range x.secrets {
			if strings.HasPrefix(d.name, "shallow") && s.name != "HEAD" && s.name != "HEAD^" {
				continue // no commit: git gives up on its owner
			}
			before := st.FetchStats()
			theirs := d.open(t, &owner, s)
			if shared := st.FetchStats().Started > before.Started; !shared && strings.Contains(d.name, "want") {
				t.Fatalf("%s: %s: the owner's fetch was not shared: %q", d.name, s.name, theirs)
			}
			got := d.open(t, x, s)
			missing := secret{s.name, strings.Repeat(fmt.Sprintf("%02x", 0x10+n), 20), s.data}
			want := d.open(t, x, missing)
			got, want = strings.ReplaceAll(got, s.id, "<id>"), strings.ReplaceAll(want, missing.id, "<id>")
			if got != want {
				t.Errorf("%s: after its owner's fetch %s was answered with\n%q\nand an object that does not exist with\n%q", d.name, s.name, got, want)
			}
		}
	}
	x.s.noErrors()
}

// Two tokens that may read the same share; the annotated tags that one of them may not
// read keep them apart.
func TestA13_TagsKeepSharedFetchesApart(t *testing.T) {
	x := newA13(t, Limits{})
	hidden := x.secrets[len(x.secrets)-1].id
	reader, err := refpolicy.New([]refpolicy.Rule{
		{Pattern: branchB13}, {Pattern: branchA13}, {Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoRead}},
	}, nil)
	if err != nil {
		t.Fatalf("refpolicy.New: %v", err)
	}
	c := Caller{Actor: Actor{Org: "acme", Subject: "sandbox"}, Policy: reader}
	tip := "want " + x.secrets[0].id // HEAD, at which the tag points
	for _, who := range []struct {
		name   string
		c      Caller
		tagged bool
	}{{"the owner", someone, true}, {"who may not read tags", c, false}, {"the owner again", someone, true}} {
		answer := x.s.post(t, who.c, EphemeralRemote, "git-upload-pack", "version=2", fetchBody("ofs-delta", "no-progress", "include-tag", "done", tip))
		a := readAnswer(t, x.r, answer)
		if got := slices.Contains(a.objects, hidden); got != who.tagged {
			t.Errorf("the fetch of %s holds the tag: %v, want %v", who.name, got, who.tagged)
		}
	}
	before := x.r.store.FetchStats()
	plain := fetchBody("ofs-delta", "no-progress", "done", tip)
	if a, b := x.s.post(t, someone, EphemeralRemote, "git-upload-pack", "version=2", plain), x.s.post(t, c, EphemeralRemote, "git-upload-pack", "version=2", plain); a != b {
		t.Error("two tokens that may read all that they ask for got different answers")
	}
	if s := x.r.store.FetchStats(); s.Started != before.Started+1 || s.Served+s.Joined != before.Served+before.Joined+1 {
		t.Errorf("stats went from %+v to %+v, want one process for both tokens", before, s)
	}
}

// What was pruned is not served from the cache either.
func TestPrunedCommitIsNotServedFromTheCache(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "repo")
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "main\n"}})
	gone := mustCommit(t, r, someone, testCommit{target: sessionA, base: mainRef, files: map[string]string{"a": "a state\n"}}).Commit
	if got := r.fetched(t, someone, "version=2", wantAll(gone)); !strings.Contains(got, "PACK") {
		t.Fatalf("fetch of a branch = %q", got)
	}
	if err := r.DeleteBranch(t.Context(), someone, sessionA, nil); err != nil {
		t.Fatalf("DeleteBranch: %v", err)
	}
	gcNow(t, r)
	want := "ERR upload-pack: not our ref " + gone.String()
	if got := r.fetched(t, someone, "version=2", wantAll(gone)); !strings.Contains(got, want) {
		t.Errorf("fetch of a commit that was pruned = %q, want %q", got, want)
	}
	if s := r.store.FetchStats(); s.Started != 1 || s.Served != 0 || s.Bytes == 0 {
		t.Errorf("stats = %+v, want the answer still there and not served", s)
	}
}

// A fetchAnswered is an answer without what may differ between two runs of git.
type fetchAnswered struct {
	lines   []string // all packets but the pack's
	objects []string // in the pack, sorted
}

// readAnswer takes an answer with a sideband apart.
func readAnswer(t testing.TB, r *Repo, answer string) (a fetchAnswered) {
	t.Helper()
	var pack bytes.Buffer
	in := wire.NewReader(strings.NewReader(answer), 0)
	for {
		kind, data, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			if a.objects, err = packedObjects(t.Context(), r, pack.Bytes()); err != nil {
				t.Fatalf("answer %.200q: %v", answer, err)
			}
			return a
		case err != nil:
			t.Fatalf("answer %.200q: %v", answer, err)
		case kind == wire.Data && len(data) > 0 && data[0] == wire.BandData:
			pack.Write(data[1:])
		case kind == wire.Data && len(data) > 0 && data[0] == wire.BandProgress:
		default:
			a.lines = append(a.lines, fmt.Sprintf("%s %s", kind, data))
		}
	}
}

func packedObjects(ctx context.Context, r *Repo, pack []byte) (ids []string, err error) {
	if len(pack) == 0 {
		return nil, nil
	}
	p, err := parsePack(ctx, pack, packBounds{objects: 10_000, file: 1 << 20, depth: 1000}, r.object)
	for _, o := range p.objects {
		ids = append(ids, o.OID.String())
	}
	slices.Sort(ids)
	return ids, err
}

// sortShallow puts lines of a shallow boundary in order: git gives them in any.
func (a *fetchAnswered) sortShallow() {
	isShallow := func(l string) bool { return strings.Contains(l, "shallow ") }
	for from := 0; from < len(a.lines); from++ {
		to := from
		for to < len(a.lines) && isShallow(a.lines[to]) {
			to++
		}
		slices.Sort(a.lines[from:to])
		from = to
	}
}

// Whether a process, another's process or the cache answers, and in whatever order a
// client asks: the answer is the one git gives to this very request, also after the
// refs have changed on which it depends.
func TestSharedAnswersAreGits(t *testing.T) {
	f := newFetchSource(t, Limits{})
	plain := newWorkTree(t)
	plain.git("clone", "-q", "--mirror", f.url, ".")
	w := newWorkTree(t)
	w.git("clone", "-q", f.url, ".")
	rng := rand.New(rand.NewPCG(3, 9))
	st := f.r.store
	var shapes []fetchShape
	for range 12 {
		shapes = append(shapes, newShape(rng, f))
	}
	for round := range 3 {
		for range 14 {
			shape := shapes[rng.IntN(len(shapes))]
			protocol, body := shape.request(rng)
			got := readAnswer(t, f.r, f.r.fetched(t, someone, protocol, body))
			cmd := exec.CommandContext(t.Context(), "git", "-c", "uploadpack.allowAnySHA1InWant=true", "-c", "uploadpack.allowFilter=true", "upload-pack", "--strict", "--stateless-rpc", plain.dir)
			cmd.Stdin = strings.NewReader(body)
			cmd.Env = append(plain.command().Env, "GIT_PROTOCOL="+protocol)
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("git upload-pack %q: %v", body, err)
			}
			want := readAnswer(t, f.r, string(out))
			got.sortShallow()
			want.sortShallow()
			if !slices.Equal(got.lines, want.lines) || !slices.Equal(got.objects, want.objects) {
				t.Errorf("round %d: %q\nwas answered with %q and %d objects\nby git with %q and %d objects", round, body, got.lines, len(got.objects), want.lines, len(want.objects))
			}
		}
		// The tag that bounds some fetches and rides along with others moves on.
		w.git("tag", "-f", "-a", "-m", fmt.Sprint("again ", round), "v1", f.commits[4+round])
		w.git("push", "-q", "-f", "origin", "v1")
		plain.git("fetch", "-q", "--prune", "origin")
	}
	if s := st.FetchStats(); s.Served < 5 || s.Started < 10 {
		t.Errorf("stats = %+v, want some of both kinds", s)
	}
}

// A fetchShape is what a client asks for, whatever the order of its lines.
type fetchShape struct {
	v2           bool
	wants, haves []string
	flags        []string
	depth        []string // lines
	filter       string
	relative     bool
}

func newShape(rng *rand.Rand, f *fetchSource) (s fetchShape) {
	pick := func(from []string) string { return from[rng.IntN(len(from))] }
	all := append(slices.Clone(f.commits), f.side)
	s.v2 = rng.IntN(2) == 0
	for range 1 + rng.IntN(3) {
		s.wants = append(s.wants, pick(all))
	}
	for range rng.IntN(3) {
		s.haves = append(s.haves, pick(all), strings.Repeat("1f", 20)) // the other one nobody has
	}
	for _, flag := range []string{"thin-pack", "ofs-delta", "include-tag"} {
		if rng.IntN(2) == 0 {
			s.flags = append(s.flags, flag)
		}
	}
	switch rng.IntN(5) {
	case 0:
		s.depth = []string{fmt.Sprint("deepen ", 1+rng.IntN(4))}
	case 1:
		s.depth = []string{fmt.Sprint("deepen-since ", f.began+rng.IntN(8)*3600)}
	case 2:
		s.depth = []string{"deepen-not v1"}
	case 3:
		shallow := f.commits[8]
		s.wants, s.haves = []string{f.commits[9]}, []string{f.commits[9]}
		s.depth, s.relative = []string{"shallow " + shallow, fmt.Sprint("deepen ", 1+rng.IntN(3))}, rng.IntN(2) == 0
	}
	if rng.IntN(3) == 0 {
		s.filter = "filter " + pick([]string{"blob:none", "blob:limit=300", "tree:0"})
	}
	return s
}

// request is the shape as one client says it.
func (s fetchShape) request(rng *rand.Rand) (protocol, body string) {
	mixed := func(lists ...[]string) []string {
		all := slices.Concat(lists...)
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		return all
	}
	prefixed := func(verb string, ids []string) (lines []string) {
		for _, id := range ids {
			lines = append(lines, verb+" "+id)
		}
		return lines
	}
	agent := fmt.Sprint("agent=client/", rng.IntN(100))
	wants := mixed(prefixed("want", s.wants))
	if rng.IntN(2) == 0 {
		wants = append(wants, wants[0])
	}
	if !s.v2 {
		words := append([]string{"side-band-64k", "no-progress", "multi_ack_detailed", agent}, s.flags...)
		if s.relative {
			words = append(words, "deepen-relative")
		}
		if s.filter != "" {
			words = append(words, "filter")
		}
		wants[0] += " " + strings.Join(mixed(words), " ")
		lines := append(wants, s.depth...)
		if s.filter != "" {
			lines = append(lines, s.filter)
		}
		return "", pkts(append(append(append(lines, ""), prefixed("have", s.haves)...), "done")...)
	}
	more := []string{"no-progress", "done"}
	if s.filter != "" {
		more = append(more, s.filter)
	}
	if s.relative {
		more = append(more, "deepen-relative")
	}
	lines := mixed(wants, prefixed("have", s.haves), s.flags, s.depth, more)
	return "version=2", pkts("command=fetch", agent, "object-format=sha1") + "0001" + pkts(append(lines, "")...)
}
