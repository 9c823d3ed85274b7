package gitstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/zlib"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/refpolicy"
)

// rawPack builds a pack entry by entry.
type rawPack struct {
	bytes.Buffer
	n uint32
}

func (p *rawPack) entry(t ObjectType, size int, between, data []byte) (at int) {
	if p.n == 0 {
		p.WriteString("PACK\x00\x00\x00\x02\x00\x00\x00\x00")
	}
	p.n++
	at = p.Len()
	b := byte(t)<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		p.WriteByte(b | 0x80)
		b = byte(size & 0x7f)
	}
	p.WriteByte(b)
	p.Write(between)
	z := zlib.NewWriter(p)
	z.Write(data)
	z.Close()
	return at
}

// add adds a whole object.
func (p *rawPack) add(t ObjectType, data string) refpolicy.OID {
	p.entry(t, len(data), nil, []byte(data))
	return hashObject(t, []byte(data))
}

// refDelta adds a delta against an object by id.
func (p *rawPack) refDelta(base refpolicy.OID, delta []byte) {
	p.entry(refDelta, len(delta), base[:], delta)
}

// ofsDelta adds a delta against the entry that begins at back.
func (p *rawPack) ofsDelta(back int, delta []byte) {
	n := p.Len() - back
	coded := []byte{byte(n & 0x7f)}
	for n >>= 7; n > 0; n >>= 7 {
		n--
		coded = append([]byte{byte(n&0x7f) | 0x80}, coded...)
	}
	p.entry(ofsDelta, len(delta), coded, delta)
}

// pack is the finished pack.
func (p *rawPack) pack() string {
	if p.n == 0 {
		return emptyPack
	}
	body := bytes.Clone(p.Bytes())
	binary.BigEndian.PutUint32(body[8:], p.n)
	return sealed(string(body))
}

// deltaOf is a delta that copies the first keep bytes of a base of size bytes and adds more.
func deltaOf(size, keep int, more string) []byte {
	varint := func(n int) []byte {
		var b []byte
		for ; n >= 0x80; n >>= 7 {
			b = append(b, byte(n)|0x80)
		}
		return append(b, byte(n))
	}
	d := append(varint(size), varint(keep+len(more))...)
	if keep > 0 {
		d = append(d, 0x80|0x10|0x20, byte(keep), byte(keep>>8))
	}
	for len(more) > 0 {
		n := min(len(more), 127)
		d = append(append(d, byte(n)), more[:n]...)
		more = more[n:]
	}
	return d
}

// noBase is a store without objects.
func noBase(context.Context, refpolicy.OID) (object, error) { return object{}, ErrObjectNotFound }

func TestParsePackDeltas(t *testing.T) {
	base := strings.Repeat("0123456789", 30)
	stored := newObject(BlobObject, []byte(strings.Repeat("stored", 40)))
	read := func(_ context.Context, oid refpolicy.OID) (object, error) {
		if oid == stored.OID {
			return object{stored.Type, stored.Data}, nil
		}
		return object{}, ErrObjectNotFound
	}
	var p rawPack
	first := base[:50] + "first"
	// A delta against what is itself made by a delta that comes later, by id.
	p.refDelta(hashObject(BlobObject, []byte(first)), deltaOf(len(first), 10, "second"))
	at := p.entry(BlobObject, len(base), nil, []byte(base))
	p.ofsDelta(at, deltaOf(len(base), 50, "first"))
	p.refDelta(stored.OID, deltaOf(len(stored.Data), 200, "third"))
	got, err := parsePack(t.Context(), []byte(p.pack()), packBounds{10, 1 << 30, 4095}, read)
	if err != nil {
		t.Fatalf("parsePack: %v", err)
	}
	want := []string{base[:10] + "second", base, first, string(stored.Data[:200]) + "third"}
	for i, o := range got.objects {
		if string(o.Data) != want[i] || o.Type != BlobObject || o.OID != hashObject(BlobObject, o.Data) {
			t.Errorf("object %d is %s %s %q, want %q", i, o.Type, o.OID, o.Data, want[i])
		}
	}
	if len(got.bases) != 1 || got.bases[0] != stored.OID || len(got.missing) != 0 {
		t.Errorf("bases %v, missing %v; want the stored object and none", got.bases, got.missing)
	}
	if got, err := parsePack(t.Context(), []byte(p.pack()), packBounds{10, 1 << 30, 4095}, noBase); err != nil || len(got.missing) != 1 || got.objects != nil {
		t.Errorf("without the base: %v objects, missing %v, %v; want the base missing", len(got.objects), got.missing, err)
	}
}

// A base that the store has and the pack brings as well is the client's own.
func TestParsePackBaseInStoreAndPack(t *testing.T) {
	outer := newObject(BlobObject, []byte(strings.Repeat("outer", 40)))
	inner := newObject(BlobObject, append(outer.Data[:20:20], "inner"...))
	stored := map[refpolicy.OID]NewObject{outer.OID: outer, inner.OID: inner}
	read := func(_ context.Context, oid refpolicy.OID) (object, error) {
		if o, ok := stored[oid]; ok {
			return object{o.Type, o.Data}, nil
		}
		return object{}, ErrObjectNotFound
	}
	var p rawPack
	p.refDelta(inner.OID, deltaOf(len(inner.Data), 5, "last"))
	p.refDelta(outer.OID, deltaOf(len(outer.Data), 20, "inner"))
	got, err := parsePack(t.Context(), []byte(p.pack()), packBounds{10, 1 << 30, 4095}, read)
	if err != nil || len(got.bases) != 1 || got.bases[0] != outer.OID {
		t.Errorf("parsePack: bases %v, %v; want %s alone", got.bases, err, outer.OID)
	}
}

func TestParsePackRefusals(t *testing.T) {
	build := func(fill func(p *rawPack)) string {
		var p rawPack
		fill(&p)
		return p.pack()
	}
	blob := func(p *rawPack) { p.add(BlobObject, "hello") }
	good := build(blob)
	resealed := func(change func(b []byte) []byte) string {
		return sealed(string(change([]byte(good[:len(good)-packTrailer]))))
	}
	var missingDelta rawPack
	at := missingDelta.entry(BlobObject, 5, nil, []byte("hello"))
	missingDelta.ofsDelta(at+1, deltaOf(5, 1, "x"))
	for name, tc := range map[string]struct {
		pack string
		want string // "" is errHandOver
	}{
		"empty":             {"", "no header"},
		"no magic":          {sealed("KCAP\x00\x00\x00\x02\x00\x00\x00\x00"), "no header"},
		"version":           {sealed("PACK\x00\x00\x00\x04\x00\x00\x00\x00"), "version 4"},
		"checksum":          {good[:len(good)-1] + "x", "checksum"},
		"garbage":           {resealed(func(b []byte) []byte { return append(b, "more"...) }), "4 bytes after its last object"},
		"garbage behind":    {good + "more", "checksum"},
		"cut":               {resealed(func(b []byte) []byte { return b[:len(b)-3] }), "cannot be inflated"},
		"too few":           {resealed(func(b []byte) []byte { b[11] = 2; return b }), "cut short"},
		"too many":          {resealed(func(b []byte) []byte { b[11] = 0; return b }), "after its last object"},
		"count":             {resealed(func(b []byte) []byte { b[8] = 0xff; return b }), ""},
		"type 0":            {build(func(p *rawPack) { p.entry(0, 1, nil, []byte("x")) }), "type 0"},
		"type 5":            {build(func(p *rawPack) { p.entry(5, 1, nil, []byte("x")) }), "type 5"},
		"says less":         {build(func(p *rawPack) { p.entry(BlobObject, 3, nil, []byte("hello")) }), "cannot be inflated"},
		"says more":         {build(func(p *rawPack) { p.entry(BlobObject, 9, nil, []byte("hello")) }), "cannot be inflated"},
		"bomb":              {build(func(p *rawPack) { p.entry(BlobObject, hotInflated+1, nil, nil) }), ""},
		"twice":             {build(func(p *rawPack) { blob(p); blob(p) }), "comes twice"},
		"base before":       {build(func(p *rawPack) { blob(p); p.ofsDelta(3, deltaOf(5, 1, "x")) }), "is no entry"},
		"base after":        {build(func(p *rawPack) { blob(p); p.ofsDelta(p.Len()+5, deltaOf(5, 1, "x")) }), "out of bounds"},
		"base no entry":     {missingDelta.pack(), "is no entry"},
		"base size":         {build(func(p *rawPack) { p.refDelta(p.add(BlobObject, "hello"), deltaOf(6, 1, "x")) }), "another size"},
		"copy outside":      {build(func(p *rawPack) { p.refDelta(p.add(BlobObject, "hello"), deltaOf(5, 6, "x")) }), "outside its base"},
		"delta bomb":        {build(func(p *rawPack) { p.refDelta(p.add(BlobObject, "hello"), []byte{5, 0x80, 0x80, 0x80, 0x08}) }), ""},
		"delta cut":         {build(func(p *rawPack) { p.refDelta(p.add(BlobObject, "hello"), []byte{5, 3, 9, 'a'}) }), "malformed delta"},
		"delta reserved":    {build(func(p *rawPack) { p.refDelta(p.add(BlobObject, "hello"), []byte{5, 3, 0}) }), "malformed delta"},
		"delta short":       {build(func(p *rawPack) { p.refDelta(p.add(BlobObject, "hello"), []byte{5, 3, 1, 'a'}) }), "makes less"},
		"delta long":        {build(func(p *rawPack) { p.refDelta(p.add(BlobObject, "hello"), []byte{5, 1, 2, 'a', 'b'}) }), "makes more"},
		"delta without end": {build(func(p *rawPack) { p.refDelta(p.add(BlobObject, "hello"), []byte{0x85}) }), "malformed size"},
	} {
		got, err := parsePack(t.Context(), []byte(tc.pack), packBounds{100, 1 << 30, 4095}, noBase)
		if tc.want == "" {
			if !errors.Is(err, errHandOver) {
				t.Errorf("%s: parsePack = %v, want it handed over", name, err)
			}
			continue
		}
		if !errors.Is(err, ErrBadObject) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: parsePack = %d objects, %v; want ErrBadObject with %q", name, len(got.objects), err, tc.want)
		}
	}
}

// A chain of deltas that grows at each step is stopped where the whole pack is.
func TestParsePackDeltaChainBomb(t *testing.T) {
	var p rawPack
	data := []byte(strings.Repeat("x", 60<<10))
	at := p.entry(BlobObject, len(data), nil, data)
	for range 200 {
		next := p.Len()
		p.ofsDelta(at, deltaOf(len(data), len(data), "y"))
		data = append(data, 'y')
		at = next
	}
	if _, err := parsePack(t.Context(), []byte(p.pack()), packBounds{1000, 1 << 30, 4095}, noBase); !errors.Is(err, errHandOver) {
		t.Errorf("parsePack of a chain that makes 12 MiB = %v, want it handed over", err)
	}
}

// What git packs, thin or not, is read as git reads it.
func TestPropertyPacksReadAsGitReadsThem(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	g := newGitSource(t)
	var h history
	files := map[string]string{}
	parent := []int(nil)
	for n := range 40 {
		changed := map[string]*blob{}
		for range 1 + random.IntN(4) {
			path := fmt.Sprintf("d%d/f%d", random.IntN(4), random.IntN(6))
			lines := strings.SplitAfter(files[path], "\n")
			lines = append(lines, fmt.Sprintln("line", random.IntN(1000), strings.Repeat("z", random.IntN(200))))
			at := random.IntN(len(lines))
			lines[at] = fmt.Sprintln("other", random.IntN(1000))
			files[path] = strings.Join(lines, "")
			changed[path] = text(files[path])
		}
		parent = []int{h.commit("refs/heads/main", 1577836800+n, parent, changed)}
	}
	commits := g.put(&h)
	read := func(_ context.Context, oid refpolicy.OID) (object, error) {
		types := map[string]ObjectType{"commit": CommitObject, "tree": TreeObject, "blob": BlobObject, "tag": TagObject}
		typ := g.git("cat-file", "-t", oid.String())
		return object{types[typ], g.gitIn("", "cat-file", typ, oid.String())}, nil
	}
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.IntRange(1, 39).Draw(t, "from")
		to := rapid.IntRange(from+1, 40).Draw(t, "to")
		args := []string{"pack-objects", "-q", "--stdout", "--revs", "--thin"}
		if rapid.Bool().Draw(t, "ofs") {
			args = append(args, "--delta-base-offset")
		}
		if rapid.Bool().Draw(t, "no deltas") {
			args = append(args, "--depth=0")
		}
		pack := g.gitIn(fmt.Sprintf("%s\n^%s\n", commits[to], commits[from]), args...)
		got, err := parsePack(context.Background(), pack, packBounds{5000, 1 << 30, 4095}, read)
		if err != nil {
			t.Fatalf("parsePack of %d..%d: %v", from, to, err)
		}
		want := map[string]bool{}
		for line := range strings.Lines(g.git("rev-list", "--objects", "--no-object-names", commits[to].String(), "^"+commits[from].String())) {
			want[strings.TrimSpace(line)] = true
		}
		for _, o := range got.objects {
			if !want[o.OID.String()] {
				t.Errorf("parsePack of %d..%d gave %s %s, which git did not pack", from, to, o.Type, o.OID)
			}
			delete(want, o.OID.String())
			if err := checkObject(o.Type, o.Data, nil); err != nil {
				t.Errorf("checkObject(%s %s): %v", o.Type, o.OID, err)
			}
		}
		if len(want) > 0 {
			t.Errorf("parsePack of %d..%d lacks %v", from, to, want)
		}
	})
}

// Damaged packs are refused by us where git refuses them, and only there.
func TestPropertyDamagedPacksAsGitJudgesThem(t *testing.T) {
	g := newGitSource(t)
	var p rawPack
	base := strings.Repeat("0123456789", 30)
	at := p.entry(BlobObject, len(base), nil, []byte(base))
	p.ofsDelta(at, deltaOf(len(base), 50, "first"))
	p.refDelta(hashObject(BlobObject, []byte(base)), deltaOf(len(base), 60, "second"))
	p.add(TagObject, "tag of nothing")
	good := []byte(p.pack())
	good = good[:len(good)-packTrailer]
	random := rand.New(rand.NewPCG(8, 8))
	accepted := 0
	for n := range 150 {
		b := bytes.Clone(good)
		for range random.IntN(3) {
			b[random.IntN(len(b))] ^= 1 << random.IntN(8)
		}
		if random.IntN(8) == 0 {
			b = b[:packHeader+random.IntN(len(b)-packHeader)]
		}
		pack := sealed(string(b))
		got, err := parsePack(t.Context(), []byte(pack), packBounds{5000, 1 << 30, 4095}, noBase)
		if errors.Is(err, errHandOver) {
			continue
		}
		cmd := g.command("index-pack", "--stdin")
		cmd.Stdin = strings.NewReader(pack)
		said, gitErr := cmd.CombinedOutput()
		ours := err == nil && len(got.missing) == 0
		if ours != (gitErr == nil) {
			t.Errorf("damage %d: parsePack: missing %v, %v; git: %v %s", n, got.missing, err, gitErr, said)
		}
		if ours {
			accepted++
		}
	}
	if accepted == 0 {
		t.Error("no pack was accepted: the test proves nothing")
	}
}

func FuzzParsePack(f *testing.F) {
	var p rawPack
	at := p.entry(BlobObject, 5, nil, []byte("hello"))
	p.ofsDelta(at, deltaOf(5, 3, "p"))
	p.refDelta(hashObject(BlobObject, []byte("hello")), deltaOf(5, 2, "x"))
	pack := p.pack()
	f.Add([]byte(pack[:len(pack)-packTrailer]))
	f.Add([]byte(emptyPack[:packHeader]))
	f.Fuzz(func(t *testing.T, body []byte) {
		defer hangs(t)()
		pack := []byte(sealed(string(body)))
		got, err := parsePack(t.Context(), pack, packBounds{100, 1 << 30, 4095}, noBase)
		if err != nil {
			if !errors.Is(err, ErrBadObject) && !errors.Is(err, errHandOver) {
				t.Fatalf("parsePack = %v, want a typed error", err)
			}
			return
		}
		size := 0
		for _, o := range got.objects {
			size += len(o.Data)
			if o.OID != hashObject(o.Type, o.Data) {
				t.Fatalf("object %s has another id", o.OID)
			}
		}
		if size > hotInflated {
			t.Fatalf("%d bytes of objects, the bound is %d", size, hotInflated)
		}
	})
}

func FuzzApplyDelta(f *testing.F) {
	f.Add([]byte("hello world"), deltaOf(11, 5, " there"))
	f.Add([]byte(""), []byte{0, 0})
	f.Add([]byte("abc"), []byte{3, 6, 0x90, 3, 0x91, 0, 3})
	f.Fuzz(func(t *testing.T, base, delta []byte) {
		defer hangs(t)()
		_, size, _, err := deltaSizes(delta)
		if err != nil || size > hotInflated {
			return
		}
		got, err := applyDelta(base, delta)
		if err == nil && uint64(len(got)) != size || err != nil && !errors.Is(err, ErrBadObject) {
			t.Fatalf("applyDelta = %d bytes, %v; want %d", len(got), err, size)
		}
	})
}

func BenchmarkParsePack(b *testing.B) {
	var p rawPack
	p.add(BlobObject, strings.Repeat("some text\n", 100))
	p.add(TreeObject, "100644 f\x00"+strings.Repeat("a", 20))
	p.add(CommitObject, "tree "+strings.Repeat("a", 40)+"\n")
	pack := []byte(p.pack())
	for b.Loop() {
		if _, err := parsePack(b.Context(), pack, packBounds{100, 1 << 30, 4095}, noBase); err != nil {
			b.Fatal(err)
		}
	}
}
