package gitstore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// patient is a repo to be damaged: objects in both tiers, a tag, a session, a pin.
type patient struct {
	t      *testing.T
	s      *Store
	r      *Repo
	commit refpolicy.OID // in the pack
	hot    refpolicy.OID
	tag    refpolicy.OID
	pin    Pin
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	s := openTestStore(t, func(o *Options) { o.Logger = quiet })
	if _, err := s.CreateRepo(t.Context(), someone, "acme", "repo", "main", nil); err != nil {
		t.Fatalf("CreateRepo: %v", err)
	}
	r, err := s.Repo(t.Context(), "acme", "repo")
	if err != nil {
		t.Fatalf("Repo: %v", err)
	}
	p := &patient{t: t, s: s, r: r}
	p.commit = mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": strings.Repeat("text ", 50), "d/b": "b\n"}}).Commit
	tag := newObject(TagObject, []byte(fmt.Sprintf("object %s\ntype commit\ntag v1\ntagger T <t@e> 1 +0000\n\nx\n", p.commit)))
	p.tag = tag.OID
	if err := updateOne(t, r, Update{Caller: someone, Objects: []NewObject{tag}, Changes: []Change{{Ref: "refs/tags/v1", New: tag.OID}}}); err != nil {
		t.Fatalf("make tag: %v", err)
	}
	if err := r.Settle(t.Context()); err != nil {
		t.Fatalf("Settle: %v", err)
	}
	p.hot = mustCommit(t, r, someone, testCommit{target: sessionA, base: mainRef, files: map[string]string{"a": "hot\n"}}).Commit
	t.Cleanup(func() { // closing settles what is hot, which must not be the damaged object
		_, err := r.ledger.Apply(context.Background(), ledger.Batch{Space: r.space, Deletes: []string{hotKey(p.hot)}})
		if err != nil {
			t.Errorf("delete damaged object: %v", err)
		}
	})
	if p.pin, err = r.Pin(t.Context(), someone, PinSpec{OID: p.hot, Holder: "holder"}); err != nil {
		t.Fatalf("Pin: %v", err)
	}
	return p
}

// set changes keys behind the store's back; nil deletes.
func (p *patient) set(key string, value []byte) {
	p.t.Helper()
	b := ledger.Batch{Space: p.r.space, Sets: []ledger.Set{{Key: key, Value: value}}}
	if value == nil {
		b = ledger.Batch{Space: p.r.space, Deletes: []string{key}}
	}
	if _, err := p.r.ledger.Apply(p.t.Context(), b); err != nil {
		p.t.Fatalf("set %s: %v", key, err)
	}
}

func (p *patient) get(key string) []byte {
	p.t.Helper()
	raw, err := readKey(p.t.Context(), p.r.ledger.ReadKeys, p.r.space, key)
	if err != nil || raw == nil {
		p.t.Fatalf("read %s: %q, %v", key, raw, err)
	}
	return raw
}

func (p *patient) pack() string { return p.r.packNames()[0] }

func (p *patient) file(ext string) string {
	return filepath.Join(p.r.dir.Root(), "packs", p.pack()+ext)
}

// poke changes one byte of a pack's file.
func (p *patient) poke(ext string, at int64) {
	p.t.Helper()
	name := p.file(ext)
	b, err := os.ReadFile(name)
	if err == nil {
		b[(at+int64(len(b)))%int64(len(b))] ^= 0x5a
		err = os.WriteFile(name, b, 0o644)
	}
	if err != nil {
		p.t.Fatalf("change %s: %v", name, err)
	}
	p.r.dir.Forget(p.pack())
}

// entry is where an object stands in the pack.
func (p *patient) entry(oid refpolicy.OID) int64 {
	p.t.Helper()
	pack, err := p.r.dir.Pack(p.pack())
	if err != nil {
		p.t.Fatalf("Pack: %v", err)
	}
	defer pack.Release()
	at, ok := pack.Find(oid)
	if !ok {
		p.t.Fatalf("%s is not in the pack", oid)
	}
	return at
}

// damages is each kind of damage and what has to be found.
var damages = []struct {
	name string
	harm func(p *patient)
	want []FindingKind // all of them; others may come of it
}{
	{"none", func(*patient) {}, nil},
	{"pack file removed", func(p *patient) { p.remove(".pack") }, []FindingKind{FindPackMissing, FindObjectMissing}},
	{"idx removed", func(p *patient) { p.remove(".idx") }, []FindingKind{FindPackMissing}},
	{"idx changed", func(p *patient) { p.poke(".idx", 1100) }, []FindingKind{FindPackBroken, FindObjectMissing}},
	{"pack's trailer changed", func(p *patient) { p.poke(".pack", -3) }, []FindingKind{FindPackBroken}},
	{"object in the pack changed", func(p *patient) { p.poke(".pack", p.entry(p.commit)+9) }, []FindingKind{FindObjectBroken}},
	{"link removed", func(p *patient) {
		if err := p.r.dir.Unlink(p.pack()); err != nil {
			p.t.Fatalf("Unlink: %v", err)
		}
	}, []FindingKind{FindPackUnlinked}},
	{"pack record does not fit", func(p *patient) {
		p.set(packKey(p.pack()), mustJSON(packRecord{Size: 1, Objects: 2, Kind: kindSettled, State: packLive}))
	}, []FindingKind{FindPackRecord}},
	{"pack record unreadable", func(p *patient) { p.set(packKey(p.pack()), []byte("{")) }, []FindingKind{FindPackRecord, FindObjectMissing}},
	{"pack forgotten", func(p *patient) { p.set(packKey(p.pack()), nil) }, []FindingKind{FindPackUnknown, FindObjectMissing}},
	{"hot object lost", func(p *patient) { p.set(hotKey(p.hot), nil) }, []FindingKind{FindObjectMissing}},
	{"hot object changed", func(p *patient) {
		p.set(hotKey(p.hot), encodeHot(newBlob("other"), 1))
	}, []FindingKind{FindHotBroken}},
	{"hot value unreadable", func(p *patient) { p.set(hotKey(p.hot), []byte{9, 9, 9}) }, []FindingKind{FindHotBroken}},
	{"ref record unreadable", func(p *patient) { p.set(refKey(mainRef), []byte("x")) }, []FindingKind{FindRef}},
	{"ref at nothing", func(p *patient) {
		rec, err := decodeRefRecord(p.get(refKey(mainRef)))
		if err != nil {
			p.t.Fatalf("decode: %v", err)
		}
		rec.oid = refpolicy.OID{1}
		p.set(refKey(mainRef), rec.encode())
	}, []FindingKind{FindObjectMissing, FindIndex}},
	{"wrong peeled value", func(p *patient) {
		rec, err := decodeRefRecord(p.get(refKey("refs/tags/v1")))
		if err != nil {
			p.t.Fatalf("decode: %v", err)
		}
		rec.peeled = p.hot
		p.set(refKey("refs/tags/v1"), rec.encode())
	}, []FindingKind{FindRef}},
	{"tip lost", func(p *patient) { p.set(tipKey(p.commit, mainRef), nil) }, []FindingKind{FindIndex}},
	{"tip too many", func(p *patient) { p.set(tipKey(p.hot, mainRef), []byte{}) }, []FindingKind{FindIndex}},
	{"tip of no ref", func(p *patient) { p.set(tipKey(p.hot, "refs/heads/none"), []byte{}) }, []FindingKind{FindIndex}},
	{"created too many", func(p *patient) { p.set(createdPrefix(false)+"00/refs/heads/main", []byte{}) }, []FindingKind{FindIndex}},
	{"created lost", func(p *patient) {
		rec, err := decodeRefRecord(p.get(refKey(sessionA)))
		key, ok := createdKey(sessionA, rec.created)
		if err != nil || !ok {
			p.t.Fatalf("created key: %v", err)
		}
		p.set(key, nil)
	}, []FindingKind{FindIndex}},
	{"born by no name", func(p *patient) { p.set(bornKey(p.commit), []byte("main")) }, []FindingKind{FindIndex}},
	{"pin unreadable", func(p *patient) { p.set(pinKey(p.pin.ID), []byte("{")) }, []FindingKind{FindPin}},
	{"pin's index lost", func(p *patient) { p.set(pinnedKey(p.hot, p.pin.ID), nil) }, []FindingKind{FindIndex}},
	{"index of no pin", func(p *patient) { p.set(pinnedKey(p.commit, "pin_x"), []byte{}) }, []FindingKind{FindIndex}},
}

func (p *patient) remove(ext string) {
	p.t.Helper()
	if err := os.Remove(p.file(ext)); err != nil {
		p.t.Fatalf("remove: %v", err)
	}
	p.r.dir.Forget(p.pack())
}

func TestFsckFindsDamage(t *testing.T) {
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			p := newPatient(t)
			d.harm(p)
			findings, err := p.s.Fsck(t.Context(), p.r)
			if err != nil {
				t.Fatalf("Fsck: %v", err)
			}
			if d.want == nil && len(findings) > 0 {
				t.Errorf("Fsck of a sound repo = %v", findings)
			}
			for _, kind := range d.want {
				if !slices.ContainsFunc(findings, func(f Finding) bool { return f.Kind == kind }) {
					t.Errorf("Fsck = %v, want %s", findings, kind)
				}
			}
		})
	}
}

// A prune of a damaged repo takes nothing away.
func TestPruneLeavesADamagedRepoAlone(t *testing.T) {
	p := newPatient(t)
	dead := mustCommit(t, p.r, someone, testCommit{target: "refs/heads/dead", base: mainRef, files: map[string]string{"a": "dead\n"}}).Commit
	if err := p.r.DeleteBranch(t.Context(), someone, "refs/heads/dead", nil); err != nil {
		t.Fatalf("DeleteBranch: %v", err)
	}
	p.set(hotKey(p.hot), nil)
	p.s.cache.drop(objectID{p.r.id, p.hot})
	if report, err := p.r.prune(t.Context(), true); err == nil {
		t.Errorf("prune = %+v, want an error that names the missing object", report)
	} else if !strings.Contains(err.Error(), p.hot.String()) {
		t.Errorf("prune = %v, want %s in it", err, p.hot)
	}
	wantReadable(t, p.r, dead, true)
}

// An export is a plain repository with every ref, whole for git's strictest eye.
func TestExport(t *testing.T) {
	p := newPatient(t)
	pinned := mustCommit(t, p.r, someone, testCommit{target: sessionB, base: mainRef, files: map[string]string{"a": "pinned\n"}}).Commit
	pin, err := p.r.Pin(t.Context(), someone, PinSpec{OID: pinned, Holder: "holder"})
	if err == nil {
		err = p.r.DeleteBranch(t.Context(), someone, sessionB, nil)
	}
	if err != nil {
		t.Fatalf("pin and delete: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "out.git")
	if err := p.s.Export(t.Context(), p.r, dir); err != nil {
		t.Fatalf("Export: %v", err)
	}
	git(t, dir, nil, "fsck", "--strict", "--full", "--no-dangling")
	want := strings.Join([]string{
		p.commit.String() + " " + string(mainRef),
		p.hot.String() + " " + string(sessionA),
		p.hot.String() + " refs/pins/" + p.pin.ID,
		pinned.String() + " refs/pins/" + pin.ID,
		p.tag.String() + " refs/tags/v1",
	}, "\n")
	got := strings.Split(strings.TrimSpace(git(t, dir, nil, "for-each-ref", "--format=%(objectname) %(refname)")), "\n")
	if sorted := sortedByName(got); sorted != sortedByName(strings.Split(want, "\n")) {
		t.Errorf("refs of the export:\n%s\nwant\n%s", sorted, want)
	}
	if text := git(t, dir, nil, "show", string(sessionA)+":a"); text != "hot\n" {
		t.Errorf("a of the session is %q, want hot", text)
	}
	if head := strings.TrimSpace(git(t, dir, nil, "rev-parse", "HEAD", "v1^{commit}")); head != p.commit.String()+"\n"+p.commit.String() {
		t.Errorf("HEAD and v1 are %s, want %s", head, p.commit)
	}
	clone := filepath.Join(t.TempDir(), "clone")
	git(t, t.TempDir(), nil, "clone", "-q", dir, clone)
	if err := p.s.Export(t.Context(), p.r, dir); err == nil {
		t.Errorf("Export over a folder that exists went through")
	}
}

func sortedByName(lines []string) string {
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func TestExportOfAnEmptyRepo(t *testing.T) {
	s := openTestStore(t, nil)
	r := newTestRepo(t, s, "empty")
	dir := filepath.Join(t.TempDir(), "out.git")
	if err := s.Export(t.Context(), r, dir); err != nil {
		t.Fatalf("Export: %v", err)
	}
	git(t, dir, nil, "fsck", "--strict")
	if refs := git(t, dir, nil, "for-each-ref"); refs != "" {
		t.Errorf("refs of an empty export: %s", refs)
	}
}
