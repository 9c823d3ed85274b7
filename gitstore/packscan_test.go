package gitstore

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

// scanLimits are those of scanOf.
var scanLimits = PushLimits{PackObjects: 200, PackInflated: 100_000, DeltaDepth: 20}

// scanOf scans a pack with small bounds: 2,000 bytes an object, 1,000 a delta.
func scanOf(pack string) (*packScan, error) {
	src := &packSource{r: strings.NewReader(pack), limit: 1 << 20, to: io.Discard}
	s := newPackScan(src, func() int64 { return src.n }, 2000, scanLimits)
	s.delta = 1000
	return s, s.run()
}

func TestPackScanBounds(t *testing.T) {
	build := func(fill func(p *rawPack)) string {
		var p rawPack
		fill(&p)
		return p.pack()
	}
	big := strings.Repeat("b", 1500)
	grow := []byte{5, 0xe9, 0x07} // makes 1,001 bytes out of 5
	for name, tc := range map[string]struct {
		pack string
		want string // "" passes
	}{
		"good":            {build(func(p *rawPack) { p.refDelta(p.add(BlobObject, "hello"), deltaOf(5, 3, "x")) }), ""},
		"big":             {build(func(p *rawPack) { p.add(BlobObject, big) }), ""},
		"too big":         {build(func(p *rawPack) { p.add(BlobObject, big+big) }), "a file is over the limit of 2000 bytes"},
		"large commit":    {build(func(p *rawPack) { p.entry(CommitObject, maxWhole+1, nil, nil) }), "commit: over the limit"},
		"large tree":      {build(func(p *rawPack) { p.entry(TreeObject, maxWhole+1, nil, nil) }), "tree: over the limit"},
		"delta grows":     {build(func(p *rawPack) { p.refDelta(p.add(BlobObject, "hello"), grow) }), "comes as a delta"},
		"large delta":     {build(func(p *rawPack) { p.entry(refDelta, 2001, make([]byte, 20), nil) }), "comes as a delta"},
		"says large base": {build(func(p *rawPack) { p.refDelta(p.add(BlobObject, "hello"), []byte{0xe9, 0x07, 1, 1, 'x'}) }), "base of one"},
		"big base":        {build(func(p *rawPack) { p.refDelta(p.add(BlobObject, big), deltaOf(5, 3, "x")) }), "base of one"},
		"big base behind": {build(func(p *rawPack) {
			p.refDelta(hashObject(BlobObject, []byte(big)), deltaOf(5, 3, "x"))
			p.add(BlobObject, big)
		}), "base of one"},
		"big base before": {build(func(p *rawPack) { p.ofsDelta(p.entry(BlobObject, len(big), nil, []byte(big)), deltaOf(5, 3, "x")) }), "base of one"},
		"empty":           {"", "cut short"},
		"more":            {build(func(p *rawPack) { p.add(BlobObject, "x") }) + "x", "bytes after its last object"},
	} {
		_, err := scanOf(tc.pack)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: scan = %v, want %q", name, err, tc.want)
		}
	}
}

// Scanning finds of the entries what parsing finds.
func TestPropertyScanAgreesWithParse(t *testing.T) {
	var p rawPack
	base := strings.Repeat("0123456789", 30)
	at := p.entry(BlobObject, len(base), nil, []byte(base))
	p.ofsDelta(at, deltaOf(len(base), 50, "first"))
	p.refDelta(hashObject(BlobObject, []byte(base)), deltaOf(len(base), 60, "second"))
	p.add(TagObject, "tag of nothing")
	good := []byte(p.pack())
	good = good[:len(good)-packTrailer]
	random := rand.New(rand.NewPCG(10, 10))
	same := 0
	for n := range 3000 {
		b := bytes.Clone(good)
		for range random.IntN(3) {
			b[random.IntN(len(b))] ^= 1 << random.IntN(8)
		}
		parser := &packParser{data: []byte(sealed(string(b))), left: hotInflated, file: 1 << 30}
		count, parseErr := parser.header(5000)
		for range count {
			if parseErr == nil {
				parseErr = parser.entry()
			}
		}
		if parseErr == nil && parser.pos != len(parser.data) {
			parseErr = packFault("more")
		}
		_, scanErr := scanOf(sealed(string(b)))
		var over *unpackError
		if errors.Is(parseErr, errHandOver) || errors.As(scanErr, &over) {
			continue // the bounds differ
		}
		if onlyDeltaHead := scanErr != nil && strings.Contains(scanErr.Error(), "malformed size"); onlyDeltaHead {
			continue // the parser looks at that later
		}
		if (parseErr == nil) != (scanErr == nil) {
			t.Errorf("damage %d: parse: %v; scan: %v", n, parseErr, scanErr)
		}
		if parseErr == nil {
			same++
		}
	}
	if same == 0 {
		t.Error("no pack passed: the test proves nothing")
	}
}

// What is held back of a pack until it has been looked at reaches git unchanged.
func TestPackSourcePassesAllOn(t *testing.T) {
	var p rawPack
	random := rand.New(rand.NewPCG(11, 11))
	for range 50 {
		data := make([]byte, random.IntN(20_000))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		p.add(BlobObject, string(data))
	}
	pack := p.pack()
	var got bytes.Buffer
	src := &packSource{r: strings.NewReader(pack), limit: 1 << 30, to: &got}
	s := newPackScan(src, func() int64 { return src.n }, 1<<30, PushLimits{}.withDefaults())
	if err := s.run(); err != nil {
		t.Fatalf("scan: %v", err)
	}
	if got.Len() >= len(pack) {
		t.Error("the whole pack was passed on before it was looked at")
	}
	if err := src.pass(); err != nil || got.String() != pack {
		t.Errorf("passed on %d of %d bytes, %v", got.Len(), len(pack), err)
	}
	src = &packSource{r: strings.NewReader(pack), limit: 1000, to: io.Discard}
	var over *unpackError
	if err := newPackScan(src, func() int64 { return src.n }, 1<<30, PushLimits{}.withDefaults()).run(); !errors.As(err, &over) {
		t.Errorf("scan of a pack over the limit = %v, want an *unpackError", err)
	}
}

func FuzzPackScan(f *testing.F) {
	var p rawPack
	p.refDelta(p.add(BlobObject, "hello"), deltaOf(5, 3, "x"))
	p.ofsDelta(12, deltaOf(5, 3, "x"))
	f.Add([]byte(p.pack()))
	f.Add([]byte(emptyPack))
	f.Fuzz(func(t *testing.T, pack []byte) {
		defer hangs(t)()
		_, err := scanOf(string(pack))
		var over *unpackError
		if err != nil && !errors.Is(err, ErrBadObject) && !errors.As(err, &over) {
			t.Fatalf("scan = %v, want a typed error", err)
		}
	})
}
