package packs

import (
	"bytes"
	"compress/zlib"
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// readCounter counts the reads of a pack's file.
type readCounter struct {
	File
	reads int
}

func (c *readCounter) ReadAt(b []byte, off int64) (int, error) {
	c.reads++
	return c.File.ReadAt(b, off)
}

// chains makes a pack of blobs, each with deltas by distance on top of each other,
// and opens it.
func chains(t *testing.T, n, depth int) *Pack {
	t.Helper()
	var pack bytes.Buffer
	count := 0
	z := zlib.NewWriter(&pack)
	add := func(typ Type, between, data []byte) (at int) {
		count++
		at = pack.Len()
		head := AppendHead(nil, typ, int64(len(data)))
		pack.Write(append(head, between...))
		z.Reset(&pack)
		z.Write(data)
		z.Close()
		return at
	}
	pack.Write(make([]byte, packHeadLen))
	for c := range n {
		data := fmt.Appendf(nil, "%05d", c)
		at := add(Blob, nil, data)
		for k := range depth {
			size := len(data) + k
			delta := binary.AppendUvarint(nil, uint64(size))
			delta = binary.AppendUvarint(delta, uint64(size+1))
			delta = append(delta, 0x80|0x10|0x20, byte(size), byte(size>>8), 1, 'Z')
			at = add(ofsDelta, backBy(pack.Len()-at), delta)
		}
	}
	h := packHeader(uint32(count))
	copy(pack.Bytes(), h[:])
	sum := sha1.Sum(pack.Bytes())
	pack.Write(sum[:])
	path := filepath.Join(t.TempDir(), "made.pack")
	if err := os.WriteFile(path, pack.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	git(t, t.TempDir(), nil, "index-pack", path)
	idx, err := os.ReadFile(strings.TrimSuffix(path, ".pack") + ".idx")
	if err != nil {
		t.Fatal(err)
	}
	p, err := openBytes(&StdCodec{}, pack.Bytes(), idx)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(p.Release)
	return p
}

// backBy is how an ofsDelta says how far before it its base begins.
func backBy(n int) []byte {
	b := []byte{byte(n & 0x7f)}
	for n >>= 7; n > 0; n >>= 7 {
		n--
		b = append([]byte{byte(n) | 0x80}, b...)
	}
	return b
}

// Asking every object of deep chains for its head goes down each chain about once,
// in whatever order they are asked.
func TestHeadersOfDeepChainsCostLinearTime(t *testing.T) {
	const n, depth = 4, 4000
	p := chains(t, n, depth)
	file := p.f
	for _, order := range []string{"by place", "by id", "from the top"} {
		p.kinds.at = nil
		ids := p.ByOffset()
		switch order {
		case "by id":
			ids = ids[:0]
			p.ForEach(func(id refpolicy.OID, _ int64) bool { ids = append(ids, id); return true })
		case "from the top":
			for i, j := 0, len(ids)-1; i < j; i, j = i+1, j-1 {
				ids[i], ids[j] = ids[j], ids[i]
			}
		}
		c := &readCounter{File: file}
		p.f = c
		sizes := 0
		for _, id := range ids {
			typ, size, err := p.Header(id)
			if err != nil || typ != Blob {
				t.Fatalf("%s: Header(%s) = %v, %d, %v, want a blob", order, id, typ, size, err)
			}
			sizes += int(size)
		}
		if want := n * (depth + 1) * (5 + 5 + depth) / 2; sizes != want {
			t.Errorf("%s: all objects have %d bytes, want %d", order, sizes, want)
		}
		if most := 3 * kindStep * len(ids); c.reads > most {
			t.Errorf("%s: %d reads for the heads of %d objects, want at most %d", order, c.reads, len(ids), most)
		}
	}
}

// What is remembered of a chain does not let one pass that is too long.
func TestTooLongChainStaysTooLong(t *testing.T) {
	p := chains(t, 1, maxDepth+1)
	ids := p.ByOffset()
	for range 2 {
		if _, _, err := p.Header(ids[len(ids)-1]); err == nil || !strings.Contains(err.Error(), "too long") {
			t.Errorf("Header over %d deltas gives %v, want an error", maxDepth+1, err)
		}
		for _, id := range ids[:len(ids)-1] {
			if _, _, err := p.Header(id); err != nil {
				t.Fatalf("Header of an object on a chain that is not too long: %v", err)
			}
		}
	}
}
