package wire

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// A recordedFetch is one fetch request in whatever protocol version.
type recordedFetch struct {
	v0 *UploadRequest
	v2 *FetchRequest
}

func (f recordedFetch) depth() *DepthRequest {
	if f.v2 != nil {
		return &f.v2.DepthRequest
	}
	return &f.v0.DepthRequest
}

func (f recordedFetch) filter() string {
	if f.v2 != nil {
		return f.v2.Filter
	}
	return f.v0.Filter
}

func (f recordedFetch) haves() []refpolicy.OID {
	if f.v2 != nil {
		return f.v2.Haves
	}
	return f.v0.AllHaves()
}

// parseFetches reads every recorded body and demands that it is written again byte by byte.
func parseFetches(t *testing.T, version int, recorded []exchange) []recordedFetch {
	t.Helper()
	var out []recordedFetch
	for _, x := range recorded {
		want := map[int]string{0: "", 1: "version=1", 2: "version=2"}[version]
		if x.protocol != want {
			t.Fatalf("client sent Git-Protocol %q, want %q", x.protocol, want)
		}
		var again bytes.Buffer
		if version < 2 {
			q, err := ReadUploadRequest(bytes.NewReader(x.body), Limits{})
			if err != nil {
				t.Fatalf("ReadUploadRequest(%q): %v", x.body, err)
			}
			if err := q.Encode(&again); err != nil {
				t.Fatal(err)
			}
			out = append(out, recordedFetch{v0: q})
		} else {
			q, err := ReadV2Request(bytes.NewReader(x.body), Limits{})
			if err != nil {
				t.Fatalf("ReadV2Request(%q): %v", x.body, err)
			}
			if err := q.Encode(&again); err != nil {
				t.Fatal(err)
			}
			if q.Fetch != nil {
				out = append(out, recordedFetch{v2: q.Fetch})
			}
		}
		if !bytes.Equal(again.Bytes(), x.body) {
			t.Fatalf("encoded again:\n%q\nthe client had sent:\n%q", again.Bytes(), x.body)
		}
	}
	if len(out) == 0 {
		t.Fatal("no fetch among the recorded requests")
	}
	return out
}

func TestF01_RecordedFetchesReadAndWrittenAgain(t *testing.T) {
	for version := range 3 {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			t.Parallel()
			repo := sampleRepo(t)
			rec := newRecorder(t, repo)
			dir := t.TempDir()
			run := func(in string, args ...string) []recordedFetch {
				t.Helper()
				args = append([]string{"-c", fmt.Sprintf("protocol.version=%d", version)}, args...)
				git(t, filepath.Join(dir, in), args...)
				return parseFetches(t, version, rec.take(t, UploadPack))
			}
			testClones(t, run, rec.url)
			testShallow(t, run, rec.url, git(t, repo, "rev-parse", "main"))
			testPartial(t, run, rec.url)
			testIncremental(t, run, rec.url, repo, dir)
		})
	}
}

type runFetch func(in string, args ...string) []recordedFetch

func testClones(t *testing.T, run runFetch, url string) {
	t.Helper()
	got := run("", "clone", "-q", url, "full")
	last := got[len(got)-1]
	if q := last.v2; q != nil && (!q.Done || !q.ThinPack || !q.OFSDelta || len(q.Canonical().Wants) != 4) {
		t.Errorf("clone sent %+v, want done, thin-pack, ofs-delta and 4 wants", q)
	}
	if q := last.v0; q != nil && (!q.Done || len(q.Canonical().Wants) != 4 || q.Capabilities.Sideband() != Sideband64k) {
		t.Errorf("clone sent %+v, want done, side-band-64k and 4 wants", q)
	}
}

func testShallow(t *testing.T, run runFetch, url, tip string) {
	t.Helper()
	// After a fetch that deepens git may send another one for tags.
	depthOf := func(fetches []recordedFetch) *DepthRequest {
		for _, f := range fetches {
			if f.depth().Deepens() {
				return f.depth()
			}
		}
		return fetches[0].depth()
	}
	if d := depthOf(run("", "clone", "-q", "--depth", "1", url, "shallow")); d.Deepen != 1 || len(d.Shallow) != 0 {
		t.Errorf("clone --depth 1 sent %+v, want deepen 1", d)
	}
	if d := depthOf(run("shallow", "fetch", "-q", "--deepen", "2")); d.Deepen != 2 || !d.DeepenRelative || len(d.Shallow) != 1 || d.Shallow[0].String() != tip {
		t.Errorf("fetch --deepen 2 sent %+v, want deepen 2, relative, shallow %s", d, tip)
	}
	if d := depthOf(run("shallow", "fetch", "-q", "--unshallow")); d.Deepen != InfiniteDepth {
		t.Errorf("fetch --unshallow sent %+v, want deepen %d", d, InfiniteDepth)
	}
	if d := depthOf(run("", "clone", "-q", "--shallow-since=1600000120 +0000", url, "since")); d.DeepenSince != 1600000120 {
		t.Errorf("clone --shallow-since sent %+v", d)
	}
	if d := depthOf(run("", "clone", "-q", "--shallow-exclude=v1", "--shallow-exclude=light", url, "exclude")); len(d.DeepenNot) != 2 || d.Deepen != 0 {
		t.Errorf("clone --shallow-exclude sent %+v, want two deepen-not", d)
	}
}

func testPartial(t *testing.T, run runFetch, url string) {
	t.Helper()
	got := run("", "clone", "-q", "--no-checkout", "--filter=blob:none", url, "partial")
	if f := got[len(got)-1].filter(); f != "blob:none" {
		t.Errorf("clone --filter=blob:none sent filter %q", f)
	}
	if run("partial", "checkout", "-q", "main"); t.Failed() {
		return
	}
	got = run("", "clone", "-q", "--no-checkout", "--filter=blob:limit=1k", "--filter=tree:3", url, "combined")
	if f := got[len(got)-1].filter(); f != "combine:blob:limit=1k+tree:3" {
		t.Errorf("clone with two filters sent filter %q", f)
	}
}

// testIncremental fetches into a clone that has commits the server does not know, so that there are several rounds of haves.
func testIncremental(t *testing.T, run runFetch, url, repo, dir string) {
	t.Helper()
	clone := filepath.Join(dir, "full")
	for i := range 60 {
		commit(t, clone, "own", 100+i)
	}
	other := filepath.Join(dir, "other")
	git(t, dir, "clone", "-q", repo, "other")
	commit(t, other, "theirs", 200)
	git(t, other, "push", "-q", "origin", "main")
	known := map[string]bool{}
	for oid := range strings.FieldsSeq(git(t, repo, "rev-list", "--all")) {
		known[oid] = true
	}
	got := run("full", "fetch", "-q", url, "main")
	haves := got[len(got)-1].haves()
	if len(got) < 2 || len(haves) == 0 {
		t.Errorf("fetch took %d requests, the last with %d haves; want several with haves", len(got), len(haves))
	}
	for _, f := range got {
		for _, id := range f.haves() {
			if known[id.String()] {
				return
			}
		}
	}
	t.Errorf("no request had a have that the server knows")
}

// A filtered request has to be one that git upload-pack serves.
func TestFilteredHavesAreServedByGit(t *testing.T) {
	t.Parallel()
	repo := sampleRepo(t)
	tip, _ := refpolicy.ParseOID(git(t, repo, "rev-parse", "main"))
	old, _ := refpolicy.ParseOID(git(t, repo, "rev-parse", "main~3"))
	hidden, _ := refpolicy.ParseOID(git(t, repo, "rev-parse", "side"))
	keep := func(id refpolicy.OID) bool { return id != hidden }

	v2 := &V2Request{Capabilities: Capabilities{"agent=test", "object-format=sha1"}, Fetch: &FetchRequest{
		Wants: []refpolicy.OID{tip}, Haves: []refpolicy.OID{hidden, old}, NoProgress: true, OFSDelta: true,
	}}
	v2.Fetch.FilterHaves(keep)
	var body bytes.Buffer
	if err := v2.Encode(&body); err != nil {
		t.Fatal(err)
	}
	out, err := gitTry(t, repo, []string{"GIT_PROTOCOL=version=2"}, body.Bytes(), "upload-pack", "--stateless-rpc", ".")
	if err != nil {
		t.Fatal(err)
	}
	checkAnswer(t, string(out), "ACK "+old.String(), "ACK "+hidden.String())

	v0 := &UploadRequest{
		Capabilities: Capabilities{"multi_ack_detailed", "side-band-64k", "ofs-delta", "no-progress"},
		Wants:        []refpolicy.OID{tip}, Haves: [][]refpolicy.OID{{hidden, old}}, Done: true,
	}
	v0.FilterHaves(keep)
	body.Reset()
	if err := v0.Encode(&body); err != nil {
		t.Fatal(err)
	}
	out, err = gitTry(t, repo, nil, body.Bytes(), "upload-pack", "--stateless-rpc", ".")
	if err != nil {
		t.Fatal(err)
	}
	checkAnswer(t, string(out), "ACK "+old.String(), "ACK "+hidden.String())
	if !strings.Contains(string(out), "PACK") {
		t.Errorf("upload-pack answered %q, want a pack", out)
	}
}

func checkAnswer(t *testing.T, answer, want, never string) {
	t.Helper()
	if !strings.Contains(answer, want) || strings.Contains(answer, never) {
		t.Errorf("upload-pack answered %q, want %q and never %q", answer, want, never)
	}
}

// parsePushes reads every recorded push and demands that its head is written
// again byte by byte, that the pack is left whole, and that git's report is read and written again.
func parsePushes(t *testing.T, recorded []exchange) []*ReceiveRequest {
	t.Helper()
	var out []*ReceiveRequest
	for _, x := range recorded {
		body := bufio.NewReader(bytes.NewReader(x.body))
		q, err := ReadReceiveRequest(body, Limits{})
		if err != nil {
			t.Fatalf("ReadReceiveRequest(%q): %v", x.body[:min(len(x.body), 400)], err)
		}
		rest, err := io.ReadAll(body)
		if err != nil {
			t.Fatal(err)
		}
		var again bytes.Buffer
		if err := q.Encode(&again); err != nil {
			t.Fatal(err)
		}
		if head := x.body[:len(x.body)-len(rest)]; !bytes.Equal(again.Bytes(), head) {
			t.Fatalf("encoded again:\n%q\nthe client had sent:\n%q", again.Bytes(), head)
		}
		if q.ExpectsPack() != bytes.HasPrefix(rest, []byte("PACK")) {
			t.Fatalf("ExpectsPack() = %v, but after the request stands %q", q.ExpectsPack(), rest[:min(len(rest), 8)])
		}
		if len(q.Updates) > 0 {
			checkReport(t, q, x.answer)
			out = append(out, q)
		} else if len(x.answer) > 0 {
			t.Errorf("git answered a probe with %q", x.answer)
		}
	}
	return out
}

func checkReport(t *testing.T, q *ReceiveRequest, answer []byte) {
	t.Helper()
	plain, err := io.ReadAll(NewDemux(NewReader(bytes.NewReader(answer), 0), nil))
	if err != nil {
		t.Fatalf("demultiplex %q: %v", answer, err)
	}
	report, err := ReadReport(NewReader(bytes.NewReader(plain), 0))
	if err != nil {
		t.Fatalf("ReadReport(%q): %v", plain, err)
	}
	if len(report.Refs) != len(q.Updates) {
		t.Errorf("git reports %d refs of %d", len(report.Refs), len(q.Updates))
	}
	var again bytes.Buffer
	if err := report.Encode(&again, q.ReportForm()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Bytes(), plain) {
		t.Errorf("report encoded again: %q, git had sent %q", again.Bytes(), plain)
	}
}

func TestF01_RecordedPushesReadAndWrittenAgain(t *testing.T) {
	for version := range 3 {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			t.Parallel()
			repo := sampleRepo(t)
			rec := newRecorder(t, repo)
			dir := t.TempDir()
			git(t, dir, "clone", "-q", repo, "work")
			work := filepath.Join(dir, "work")
			push := func(in string, fails bool, args ...string) []*ReceiveRequest {
				t.Helper()
				args = append([]string{"-c", fmt.Sprintf("protocol.version=%d", version), "push", "-q"}, args...)
				if _, err := gitTry(t, in, nil, nil, args...); (err != nil) != fails {
					t.Fatalf("git %v: error %v, want one: %v", args, err, fails)
				}
				return parsePushes(t, rec.take(t, ReceivePack))
			}
			testPlainPushes(t, push, work, rec.url)
			testRefusedPushes(t, push, work, rec.url)
			git(t, dir, "clone", "-q", "--depth", "1", "file://"+repo, "shallow")
			shallow := filepath.Join(dir, "shallow")
			commit(t, shallow, "s", 400)
			if q := push(shallow, false, rec.url, "HEAD:refs/heads/from-shallow")[0]; len(q.Shallow) != 1 {
				t.Errorf("push from a shallow clone sent %d shallow lines, want 1", len(q.Shallow))
			}
		})
	}
}

type runPush func(in string, fails bool, args ...string) []*ReceiveRequest

func testPlainPushes(t *testing.T, push runPush, work, url string) {
	t.Helper()
	tip := commit(t, work, "p", 300)
	q := push(work, false, url, "HEAD:refs/heads/new")[0]
	if len(q.Updates) != 1 || !q.Updates[0].Old.IsZero() || q.Updates[0].New.String() != tip || q.Updates[0].Ref != "refs/heads/new" {
		t.Errorf("push of a new branch sent %+v", q.Updates)
	}
	if q.ReportForm() != ReportV2 || q.Sideband() != Sideband64k || q.Atomic() || !q.Quiet() {
		t.Errorf("push sent capabilities %q", q.Capabilities)
	}
	q = push(work, false, "-o", "first=1", "-o", "", "-o", "a b", "--atomic", url, "HEAD:refs/heads/one", "HEAD:refs/heads/two")[0]
	if want := []string{"first=1", "", "a b"}; fmt.Sprint(q.PushOptions) != fmt.Sprint(want) || !q.Atomic() || len(q.Updates) != 2 {
		t.Errorf("atomic push with options sent %+v, want options %q and two updates", q, want)
	}
	if q = push(work, false, url, ":refs/heads/one")[0]; q.ExpectsPack() || !q.Updates[0].New.IsZero() {
		t.Errorf("deletion sent %+v", q.Updates)
	}
	big := make([]byte, 2<<20)
	_, _ = rand.Read(big)
	if err := os.WriteFile(filepath.Join(work, "big"), big, 0o600); err != nil {
		t.Fatal(err)
	}
	commit(t, work, "big2", 301)
	git(t, work, "add", "big")
	git(t, work, "commit", "-q", "-m", "big")
	push(work, false, url, "HEAD:refs/heads/big")
}

func testRefusedPushes(t *testing.T, push runPush, work, url string) {
	t.Helper()
	q := push(work, true, url, "HEAD:refs/heads/main/x", "HEAD:refs/heads/fine")[0]
	if len(q.Updates) != 2 {
		t.Errorf("push of two refs sent %+v", q.Updates)
	}
	push(work, true, url, ":refs/heads/main")
	push(work, true, "--atomic", url, "HEAD:refs/heads/fine2", "HEAD:refs/heads/main/y")
	push(work, true, url, "HEAD:refs/foo")
}

// A client sends bodies over 1 KiB compressed and pushes over 1 MiB in chunks, after a probe.
func TestCase1_1And1_2_GzipBodyAndProbeBeforeChunkedPush(t *testing.T) {
	t.Parallel()
	repo := sampleRepo(t)
	rec := newRecorder(t, repo)
	work := filepath.Join(t.TempDir(), "work")
	git(t, filepath.Dir(work), "clone", "-q", repo, "work")
	for i := range 40 {
		commit(t, work, "many", 500+i)
		git(t, work, "tag", fmt.Sprintf("many/%03d", i))
	}
	big := make([]byte, 3<<20)
	_, _ = rand.Read(big)
	if err := os.WriteFile(filepath.Join(work, "big"), big, 0o600); err != nil {
		t.Fatal(err)
	}
	git(t, work, "add", "big")
	git(t, work, "commit", "-q", "-m", "big")
	git(t, work, "push", "-q", "--tags", rec.url, "HEAD:refs/heads/big")
	pushed := rec.take(t, ReceivePack)
	parsePushes(t, pushed)
	if len(pushed) != 2 || string(pushed[0].body) != "0000" || !pushed[1].chunked {
		t.Errorf("push of 3 MB was %d requests, want a probe and a chunked one", len(pushed))
	}
	git(t, filepath.Dir(work), "-c", "protocol.version=0", "clone", "-q", rec.url, "again")
	fetched := rec.take(t, UploadPack)
	parseFetches(t, 0, fetched)
	if !fetched[0].gzipped {
		t.Errorf("clone of 40 tags sent its wants without gzip")
	}
}
