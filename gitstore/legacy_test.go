package gitstore

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/headgate/headgate/gitstore/wire"
)

// packTypes gives the types of a pack's entries and fails the test if it is no whole pack.
func packTypes(t *testing.T, pack string) map[ObjectType]int {
	t.Helper()
	p := &packParser{data: []byte(pack), left: 64 << 20, file: 64 << 20}
	n, err := p.header(1 << 20)
	for range n {
		if err == nil {
			err = p.entry()
		}
	}
	if err != nil || p.pos != len(p.data) {
		t.Fatalf("answer is no whole pack: %v, %d of %d bytes", err, p.pos, len(p.data))
	}
	types := map[ObjectType]int{}
	for _, e := range p.entries {
		types[e.typ]++
	}
	return types
}

// Requests as older clients sent them: fetches.
func TestF01_LegacyFetch(t *testing.T) {
	f := newFetchSource(t, Limits{HotPackBytes: 1}) // so that the client's deltas are stored
	tip := f.commits[9]
	fetch := func(lines ...string) string {
		return f.s.post(t, someone, MainRemote, "git-upload-pack", "", pkts(lines...))
	}
	t.Run("no capabilities", func(t *testing.T) {
		pack, ok := strings.CutPrefix(fetch("want "+tip+"\n", "", "done\n"), pkts("NAK\n"))
		if !ok {
			t.Fatal("answer does not begin with NAK")
		}
		if types := packTypes(t, pack); types[CommitObject] != 10 || types[ofsDelta] != 0 {
			t.Errorf("types in the pack: %v, want 10 commits and no ofs-delta", types)
		}
	})
	t.Run("ofs-delta without side-band", func(t *testing.T) {
		pack := strings.TrimPrefix(fetch("want "+tip+" ofs-delta\n", "", "done\n"), pkts("NAK\n"))
		if types := packTypes(t, pack); types[ofsDelta] == 0 || types[refDelta] != 0 {
			t.Errorf("types in the pack: %v, want deltas by offset", types)
		}
	})
	t.Run("small side-band", func(t *testing.T) {
		answer := strings.TrimPrefix(fetch("want "+tip+" side-band no-progress\n", "", "done\n"), pkts("NAK\n"))
		var pack strings.Builder
		in := wire.NewReader(strings.NewReader(answer), 0)
		for {
			kind, data, err := in.Next()
			if err != nil || kind == wire.Flush {
				break
			}
			if len(data) > 996 || data[0] != wire.BandData {
				t.Fatalf("packet of %d bytes on band %d", len(data), data[0])
			}
			pack.Write(data[1:])
		}
		packTypes(t, pack.String())
	})
	t.Run("multi_ack without detail", func(t *testing.T) {
		answer := fetch("want "+tip+" multi_ack\n", "", "have "+f.commits[2]+"\n", "have "+f.commits[1]+"\n", "")
		if want := pkts("ACK "+f.commits[2]+" continue\n", "ACK "+f.commits[1]+" continue\n", "NAK\n"); answer != want {
			t.Errorf("answer %q, want %q", answer, want)
		}
		answer = fetch("want "+tip+"\n", "", "have "+f.commits[8]+"\n", "done\n")
		pack, ok := strings.CutPrefix(answer, pkts("ACK "+f.commits[8]+"\n"))
		if !ok || packTypes(t, pack)[CommitObject] != 1 {
			t.Errorf("answer to a have and done begins %.80q", answer)
		}
	})
	t.Run("depth", func(t *testing.T) {
		boundary := pkts("shallow "+f.commits[8], "")
		if got := fetch("want "+tip+" shallow\n", "deepen 2\n", ""); got != boundary {
			t.Errorf("first answer %q, want %q", got, boundary)
		}
		pack, ok := strings.CutPrefix(fetch("want "+tip+" shallow\n", "deepen 2\n", "", "done\n"), boundary+pkts("NAK\n"))
		if !ok || packTypes(t, pack)[CommitObject] != 2 {
			t.Errorf("the answer to done does not repeat the boundary, or has another pack")
		}
	})
	t.Run("nothing wanted", func(t *testing.T) {
		for _, body := range []string{"", "0000"} {
			if got := f.s.post(t, someone, MainRemote, "git-upload-pack", "", body); got != "" {
				t.Errorf("answer to %q is %q", body, got)
			}
		}
	})
	t.Run("malformed", func(t *testing.T) {
		for _, body := range []string{"0003", "zzzz", pkts("want x\n", ""), pkts("wont " + tip), "0001", pkts("want "+tip+"\n", "", "have x\n")} {
			if got := f.s.post(t, someone, MainRemote, "git-upload-pack", "", body); !strings.HasPrefix(got[4:], "ERR ") {
				t.Errorf("answer to %q is %q, want an ERR packet", body, got)
			}
		}
		for _, body := range []string{pkts("command=object-info", ""), pkts("command=fetch") + "0001" + pkts("want-ref refs/heads/main", ""), pkts("ls-refs", "")} {
			if got := f.s.post(t, someone, MainRemote, "git-upload-pack", "version=2", body); !strings.HasPrefix(got[4:], "ERR ") {
				t.Errorf("answer to %q is %q, want an ERR packet", body, got)
			}
		}
	})
	f.s.noErrors()
}

// Requests as older clients sent them: pushes.
func TestF01_LegacyPush(t *testing.T) {
	eachRoad(t, func(t *testing.T, p *pushTarget) {
		first := p.w.git("rev-parse", "HEAD")
		second := p.w.commit("README", strings.Repeat("second\n", 100))
		third := p.w.commit("README", strings.Repeat("second\n", 100)+"third\n")
		push := func(lines ...string) string {
			return p.s.post(t, someone, MainRemote, "git-receive-pack", "", strings.Join(lines, ""))
		}
		whole := p.w.packOf(first+"\n", "--revs")
		if got := push(pkts(zeros40+" "+first+" refs/heads/main", ""), whole); got != "" {
			t.Errorf("push without capabilities was answered with %q", got)
		}
		p.at("refs/heads/main", first)

		next := p.w.packOf(second+"\n^"+first+"\n", "--revs") // not thin, deltas by id
		if got, want := push(pkts(first+" "+second+" refs/heads/main\x00 report-status", ""), next), pkts("unpack ok\n", "ok refs/heads/main\n", ""); got != want {
			t.Errorf("push without side-band was answered with %q, want %q", got, want)
		}
		p.at("refs/heads/main", second)

		thin := p.w.packOf(third+"\n^"+second+"\n", "--revs", "--thin") // no ofs-delta
		got := push(pkts(second+" "+third+" refs/heads/main\x00 report-status side-band-64k agent=git/1.8.0", ""), thin)
		report, err := io.ReadAll(wire.NewDemux(wire.NewReader(strings.NewReader(got), 0), nil))
		if want := pkts("unpack ok\n", "ok refs/heads/main\n", ""); err != nil || string(report) != want {
			t.Errorf("report is %q, %v; want %q", report, err, want)
		}
		p.at("refs/heads/main", third)

		refusal := push(pkts(zeros40+" "+first+" refs/heads/main/x\x00report-status", ""), emptyPack)
		if want := pkts("unpack ok\n", "ng refs/heads/main/x cannot lock ref refs/heads/main/x: refs/heads/main exists; cannot create\n", ""); refusal != want {
			t.Errorf("refusal is %q, want %q", refusal, want)
		}
	})
}

func TestMalformedPushes(t *testing.T) {
	eachRoad(t, func(t *testing.T, p *pushTarget) {
		tip := p.w.git("rev-parse", "HEAD")
		pack := p.w.packOf(tip+"\n", "--revs")
		command := pkts(zeros40+" "+tip+" refs/heads/main\x00report-status", "")
		for _, tc := range []struct{ name, body, want string }{
			{"no pack", command, "unpack bad object: pack: "},
			{"cut", command + pack[:len(pack)-30], "unpack bad object: pack: "},
			{"garbage behind", command + pack + "more", "unpack bad object: pack: "},
			{"damaged", command + pack[:40] + string([]byte{pack[40] ^ 1}) + pack[41:], "unpack bad object: pack: "},
			{"wrong checksum", command + pack[:len(pack)-1] + string([]byte{pack[len(pack)-1] ^ 1}), "unpack bad object: pack: checksum does not match"},
			{"twice", command + twice(), "comes twice"},
			{"bad object", command + badTree(), "unpack object "},
			{"not a command", pkts("hello", ""), "expected old/new/ref"},
			{"push cert", pkts("push-cert\x00report-status\n", ""), "push certificate is not supported"},
			{"same ref twice", pkts(zeros40+" "+tip+" refs/heads/main\x00report-status", zeros40+" "+tip+" refs/heads/main", "") + pack, "multiple updates for ref"},
		} {
			if got := p.s.post(t, someone, MainRemote, "git-receive-pack", "", tc.body); !strings.Contains(got, tc.want) {
				t.Errorf("%s: answer is %q, want it to contain %q", tc.name, got, tc.want)
			}
			if tc.name != "same ref twice" { // the first of the two is done
				p.at("refs/heads/main", "")
			}
		}
	})
}

func twice() string {
	var p rawPack
	p.add(BlobObject, "x")
	p.add(BlobObject, "x")
	return p.pack()
}

func badTree() string {
	var p rawPack
	p.add(TreeObject, treeOf("40000 .git"))
	return p.pack()
}

// A client that goes away during a fetch ends the process that packs for it.
func TestFetchEndsWithItsClient(t *testing.T) {
	f := newFetchSource(t, Limits{})
	gone := errors.New("client has gone")
	q := GitRequest{In: strings.NewReader(pkts("want "+f.commits[9]+" side-band-64k\n", "", "done\n")), Out: writerFunc(func([]byte) (int, error) { return 0, gone })}
	if err := f.r.UploadPack(t.Context(), someone, q); !errors.Is(err, gone) {
		t.Errorf("UploadPack to a client that has gone = %v, want its error", err)
	}
	nothingLeft(t, f.r)
	var out bytes.Buffer
	q = GitRequest{In: strings.NewReader(pkts("want "+f.commits[9]+" side-band-64k\n", "") + "00"), Out: &out}
	if err := f.r.UploadPack(t.Context(), someone, q); !errors.Is(err, io.ErrUnexpectedEOF) || !errors.Is(err, ErrInvalid) || out.Len() > 0 {
		t.Errorf("UploadPack of a request cut short = %v and wrote %q", err, out.String())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
