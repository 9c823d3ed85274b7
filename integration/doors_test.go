package integration

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

// A vault is a repo with a session a that a token may read and a session b that it
// may not: nothing that only b reaches exists for it.
type vault struct {
	*repo
	tries int    // every push that makes a branch makes another one
	token string // a's
	main  string
	group string // fork of b
	jti   string // of a token of b
	own   string // head of a
	// What only b reaches.
	ancestor, tip, tree, blob string
	// Its snapshot, and a tree and a chunk's blob of that.
	snapshot, leaf, chunk string
}

func newVault(g *gate) *vault {
	g.t.Helper()
	r, main := g.seeded()
	v := &vault{repo: r, main: main}
	for _, id := range []string{"a", "b"} {
		r.begin(map[string]any{"id": id, "branch": id, "base_ref": "main", "holder": "holder of " + id})
	}
	v.own = r.commit(harness.Commit{Branch: "a", Ephemeral: true, Files: []harness.File{{Path: "mine", Content: "mine"}}})
	v.ancestor = r.commit(harness.Commit{Branch: "b", Ephemeral: true, Files: []harness.File{{Path: "secret/plan", Content: "the first secret plan of b"}}})
	v.tip = r.commit(harness.Commit{Branch: "b", Ephemeral: true, Files: []harness.File{{Path: "secret/plan", Content: "the second secret plan of b"}}})
	v.group = r.fork("b", map[string]any{"n": 2}).Text("group_id")
	v.jti = r.issue("b", r.write, map[string]any{}).Text("jti")
	clone := r.clone(r.ephemeral(r.read), "-b", "b")
	v.tree = g.run(clone, "rev-parse", "HEAD:secret")
	v.blob = g.run(clone, "rev-parse", "HEAD:secret/plan")
	v.saveSecrets()
	v.token = r.token([]tokens.Scope{tokens.GitWrite, tokens.GitRead},
		refpolicy.Rule{Pattern: ephemeralPrefix + "a", Ops: []refpolicy.Op{refpolicy.NoForcePush}},
		refpolicy.Rule{Pattern: snapshotPrefix + "a", Ops: []refpolicy.Op{refpolicy.NoForcePush}},
		refpolicy.Rule{Pattern: ephemeralPrefix + "mine/*"},
		refpolicy.Rule{Pattern: "*", Ops: []refpolicy.Op{"no-read"}})
	return v
}

// A door is a way in which a token might be told of an object. open tries it with
// an id and gives all that came back.
type door struct {
	name string
	open func(v *vault, oid string) string
}

func (v *vault) api(a harness.Ask) string {
	v.g.t.Helper()
	a.Token = v.token
	answer := v.g.do(a)
	return fmt.Sprintf("%d %s %s", answer.Status, answer.Header.Get("Content-Type"), answer.Body)
}

func (v *vault) post(tail string, body map[string]any) string {
	v.g.t.Helper()
	return v.api(harness.Ask{Method: "POST", Path: v.path(tail), JSON: body})
}

// rpc is a git request of the vault's token to the ephemeral remote.
func (v *vault) rpc(service, protocol, body string) string {
	v.g.t.Helper()
	ask := harness.Ask{Method: "POST", Path: v.gitPath(true, service), Basic: v.token, Body: strings.NewReader(body),
		Header: map[string]string{"Content-Type": "application/x-" + service + "-request"}}
	if protocol != "" {
		ask.Header["Git-Protocol"] = protocol
	}
	a := v.g.do(ask)
	lines, bands := pktLines(a.Body), []byte(nil)
	told := fmt.Sprint(a.Status)
	for _, line := range lines {
		switch {
		case strings.HasPrefix(line, "\x01"): // how a pack is cut into lines is chance
			bands = append(bands, line[1:]...)
		case strings.HasPrefix(line, "PACK"):
			bands = append(bands, line...)
		default:
			told += fmt.Sprintf(" %q", line)
		}
	}
	return fmt.Sprintf("%s, and %d bytes of %x", told, len(bands), sha1.Sum(bands))
}

// pushes tries to make a branch of commit with a pack of these objects.
func (v *vault) pushes(commit string, objects ...packed) string {
	v.g.t.Helper()
	return v.makes(zeros, commit, packObjects(objects))
}

func (v *vault) makes(old, commit, pack string) string {
	v.g.t.Helper()
	v.tries++
	name := fmt.Sprintf("refs/heads/mine/%d", v.tries)
	told := v.rpc("git-receive-pack", "", pushBody("report-status", pack, pushCommand{old, commit, name}))
	return strings.ReplaceAll(told, name, "REF")
}

const who = "Ada <ada@example.com> 1700000000 +0000"

func commitText(tree string, parents ...string) []byte {
	text := "tree " + tree + "\n"
	for _, p := range parents {
		text += "parent " + p + "\n"
	}
	return []byte(text + "author " + who + "\ncommitter " + who + "\n\nx\n")
}

func treeText(mode, name, oid string) []byte {
	raw, _ := hex.DecodeString(oid)
	return append([]byte(mode+" "+name+"\x00"), raw...)
}

const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// doors is the one table of the doors built so far.
var doors = []door{
	{"get file", func(v *vault, oid string) string {
		return v.api(harness.Ask{Path: v.path("/file?path=secret/plan&ref=" + oid)})
	}},
	{"get file, ephemeral", func(v *vault, oid string) string {
		return v.api(harness.Ask{Path: v.path("/file?ephemeral=true&path=README.md&ref=" + oid)})
	}},
	{"head file", func(v *vault, oid string) string {
		return v.api(harness.Ask{Method: "HEAD", Path: v.path("/file?path=README.md&ref=" + oid)})
	}},
	{"list files", func(v *vault, oid string) string { return v.api(harness.Ask{Path: v.path("/files?ref=" + oid)}) }},
	{"list files by an abbreviation", func(v *vault, oid string) string { return v.api(harness.Ask{Path: v.path("/files?ref=" + oid[:12])}) }},
	{"list commits", func(v *vault, oid string) string { return v.api(harness.Ask{Path: v.path("/commits?ref=" + oid)}) }},
	{"get commit", func(v *vault, oid string) string { return v.api(harness.Ask{Path: v.path("/commit?sha=" + oid)}) }},
	{"get commit, and until when", func(v *vault, oid string) string {
		return v.api(harness.Ask{Path: v.path("/commit?readable_until=true&sha=" + oid)})
	}},
	{"get commit's parent", func(v *vault, oid string) string {
		return v.api(harness.Ask{Path: v.path("/commit?sha=" + oid + "~1")})
	}},
	{"diff", func(v *vault, oid string) string { return v.api(harness.Ask{Path: v.path("/diff?sha=" + oid)}) }},
	{"diff, base", func(v *vault, oid string) string {
		return v.api(harness.Ask{Path: v.path("/diff?sha=" + v.own + "&baseSha=" + oid)})
	}},
	{"branch diff", func(v *vault, oid string) string {
		return v.api(harness.Ask{Path: v.path("/branches/diff?ephemeral=true&branch=a&base=" + oid)})
	}},
	{"branch diff of it", func(v *vault, oid string) string {
		return v.api(harness.Ask{Path: v.path("/branches/diff?branch=" + oid + "&base=" + v.own)})
	}},
	{"create branch", func(v *vault, oid string) string {
		return v.api(harness.Ask{Method: "POST", Path: v.path("/branches/create"), JSON: map[string]any{"target_branch": "mine/api", "target_is_ephemeral": true, "base_ref": oid}})
	}},
	{"create session", func(v *vault, oid string) string {
		return v.post("/sessions", map[string]any{"id": "mine", "branch": "mine/session", "base_ref": oid})
	}},
	{"create session, ephemeral", func(v *vault, oid string) string {
		return v.post("/sessions", map[string]any{"id": "mine", "branch": "mine/session", "base_ref": oid, "base_is_ephemeral": true})
	}},
	{"create session before it", func(v *vault, oid string) string {
		return v.post("/sessions", map[string]any{"id": "mine", "branch": "mine/session", "base_ref": oid + "~1"})
	}},
	{"create session from it", func(v *vault, oid string) string {
		return v.post("/sessions", map[string]any{"id": "mine", "branch": "mine/session", "from_session": oid})
	}},
	{"create session from it as a snapshot", func(v *vault, oid string) string {
		return v.post("/sessions", map[string]any{"id": "mine", "branch": "mine/session", "from_snapshot": oid})
	}},
	{"get snapshot", func(v *vault, oid string) string {
		return v.api(harness.Ask{Path: v.path("/snapshots/" + oid)})
	}},
	{"lineage", func(v *vault, oid string) string {
		return v.api(harness.Ask{Path: v.path("/snapshots/" + oid + "/lineage")})
	}},
	{"restore", func(v *vault, oid string) string {
		return v.api(harness.Ask{Path: v.path("/snapshots/" + oid + "/image")})
	}},
	{"restore, sparse", func(v *vault, oid string) string {
		return v.api(harness.Ask{Path: v.path("/snapshots/" + oid + "/image"), Header: map[string]string{"Accept": "application/x-headgate-sparse"}})
	}},
	{"restore a range", func(v *vault, oid string) string {
		return v.api(harness.Ask{Path: v.path("/snapshots/" + oid + "/image"), Header: map[string]string{"Range": "bytes=0-99"}})
	}},
	{"export", func(v *vault, oid string) string {
		return v.api(harness.Ask{Path: v.path("/snapshots/" + oid + "/bundle")})
	}},
	{"hot order", func(v *vault, oid string) string {
		return v.post("/snapshots/"+oid+"/hot-order", map[string]any{"chunks": []int{0}})
	}},
	{"key of a sealed snapshot", func(v *vault, oid string) string {
		return v.post("/snapshots/"+oid+"/key", map[string]any{})
	}},
	{"delete snapshot", func(v *vault, oid string) string {
		return v.api(harness.Ask{Method: "DELETE", Path: v.path("/snapshots/" + oid)})
	}},
	{"what its deletion frees", func(v *vault, oid string) string {
		return v.api(harness.Ask{Method: "DELETE", Path: v.path("/snapshots/" + oid + "?dry_run=true")})
	}},
	{"upload with it as the base", func(v *vault, oid string) string {
		return v.post("/sessions/a/snapshots/uploads", map[string]any{"base_sha": oid})
	}},
	{"upload of its workspace", func(v *vault, oid string) string {
		return v.post("/sessions/a/snapshots/uploads", map[string]any{"workspace_sha": oid})
	}},
	{"upload that expects it", func(v *vault, oid string) string {
		return v.post("/sessions/a/snapshots/uploads", map[string]any{"expected_head_sha": oid})
	}},
	{"pin", func(v *vault, oid string) string {
		return v.post("/pins", map[string]any{"sha": oid, "holder": "x"})
	}},
	{"token that reads it", func(v *vault, oid string) string {
		return fmt.Sprint(v.issue("a", v.token, map[string]any{"read": []string{oid}}).Status)
	}},
	{"events of it", func(v *vault, oid string) string { return v.api(harness.Ask{Path: v.path("/events?session=" + oid)}) }},
	{"pick it", func(v *vault, oid string) string {
		return v.post("/forks/"+v.group+"/pick", map[string]any{"winner": oid})
	}},
	{"commit with it as the guard", func(v *vault, oid string) string {
		return v.api(v.commitAsk(harness.Commit{Branch: "a", Ephemeral: true, Expected: oid, Files: []harness.File{{Path: "x", Content: "x"}}}, v.token))
	}},
	{"fetch v2, want", func(v *vault, oid string) string {
		return v.rpc("git-upload-pack", "version=2", pkt("command=fetch")+"0001"+pkt("no-progress")+pkt("want "+oid+"\n")+pkt("done\n")+"0000")
	}},
	{"fetch v2, want beside its own", func(v *vault, oid string) string {
		return v.rpc("git-upload-pack", "version=2", pkt("command=fetch")+"0001"+pkt("no-progress")+pkt("want "+v.own+"\n")+pkt("want "+oid+"\n")+pkt("done\n")+"0000")
	}},
	{"fetch v0, want", func(v *vault, oid string) string {
		return v.rpc("git-upload-pack", "", pkt("want "+oid+" side-band-64k no-progress\n")+"0000"+pkt("done\n"))
	}},
	{"fetch v2, have", func(v *vault, oid string) string {
		return v.rpc("git-upload-pack", "version=2", pkt("command=fetch")+"0001"+pkt("no-progress")+pkt("want "+v.own+"\n")+pkt("have "+oid+"\n")+"0000")
	}},
	{"fetch v2, have and done", func(v *vault, oid string) string {
		return v.rpc("git-upload-pack", "version=2", pkt("command=fetch")+"0001"+pkt("no-progress")+pkt("thin-pack")+pkt("want "+v.own+"\n")+pkt("have "+oid+"\n")+pkt("done\n")+"0000")
	}},
	{"fetch v0, have", func(v *vault, oid string) string {
		return v.rpc("git-upload-pack", "", pkt("want "+v.own+" multi_ack_detailed no-progress\n")+"0000"+pkt("have "+oid+"\n")+"0000")
	}},
	{"fetch v0, have and done", func(v *vault, oid string) string {
		return v.rpc("git-upload-pack", "", pkt("want "+v.own+" multi_ack_detailed no-progress thin-pack\n")+"0000"+pkt("have "+oid+"\n")+pkt("done\n"))
	}},
	{"fetch v2, shallow", func(v *vault, oid string) string {
		return v.rpc("git-upload-pack", "version=2", pkt("command=fetch")+"0001"+pkt("no-progress")+pkt("want "+v.own+"\n")+pkt("shallow "+oid+"\n")+pkt("deepen 1\n")+pkt("done\n")+"0000")
	}},
	{"push a command without a pack", func(v *vault, oid string) string {
		return v.makes(zeros, oid, emptyPack)
	}},
	{"push with it as the old value", func(v *vault, oid string) string {
		return v.makes(oid, v.own, emptyPack)
	}},
	{"push a commit on top", func(v *vault, oid string) string {
		text := commitText(emptyTree, oid)
		return v.pushes(objectID("commit", text), packed{1, text, ""}, packed{2, nil, ""})
	}},
	{"push a commit with its tree", func(v *vault, oid string) string {
		text := commitText(oid, v.own)
		return v.pushes(objectID("commit", text), packed{1, text, ""})
	}},
	{"push a tree that names the tree", func(v *vault, oid string) string {
		tree := treeText("40000", "d", oid)
		text := commitText(objectID("tree", tree), v.own)
		return v.pushes(objectID("commit", text), packed{1, text, ""}, packed{2, tree, ""})
	}},
	{"push a tree that names the blob", func(v *vault, oid string) string {
		tree := treeText("100644", "f", oid)
		text := commitText(objectID("tree", tree), v.own)
		return v.pushes(objectID("commit", text), packed{1, text, ""}, packed{2, tree, ""})
	}},
	{"push a delta against it", func(v *vault, oid string) string {
		return v.pushes(v.own, packed{7, copyOf(secretSize, 4), oid})
	}},
	{"push a copy of it by a delta", func(v *vault, oid string) string {
		return v.pushes(v.own, packed{7, copyOf(secretSize, secretSize), oid})
	}},
	{"push a tree that names a copy of it", func(v *vault, oid string) string {
		tree := treeText("100644", "f", oid)
		text := commitText(objectID("tree", tree), v.own)
		return v.pushes(objectID("commit", text), packed{1, text, ""}, packed{2, tree, ""}, packed{7, copyOf(secretSize, secretSize), oid})
	}},
}

// secretSize is the size of b's secret blob, which whoever attacks has guessed.
const secretSize = len("the second secret plan of b")

// copyOf is a delta that makes the first n bytes of a base.
func copyOf(base, n int) []byte {
	return append(varint(base), append(varint(n), 0x90, byte(n))...)
}

// For a token that may not read b, every object of b is like one that is not there.
func TestA13_EveryDoorIsShutAlike(t *testing.T) {
	onEachEngine(t, shutAlike)
	// The road of large pushes, by way of git index-pack, has the same doors.
	t.Run("packs", func(t *testing.T) {
		shutAlike(t, start(t, withConfig("[limits]\nhot_pack_bytes = 1\n")))
	})
}

func shutAlike(t *testing.T, g *gate) {
	t.Helper()
	v := newVault(g)
	const absent = "1234567890123456789012345678901234567890"
	for _, d := range doors {
		want := strings.ReplaceAll(strings.ReplaceAll(d.open(v, absent), absent, "OID"), absent[:12], "OID")
		if strings.HasPrefix(want, "5") {
			t.Errorf("%s with an absent id = %.300q", d.name, want)
		}
		for kind, oid := range map[string]string{"tip": v.tip, "ancestor": v.ancestor, "tree": v.tree, "blob": v.blob, "snapshot": v.snapshot, "snapshot's tree": v.leaf, "chunk": v.chunk} {
			got := strings.ReplaceAll(strings.ReplaceAll(d.open(v, oid), oid, "OID"), oid[:12], "OID")
			if got != want {
				t.Errorf("%s with b's %s = %.400q, with an absent id %.400q; want the same", d.name, kind, got, want)
			}
		}
	}
	for _, b := range v.get("/branches", "ephemeral", "true", "limit", "100").List("branches") {
		if name := b.(map[string]any)["name"].(string); strings.HasPrefix(name, "mine/") {
			t.Errorf("a shut door made the branch %v", b)
		}
	}
	shutNames(t, v)
	// Names of branches are hidden too.
	for _, ask := range []harness.Ask{
		{Path: v.path("/branch?ephemeral=true&name=b")}, {Path: v.path("/file?ephemeral=true&ref=b&path=README.md")}, {Path: v.path("/commits?ephemeral=true&branch=b")}, {Path: v.path("/branch?name=main")},
	} {
		if got := v.api(ask); !strings.HasPrefix(got, "404") {
			t.Errorf("GET %s = %.300s, want 404", ask.Path, got)
		}
	}
	if got := v.api(harness.Ask{Path: v.path("/branches?ephemeral=true")}); strings.Contains(got, `"b"`) || !strings.Contains(got, `"a"`) {
		t.Errorf("list of branches = %s, want a alone", got)
	}
	if refs := v.refs(v.ephemeral(v.token)); len(refs) != 2 || refs["refs/heads/a"] != v.own {
		t.Errorf("the ephemeral remote shows %v, want HEAD and a", refs)
	}
	if refs := v.refs(v.remote(v.token)); len(refs) != 0 {
		t.Errorf("the main remote shows %v, want nothing", refs)
	}
}

// What the token may read is as open as ever: history that a shares with the rest too.
func TestA13_OwnSessionStaysOpen(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		v := newVault(g)
		for _, ref := range []string{v.own, v.main} {
			if got := v.api(harness.Ask{Path: v.path("/file?path=README.md&ref=" + ref)}); !strings.HasPrefix(got, "200") {
				t.Errorf("README.md at %s = %.200s, want 200", ref, got)
			}
		}
		clone := v.clone(v.ephemeral(v.token))
		next := v.work(clone, "next", "n")
		g.run(clone, "push", "-q")
		if got := v.head("a", true); got != next {
			t.Errorf("a = %s after its push, want %s", got, next)
		}
		// A commit that writes the same bytes as a secret blob is written anew, and whole.
		a := g.do(v.commitAsk(harness.Commit{Branch: "a", Ephemeral: true, Files: []harness.File{{Path: "guess", Content: "the second secret plan of b"}}}, v.token))
		if a.Status != 201 {
			t.Fatalf("commit of bytes that b has = %s, want 201", a)
		}
		text := commitText(emptyTree, v.own)
		if got := v.pushes(objectID("commit", text), packed{1, text, ""}, packed{2, nil, ""}); !strings.Contains(got, "ok REF") {
			t.Errorf("push of a commit on its own head = %q, want it taken", got)
		}
	})
}

// A packed is one entry of a pack: type as on the wire, content, and the base of a
// ref delta.
type packed struct {
	kind    byte
	content []byte
	base    string
}

func objectID(kind string, content []byte) string {
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", kind, len(content))
	h.Write(content)
	return hex.EncodeToString(h.Sum(nil))
}

func varint(n int) []byte {
	var b []byte
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// packObjects writes a pack by hand, whatever its entries refer to.
func packObjects(objects []packed) string {
	var b bytes.Buffer
	b.WriteString("PACK")
	_ = binary.Write(&b, binary.BigEndian, [2]uint32{2, uint32(len(objects))})
	for _, o := range objects {
		n := len(o.content)
		c := o.kind<<4 | byte(n&15)
		for n >>= 4; n > 0; n >>= 7 {
			b.WriteByte(c | 0x80)
			c = byte(n & 0x7f)
		}
		b.WriteByte(c)
		if o.base != "" {
			raw, _ := hex.DecodeString(o.base)
			b.Write(raw)
		}
		z := zlib.NewWriter(&b)
		_, _ = z.Write(o.content)
		_ = z.Close()
	}
	sum := sha1.Sum(b.Bytes())
	return b.String() + string(sum[:])
}
