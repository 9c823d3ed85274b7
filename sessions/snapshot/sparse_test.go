package snapshot_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/sessions/snapshot"
)

func sampleHeader() snapshot.SparseHeader {
	return snapshot.SparseHeader{
		Part: snapshot.Part{Name: "ram", Kind: "memory", Layout: snapshot.Pages, ChunkBytes: 4096, Size: 1 << 21, FirstLeaf: 3, Leaves: 2,
			Root: strings.Repeat("3c", 32)},
		Offset: 4096, Length: 1 << 20, Commit: strings.Repeat("1a", 20),
	}
}

func sampleRecords() []snapshot.Record {
	return []snapshot.Record{
		{Offset: 8192, Length: 4096, Hash: chunk(0, 1).Hash, Blob: []byte("a frame")},
		{Offset: 0, Length: 8192},
		{Offset: 12288, Length: 3, Hash: chunk(0, 2).Hash, Blob: []byte("abc")},
		{Offset: 1 << 20, Length: 1 << 20},
	}
}

// sparse writes a stream; header may be nil.
func sparse(tb testing.TB, header *snapshot.SparseHeader, records []snapshot.Record, root snapshot.Hash) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := snapshot.NewSparseWriter(&b)
	if header != nil {
		if err := w.Header(*header); err != nil {
			tb.Fatalf("Header = %v", err)
		}
	}
	for _, r := range records {
		if err := w.Write(r); err != nil {
			tb.Fatalf("Write = %v", err)
		}
	}
	if err := w.End(root); err != nil {
		tb.Fatalf("End = %v", err)
	}
	return b.Bytes()
}

// readSparse reads all records, their blobs kept; nil if that ends with io.EOF.
func readSparse(r *snapshot.SparseReader) (records []snapshot.Record, err error) {
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return records, nil
		}
		if err != nil {
			return records, err
		}
		rec.Blob = bytes.Clone(rec.Blob)
		records = append(records, rec)
	}
}

func TestSparseGolden(t *testing.T) {
	h := sampleHeader()
	golden(t, "sparse", sparse(t, &h, sampleRecords(), chunk(0, 9).Hash))
	golden(t, "sparse-sent", sparse(t, nil, sampleRecords()[:1], snapshot.Hash{}))
}

func TestSparseStreamsComeBackAsTheyWere(t *testing.T) {
	h := sampleHeader()
	h.Part.Size, h.Part.Leaves = snapshot.MaxImage, snapshot.PageLeaves(snapshot.MaxImage, 4096)
	record := rapid.Custom(func(t *rapid.T) snapshot.Record {
		r := snapshot.Record{Offset: rapid.Int64Range(0, snapshot.MaxImage-1).Draw(t, "offset")}
		if rapid.Bool().Draw(t, "zeros") {
			r.Length = rapid.Int64Range(1, snapshot.MaxImage-r.Offset).Draw(t, "length")
			return r
		}
		r.Hash = chunk(0, rapid.ByteRange(1, 255).Draw(t, "hash")).Hash
		r.Offset = min(r.Offset, snapshot.MaxImage-snapshot.MaxContent)
		r.Length = rapid.Int64Range(1, snapshot.MaxContent).Draw(t, "length")
		r.Blob = rapid.SliceOfN(rapid.Byte(), 1, int(min(r.Length, 200))).Draw(t, "blob")
		return r
	})
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.SliceOf(record).Draw(rt, "records")
		var header *snapshot.SparseHeader
		if rapid.Bool().Draw(rt, "header") {
			header = &h
		}
		data := sparse(t, header, want, chunk(0, 5).Hash)
		r := snapshot.NewSparseReader(iotest.HalfReader(bytes.NewReader(data)))
		if header != nil {
			if got, err := r.Header(); err != nil || fmt.Sprint(got) != fmt.Sprint(*header) {
				rt.Fatalf("Header = %+v, %v, want %+v", got, err, *header)
			}
		}
		got, err := readSparse(r)
		if err != nil || len(got) != len(want) || r.Root() != chunk(0, 5).Hash {
			rt.Fatalf("%d records, %v, root %s, want %d", len(got), err, r.Root(), len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i].Blob, want[i].Blob) || got[i].Hash != want[i].Hash || got[i].Offset != want[i].Offset || got[i].Length != want[i].Length {
				rt.Fatalf("record %d is %+v, want %+v", i, got[i], want[i])
			}
		}
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			rt.Fatalf("Next after the end = %v, want io.EOF", err)
		}
	})
}

// A stream that ends anywhere before its end has been cut, and says so.
func TestSparseStreamCutAnywhere(t *testing.T) {
	h := sampleHeader()
	data := sparse(t, &h, sampleRecords(), snapshot.Hash{})
	for n := range len(data) {
		for _, broken := range []error{io.EOF, io.ErrUnexpectedEOF} {
			r := snapshot.NewSparseReader(io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(broken)))
			_, err := r.Header()
			if err == nil {
				_, err = readSparse(r)
			}
			if !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
				t.Fatalf("cut at %d of %d by %v: %v, want io.ErrUnexpectedEOF", n, len(data), broken, err)
			}
			if _, again := r.Next(); !errors.Is(again, io.ErrUnexpectedEOF) {
				t.Fatalf("cut at %d: the next Next = %v", n, again)
			}
		}
	}
}

// prefix is what stands before a blob, by hand.
func prefix(kind byte, offset, length int64, stored uint32, hash byte) []byte {
	b := binary.BigEndian.AppendUint64([]byte{kind}, uint64(offset))
	b = binary.BigEndian.AppendUint64(b, uint64(length))
	b = binary.BigEndian.AppendUint32(b, stored)
	c := chunk(0, hash)
	return append(b, c.Hash[:]...)
}

func TestSparseReaderRefuses(t *testing.T) {
	blob := func(n int) []byte { return make([]byte, n) }
	for name, parts := range map[string][][]byte{
		"an unknown kind":              {prefix(4, 0, 4, 0, 0)},
		"zeros of no length":           {prefix(1, 0, 0, 0, 0)},
		"zeros of negative length":     {prefix(1, 0, -1, 0, 0)},
		"zeros with a hash":            {prefix(1, 0, 4, 0, 1)},
		"zeros with a blob":            {prefix(1, 0, 4, 4, 0), blob(4)},
		"zeros over the largest image": {prefix(1, snapshot.MaxImage, 1, 0, 0)},
		"an offset under 0":            {prefix(2, -1, 4, 4, 1), blob(4)},
		"an overflow":                  {prefix(1, 1<<62, 1<<62, 0, 0)},
		"a chunk without a hash":       {prefix(2, 0, 4, 4, 0), blob(4)},
		"a chunk without a blob":       {prefix(2, 0, 4, 0, 1)},
		"stored, and shorter":          {prefix(2, 0, 5, 4, 1), blob(4)},
		"a frame as long as content":   {prefix(3, 0, 4, 4, 1), blob(4)},
		"a frame longer than content":  {prefix(3, 0, 3, 4, 1), blob(4)},
		"a content that is too long":   {prefix(3, 0, snapshot.MaxContent+1, 4, 1), blob(4)},
		"a blob that is too long":      {prefix(2, 0, 1<<32-1, 1<<32-1, 1)},
		"an end of other records":      {prefix(1, 0, 4, 0, 0), prefix(0, 2, 4, 0, 0)},
		"an end of other bytes":        {prefix(1, 0, 4, 0, 0), prefix(0, 1, 5, 0, 0)},
		"an end with a blob":           {prefix(0, 0, 0, 1, 0), blob(1)},
		"a header nobody asked for":    {sparse(t, &[]snapshot.SparseHeader{sampleHeader()}[0], nil, snapshot.Hash{})},
	} {
		r := snapshot.NewSparseReader(bytes.NewReader(bytes.Join(parts, nil)))
		if records, err := readSparse(r); !errors.Is(err, snapshot.ErrInvalid) {
			t.Errorf("%s: %d records, %v, want ErrInvalid", name, len(records), err)
		}
	}
}

func TestSparseHeaderRefused(t *testing.T) {
	h := sampleHeader()
	good := sparse(t, &h, nil, snapshot.Hash{})
	edit := func(from, to string) []byte {
		if !bytes.Contains(good, []byte(from)) {
			t.Fatalf("the header has no %q", from)
		}
		return bytes.Replace(good, []byte(from), []byte(to), 1)
	}
	for name, data := range map[string][]byte{
		"no header":           sparse(t, nil, sampleRecords(), snapshot.Hash{}),
		"another version":     edit("HGSPARSE\x01", "HGSPARSE\x02"),
		"a long one":          edit("HGSPARSE\x01\x00", "HGSPARSE\x01\x01"),
		"no JSON":             edit(`{"part":{`, `{"part":[[`),
		"a part that is none": edit(`"pages"`, `"tapes"`),
		"a range outside":     edit(`"length":1048576`, `"length":9999999`),
		"no commit":           edit("1a1a", "1A1a"),
	} {
		if got, err := snapshot.NewSparseReader(bytes.NewReader(data)).Header(); !errors.Is(err, snapshot.ErrInvalid) {
			t.Errorf("%s: Header = %+v, %v, want ErrInvalid", name, got, err)
		}
	}
	r := snapshot.NewSparseReader(bytes.NewReader(good))
	_, _ = r.Header()
	if _, err := r.Header(); !errors.Is(err, snapshot.ErrInvalid) {
		t.Errorf("a second Header = %v, want ErrInvalid", err)
	}
}

func TestSparseRecordsStayWithinTheImage(t *testing.T) {
	h := sampleHeader()
	beyond := []snapshot.Record{{Offset: 1<<21 - 4095, Length: 4096, Hash: chunk(0, 1).Hash, Blob: []byte("x")}}
	for sealed, want := range map[bool]error{false: snapshot.ErrInvalid, true: nil} {
		h.Sealed = sealed
		r := snapshot.NewSparseReader(bytes.NewReader(sparse(t, &h, beyond, snapshot.Hash{})))
		if _, err := r.Header(); err != nil {
			t.Fatalf("Header = %v", err)
		}
		if _, err := readSparse(r); !errors.Is(err, want) {
			t.Errorf("sealed %v: a record over the end: %v, want %v", sealed, err, want)
		}
	}
}

func TestSparseWriterRefuses(t *testing.T) {
	w := snapshot.NewSparseWriter(io.Discard)
	for name, r := range map[string]snapshot.Record{
		"nothing":                 {},
		"a chunk without a blob":  {Length: 4, Hash: chunk(0, 1).Hash},
		"a blob without a hash":   {Length: 4, Blob: []byte("abc")},
		"a blob over its content": {Length: 2, Hash: chunk(0, 1).Hash, Blob: []byte("abc")},
		"an offset under 0":       {Offset: -1, Length: 4},
	} {
		if err := w.Write(r); !errors.Is(err, snapshot.ErrInvalid) {
			t.Errorf("%s: Write = %v, want ErrInvalid", name, err)
		}
	}
	if err := w.Header(snapshot.SparseHeader{}); !errors.Is(err, snapshot.ErrInvalid) {
		t.Errorf("Header of nothing = %v, want ErrInvalid", err)
	}
	if err := w.Write(snapshot.Record{Length: 1}); err != nil {
		t.Fatalf("Write = %v", err)
	}
	if err := w.Header(sampleHeader()); !errors.Is(err, snapshot.ErrInvalid) {
		t.Errorf("Header after a record = %v, want ErrInvalid", err)
	}
}

func FuzzSparseReader(f *testing.F) {
	h := sampleHeader()
	f.Add(true, sparse(f, &h, sampleRecords(), chunk(0, 9).Hash))
	f.Add(false, sparse(f, nil, sampleRecords(), snapshot.Hash{}))
	f.Add(false, prefix(0, 0, 0, 0, 0))
	f.Add(false, prefix(2, 0, 1<<22, 1<<22, 1))
	f.Fuzz(func(t *testing.T, header bool, data []byte) {
		r := snapshot.NewSparseReader(bytes.NewReader(data))
		var h *snapshot.SparseHeader
		var err error
		if header {
			var got snapshot.SparseHeader
			got, err = r.Header()
			h = &got
		}
		var records []snapshot.Record
		if err == nil {
			records, err = readSparse(r)
		}
		if err != nil {
			if !errors.Is(err, snapshot.ErrInvalid) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("read = %v, which has no type", err)
			}
			return
		}
		again := snapshot.NewSparseReader(bytes.NewReader(sparse(t, h, records, r.Root())))
		if header {
			if _, err := again.Header(); err != nil {
				t.Fatalf("Header read again = %v", err)
			}
		}
		if got, err := readSparse(again); err != nil || fmt.Sprint(got) != fmt.Sprint(records) {
			t.Fatalf("read again: %d records, %v, want %d", len(got), err, len(records))
		}
	})
}
