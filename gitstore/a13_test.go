package gitstore

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/headgate/headgate/gitstore/wire"
	"github.com/headgate/headgate/refpolicy"
)

// a13 is a repo in which session A's token must not learn of session B's objects.
type a13 struct {
	s       *gitServer
	r       *Repo
	c       Caller // may read and write s/a and the tag mine, and nothing else
	a       string // A's tip
	tree    string // its tree
	secrets []secret
}

// secret is an object that only B reaches.
type secret struct {
	name string
	id   string
	data string
}

const (
	branchA13 = refpolicy.EphemeralBranchPrefix + "s/a"
	branchB13 = refpolicy.EphemeralBranchPrefix + "s/b"
	tag13     = refpolicy.EphemeralPrefix + "refs/tags/mine"
)

func newA13(t *testing.T, l Limits) *a13 {
	t.Helper()
	r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Limits = l }), "repo")
	x := &a13{s: newGitServer(t, r), r: r}
	w := newWorkTree(t)
	w.git("init", "-q")
	backend := x.s.url(someone, EphemeralRemote)
	x.a = w.commit("shared", strings.Repeat("shared\n", 50))
	x.tree = w.git("rev-parse", "HEAD^{tree}")
	w.git("push", "-q", backend, "HEAD:refs/heads/s/a")
	w.commit("dir/older", "an older secret")
	w.commit("dir/secret", strings.Repeat("the secret of B\n", 30))
	w.git("tag", "-a", "-m", "secret tag", "hidden")
	w.git("push", "-q", backend, "HEAD:refs/heads/s/b", "hidden")
	for _, rev := range []string{"HEAD", "HEAD^", "HEAD^{tree}", "HEAD:dir", "HEAD:dir/secret", "hidden"} {
		id := w.git("rev-parse", rev)
		out, err := w.command("cat-file", w.git("cat-file", "-t", id), id).Output()
		if err != nil {
			t.Fatalf("cat-file %s: %v", id, err)
		}
		x.secrets = append(x.secrets, secret{rev, id, string(out)})
	}
	policy, err := refpolicy.New([]refpolicy.Rule{
		{Pattern: branchA13, Ops: []refpolicy.Op{refpolicy.NoForcePush}}, {Pattern: tag13},
		{Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoRead}},
	}, nil)
	if err != nil {
		t.Fatalf("refpolicy.New: %v", err)
	}
	x.c = Caller{Actor: Actor{Org: "acme", Subject: "sandbox"}, Policy: policy}
	return x
}

const author13 = "author A <a@b> 1234567890 +0000\ncommitter A <a@b> 1234567890 +0000\n\nx\n"

// fetchV2 and fetchV0 are requests as git sends them.
func (x *a13) fetchV2(t *testing.T, lines ...string) string {
	return joined(t, x.s.post(t, x.c, EphemeralRemote, "git-upload-pack", "version=2",
		pkts("command=fetch", "object-format=sha1")+"0001"+pkts(append(lines, "")...)))
}

func (x *a13) fetchV0(t *testing.T, lines ...string) string {
	return joined(t, x.s.post(t, x.c, EphemeralRemote, "git-upload-pack", "", pkts(lines...)))
}

// joined is an answer whose pack is in one piece: into how many packets git cuts it
// depends on how fast it was made.
func joined(t *testing.T, answer string) string {
	t.Helper()
	var out, pack strings.Builder
	in := wire.NewReader(strings.NewReader(answer), 0)
	for {
		kind, data, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return out.String() + pack.String()
		case err != nil:
			t.Fatalf("answer %q: %v", answer, err)
		case kind == wire.Data && len(data) > 0 && data[0] == wire.BandData:
			pack.Write(data[1:])
		default:
			fmt.Fprintf(&out, "%s %q\n", kind, data)
		}
	}
}

// push sends a pack that is to move s/a to new.
func (x *a13) push(t *testing.T, newID string, pack string) string {
	return x.update(t, x.a+" "+newID+" refs/heads/s/a", pack)
}

func (x *a13) update(t *testing.T, command, pack string) string {
	return x.s.post(t, x.c, EphemeralRemote, "git-receive-pack", "", pkts(command+"\x00report-status side-band-64k", "")+pack)
}

// commitOn is a push of a commit of tree on A's tip, with what p holds already.
func (x *a13) commitOn(t *testing.T, p *rawPack, tree string) string {
	id := p.add(CommitObject, "tree "+tree+"\nparent "+x.a+"\n"+author13)
	return x.push(t, id.String(), p.pack())
}

func binaryID(id string) string {
	b, err := hex.DecodeString(id)
	if err != nil {
		panic(err)
	}
	return string(b)
}

const caps13 = " multi_ack_detailed no-done side-band-64k thin-pack ofs-delta no-progress include-tag"

// doors13 are the doors of fetch and push. Each is tried with every secret, and the
// answer must be the one for an object that does not exist.
var doors13 = []struct {
	name string
	open func(t *testing.T, x *a13, s secret) string
}{
	{"want, v2", func(t *testing.T, x *a13, s secret) string {
		return x.fetchV2(t, "want "+s.id+"\n", "done\n")
	}},
	{"want beside another, v2", func(t *testing.T, x *a13, s secret) string {
		return x.fetchV2(t, "want "+x.a+"\n", "want "+s.id+"\n", "done\n")
	}},
	{"want, v2, shallow and filtered", func(t *testing.T, x *a13, s secret) string {
		return x.fetchV2(t, "deepen 1", "filter tree:0", "want "+s.id+"\n", "done\n")
	}},
	{"want, v0", func(t *testing.T, x *a13, s secret) string {
		return x.fetchV0(t, "want "+s.id+caps13+"\n", "", "done\n")
	}},
	{"have, v2", func(t *testing.T, x *a13, s secret) string {
		return x.fetchV2(t, "thin-pack", "ofs-delta", "no-progress", "include-tag", "want "+x.a+"\n", "have "+s.id+"\n")
	}},
	{"have and done, v2", func(t *testing.T, x *a13, s secret) string {
		return x.fetchV2(t, "thin-pack", "ofs-delta", "no-progress", "include-tag", "want "+x.a+"\n", "have "+s.id+"\n", "done\n")
	}},
	{"have, v0", func(t *testing.T, x *a13, s secret) string {
		return x.fetchV0(t, "want "+x.a+caps13+"\n", "", "have "+s.id+"\n", "")
	}},
	{"have and done, v0", func(t *testing.T, x *a13, s secret) string {
		return x.fetchV0(t, "want "+x.a+caps13+"\n", "", "have "+s.id+"\n", "done\n")
	}},
	{"shallow, v2", func(t *testing.T, x *a13, s secret) string {
		return x.fetchV2(t, "no-progress", "shallow "+s.id, "deepen 1", "want "+x.a+"\n", "done\n")
	}},
	{"shallow and deepen relative, v0", func(t *testing.T, x *a13, s secret) string {
		return x.fetchV0(t, "want "+x.a+caps13+" shallow deepen-relative\n", "shallow "+s.id+"\n", "deepen 1\n", "", "done\n")
	}},
	{"filter by a stored spec", func(t *testing.T, x *a13, s secret) string {
		return x.fetchV2(t, "filter sparse:oid="+s.id, "want "+x.a+"\n", "done\n")
	}},
	{"ref command with an empty pack", func(t *testing.T, x *a13, s secret) string {
		return x.push(t, s.id, emptyPack)
	}},
	{"ref command without a pack", func(t *testing.T, x *a13, s secret) string {
		return x.push(t, s.id, "")
	}},
	{"ref command for a tag", func(t *testing.T, x *a13, s secret) string {
		return x.update(t, zeros40+" "+s.id+" refs/tags/mine", emptyPack)
	}},
	{"old value of a deletion", func(t *testing.T, x *a13, s secret) string {
		return x.update(t, s.id+" "+zeros40+" refs/tags/mine", "")
	}},
	{"old value of an update", func(t *testing.T, x *a13, s secret) string {
		return x.update(t, s.id+" "+x.a+" refs/heads/s/a", emptyPack)
	}},
	{"old value of a forbidden ref", func(t *testing.T, x *a13, s secret) string {
		return x.update(t, s.id+" "+x.a+" refs/heads/s/b", emptyPack)
	}},
	{"parent of a commit", func(t *testing.T, x *a13, s secret) string {
		var p rawPack
		id := p.add(CommitObject, "tree "+x.tree+"\nparent "+s.id+"\n"+author13)
		return x.push(t, id.String(), p.pack())
	}},
	{"second parent of a commit", func(t *testing.T, x *a13, s secret) string {
		var p rawPack
		id := p.add(CommitObject, "tree "+x.tree+"\nparent "+x.a+"\nparent "+s.id+"\n"+author13)
		return x.push(t, id.String(), p.pack())
	}},
	{"tree of a commit", func(t *testing.T, x *a13, s secret) string {
		return x.commitOn(t, &rawPack{}, s.id)
	}},
	{"file in a tree", func(t *testing.T, x *a13, s secret) string {
		var p rawPack
		tree := p.add(TreeObject, "100644 f\x00"+binaryID(s.id))
		return x.commitOn(t, &p, tree.String())
	}},
	{"folder in a tree", func(t *testing.T, x *a13, s secret) string {
		var p rawPack
		tree := p.add(TreeObject, "40000 d\x00"+binaryID(s.id))
		return x.commitOn(t, &p, tree.String())
	}},
	{"object of a tag", func(t *testing.T, x *a13, s secret) string {
		var answers string
		for _, typ := range []string{"commit", "tree", "blob", "tag"} {
			var p rawPack
			id := p.add(TagObject, "object "+s.id+"\ntype "+typ+"\ntag mine\ntagger A <a@b> 1234567890 +0000\n\nx\n")
			answers += x.update(t, zeros40+" "+id.String()+" refs/tags/mine", p.pack())
		}
		return answers
	}},
	{"base of a delta", func(t *testing.T, x *a13, s secret) string {
		var p rawPack
		p.refDelta(refpolicy.OID([]byte(binaryID(s.id))), deltaOf(len(s.data), len(s.data), "more\n"))
		made := hashObject(BlobObject, []byte(s.data+"more\n"))
		tree := p.add(TreeObject, "100644 f\x00"+string(made[:]))
		return x.commitOn(t, &p, tree.String())
	}},
	{"base of a delta that is not needed", func(t *testing.T, x *a13, s secret) string {
		var p rawPack
		p.refDelta(refpolicy.OID([]byte(binaryID(s.id))), deltaOf(len(s.data), 10, "more\n"))
		return x.commitOn(t, &p, x.tree)
	}},
	{"base of a delta of another size", func(t *testing.T, x *a13, s secret) string {
		var p rawPack
		p.refDelta(refpolicy.OID([]byte(binaryID(s.id))), deltaOf(len(s.data)+1, 10, "more\n"))
		return x.commitOn(t, &p, x.tree)
	}},
	{"base of a delta that copies too much", func(t *testing.T, x *a13, s secret) string {
		var p rawPack
		p.refDelta(refpolicy.OID([]byte(binaryID(s.id))), deltaOf(len(s.data), len(s.data)+1, "more\n"))
		return x.commitOn(t, &p, x.tree)
	}},
	{"base of a delta that makes a malformed object", func(t *testing.T, x *a13, s secret) string {
		var p rawPack
		p.refDelta(refpolicy.OID([]byte(binaryID(s.id))), deltaOf(len(s.data), 3, "\x00"))
		return x.commitOn(t, &p, x.tree)
	}},
	{"base of a delta beside a deletion", func(t *testing.T, x *a13, s secret) string {
		var p rawPack
		p.refDelta(refpolicy.OID([]byte(binaryID(s.id))), deltaOf(len(s.data), 10, "more\n"))
		id := p.add(CommitObject, "tree "+x.tree+"\nparent "+x.a+"\n"+author13)
		return x.s.post(t, x.c, EphemeralRemote, "git-receive-pack", "", pkts(
			x.a+" "+id.String()+" refs/heads/s/a\x00report-status side-band-64k", zeros40+" "+zeros40+" refs/tags/mine", "")+p.pack())
	}},
}

func TestA13_DoorsOfFetchAndPush(t *testing.T) {
	for road, l := range map[string]Limits{"small": {}, "large": {HotPackBytes: 1}} {
		t.Run(road, func(t *testing.T) {
			x := newA13(t, l)
			x.tellsNothing(t)
			x.unmoved(t)
		})
	}
}

// tellsNothing fails the test if a door answers for what the token may not read
// otherwise than for what does not exist.
func (x *a13) tellsNothing(t *testing.T) {
	t.Helper()
	for _, d := range doors13 {
		for n, s := range x.secrets {
			got := d.open(t, x, s)
			missing := secret{s.name, strings.Repeat(fmt.Sprintf("%02x", 0x10+n), 20), s.data}
			want := d.open(t, x, missing)
			got, want = strings.ReplaceAll(got, s.id, "<id>"), strings.ReplaceAll(want, missing.id, "<id>")
			if got != want {
				t.Errorf("%s: %s was answered with\n%q\nand an object that does not exist with\n%q", d.name, s.name, got, want)
			}
			if strings.Contains(got, "secret of B") {
				t.Errorf("%s: %s: the secret is in the answer %q", d.name, s.name, got)
			}
		}
	}
}

// unmoved fails the test if a door let anything in.
func (x *a13) unmoved(t *testing.T) {
	t.Helper()
	for ref, want := range map[refpolicy.RefName]string{branchA13: x.a, branchB13: x.secrets[0].id, tag13: ""} {
		got := ""
		if r, err := x.r.Ref(t.Context(), someone, ref); err == nil {
			got = r.OID.String()
		}
		if got != want {
			t.Errorf("%s is at %q, want %q", ref, got, want)
		}
	}
	x.s.noErrors()
	nothingLeft(t, x.r)
}

// What a confined token sees names nothing of B, and refs of B cannot be told from
// refs that do not exist.
func TestA13_RefsOfOthers(t *testing.T) {
	x := newA13(t, Limits{})
	for _, remote := range []Remote{MainRemote, EphemeralRemote} {
		for _, protocol := range []string{"", "version=1", "version=2"} {
			seen := x.s.get(t, x.c, remote, "git-upload-pack", protocol) + x.s.get(t, x.c, remote, "git-receive-pack", protocol) +
				x.s.post(t, x.c, remote, "git-upload-pack", "version=2", pkts("command=ls-refs")+"0001"+pkts("peel", "symrefs", "unborn", ""))
			for _, s := range x.secrets {
				if strings.Contains(seen, s.id) || strings.Contains(seen, "s/b") {
					t.Errorf("remote %d in %q shows %s: %q", remote, protocol, s.name, seen)
				}
			}
		}
	}
	for there, absent := range map[string]string{"refs/heads/s/b": "refs/heads/s/x", "s/b": "s/x", "hidden": "absent", "refs/tags/hidden": "refs/tags/absent"} {
		ask := func(name string) string {
			answer := x.fetchV2(t, "no-progress", "deepen-not "+name, "want "+x.a+"\n", "done\n") +
				x.s.post(t, x.c, EphemeralRemote, "git-upload-pack", "version=2", pkts("command=ls-refs")+"0001"+pkts("ref-prefix "+name, ""))
			return strings.ReplaceAll(answer, name, "<name>")
		}
		if got, want := ask(there), ask(absent); got != want {
			t.Errorf("%s was answered with %q, a ref that does not exist with %q", there, got, want)
		}
	}
	push := func(name string) string {
		return strings.ReplaceAll(x.update(t, zeros40+" "+x.a+" "+name, emptyPack), name, "<name>")
	}
	if got, want := push("refs/heads/s/b"), push("refs/heads/s/x"); got != want {
		t.Errorf("creating s/b was answered with %q, a ref that does not exist with %q", got, want)
	}
	x.unmoved(t)
}

// What the token may read is served by each of the doors' good forms.
func TestA13_OwnObjectsAreServed(t *testing.T) {
	x := newA13(t, Limits{})
	url := x.s.url(x.c, EphemeralRemote)
	eachProtocol(t, func(t *testing.T, version string) {
		w := newWorkTree(t, version)
		w.git("clone", "-q", "--filter=blob:none", url, ".")
		if got := w.git("show", "HEAD:shared"); !strings.HasPrefix(got, "shared") {
			t.Errorf("lazily fetched blob is %q", got)
		}
		w.git("fetch", "-q", "origin", x.a)
		w.git("fetch", "-q", "origin", x.tree)
	})
	x.s.noErrors()
}

// A delta's base that the pack makes as well is the client's own, wherever else it
// exists: that it does must not show.
func TestA13_BaseThatThePackMakes(t *testing.T) {
	for road, l := range map[string]Limits{"small": {}, "large": {HotPackBytes: 1}} {
		t.Run(road, func(t *testing.T) {
			x := newA13(t, l)
			stored := x.secrets[4]
			shared := hashObject(BlobObject, []byte(strings.Repeat("shared\n", 50)))
			push := func(data string) string {
				var p rawPack
				base := hashObject(BlobObject, []byte(data))
				p.refDelta(base, deltaOf(len(data), 10, "more\n"))
				p.refDelta(shared, deltaOf(350, 0, data))
				made := hashObject(BlobObject, []byte(data[:10]+"more\n"))
				tree := p.add(TreeObject, "100644 f\x00"+string(made[:]))
				id := p.add(CommitObject, "tree "+tree.String()+"\nparent "+x.a+"\n"+author13)
				answer := x.push(t, id.String(), p.pack())
				if strings.Contains(answer, "ok refs/heads/s/a") {
					x.a = id.String()
				}
				return answer
			}
			got := push(stored.data)
			want := push("not " + stored.data)
			if got != want {
				t.Errorf("a base that exists was answered with %q, one that does not with %q", got, want)
			}
			x.unmoved(t)
		})
	}
}

// A client that has much which is unknown here sends it in rounds, and waits for
// acknowledgments after each.
func TestA13_FetchByAClientThatHasNothingReadable(t *testing.T) {
	for _, protocol := range []string{"0", "2"} {
		x := newA13(t, Limits{})
		w := newWorkTree(t, "protocol.version="+protocol)
		w.git("init", "-q")
		for n := range 40 {
			w.git("commit", "-q", "--allow-empty", "-m", fmt.Sprint(n))
		}
		w.git("fetch", "-q", x.s.url(x.c, EphemeralRemote), "s/a")
		if got := w.git("rev-parse", "FETCH_HEAD"); got != x.a {
			t.Errorf("protocol %s: fetch of s/a got %s, want %s", protocol, got, x.a)
		}
		x.s.noErrors()
	}
	x := newA13(t, Limits{})
	want := "data \"acknowledgments\\n\"\ndata \"NAK\\n\"\nflush \"\"\n"
	for _, have := range []string{x.secrets[0].id, strings.Repeat("12", 20)} {
		if got := x.fetchV2(t, "no-progress", "want "+x.a+"\n", "have "+have+"\n"); got != want {
			t.Errorf("fetch with have %s and no done: %q, want %q", have, got, want)
		}
	}
}
