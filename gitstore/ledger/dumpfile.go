package ledger

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"time"
)

// The form of a space in a file. Two spaces with the same content have the same bytes.
//
//	file   = "headgate space 1" LF head *key *entry end
//	head   = "S" bytes uint uint uint   ; space, LastSeq, Trimmed, At in microseconds since 1970
//	key    = "K" bytes bytes            ; key, value; in byte order of the keys
//	entry  = "L" uint bytes             ; At, data; numbered Trimmed+1, Trimmed+2, ...
//	end    = "E" uint uint              ; how many keys and entries there were
//	bytes  = uint *OCTET
//	uint   = as encoding/binary's Uvarint
const (
	dumpMagic = "headgate space 1\n"

	recHead  = 'S'
	recKey   = 'K'
	recEntry = 'L'
	recEnd   = 'E'
)

// WriteDump writes the space s as d shows it. See gets each item on the way and may
// end the writing with an error; nil: nobody looks.
func WriteDump(ctx context.Context, w io.Writer, s Space, d Dump, see func(Item) error) error {
	dw := dumpWriter{w: bufio.NewWriterSize(w, 64<<10)}
	st := d.State()
	dw.text(dumpMagic)
	dw.kind(recHead)
	dw.bytes(string(s))
	dw.uint(st.LastSeq)
	dw.uint(st.Trimmed)
	dw.uint(uint64(st.At.UnixMicro()))
	keys, err := dw.items(ctx, d, see)
	if err != nil {
		return fmt.Errorf("dump space %s: %w", s, err)
	}
	entries, err := dw.log(ctx, d, st)
	if err != nil {
		return fmt.Errorf("dump space %s: %w", s, err)
	}
	dw.kind(recEnd)
	dw.uint(keys)
	dw.uint(entries)
	return dw.w.Flush()
}

// dumpWriter leaves errors to bufio, which keeps the first one for Flush.
type dumpWriter struct {
	w   *bufio.Writer
	num [binary.MaxVarintLen64]byte
}

func (d *dumpWriter) kind(k byte)   { _ = d.w.WriteByte(k) }
func (d *dumpWriter) text(s string) { _, _ = d.w.WriteString(s) }
func (d *dumpWriter) uint(n uint64) { _, _ = d.w.Write(binary.AppendUvarint(d.num[:0], n)) }

func (d *dumpWriter) bytes(s string) {
	d.uint(uint64(len(s)))
	d.text(s)
}

func (d *dumpWriter) items(ctx context.Context, from Dump, see func(Item) error) (n uint64, err error) {
	for start := ""; ; {
		items, next, err := from.Items(ctx, start)
		if err != nil {
			return n, err
		}
		for _, it := range items {
			if see != nil {
				if err := see(it); err != nil {
					return n, err
				}
			}
			d.kind(recKey)
			d.bytes(it.Key)
			d.uint(uint64(len(it.Value)))
			if _, err := d.w.Write(it.Value); err != nil {
				return n, err
			}
			n++
		}
		if next == "" {
			return n, nil
		}
		start = next
	}
}

func (d *dumpWriter) log(ctx context.Context, from Dump, st State) (n uint64, err error) {
	for after := st.Trimmed; after < st.LastSeq; {
		entries, err := from.Log(ctx, after)
		if err != nil {
			return n, err
		}
		if len(entries) == 0 {
			return n, fmt.Errorf("log ends at number %d of %d", after, st.LastSeq)
		}
		for _, en := range entries {
			if after++; en.Seq != after {
				return n, fmt.Errorf("log entry %d where %d was due", en.Seq, after)
			}
			d.kind(recEntry)
			d.uint(uint64(en.At.UnixMicro()))
			d.uint(uint64(len(en.Data)))
			if _, err := d.w.Write(en.Data); err != nil {
				return n, err
			}
			n++
		}
	}
	return n, nil
}

// A DumpReader reads a file that WriteDump has written and checks its form. What is
// wrong with one is ErrBadDump.
type DumpReader struct {
	// Space is whose content it is, State what comes with its last chunk.
	Space Space
	State State

	r             *bufio.Reader
	last          string // the newest key
	keys, entries uint64
	done          bool
}

// NewDumpReader reads the head of a dump.
func NewDumpReader(r io.Reader) (*DumpReader, error) {
	d := &DumpReader{r: bufio.NewReaderSize(r, 64<<10)}
	magic := make([]byte, len(dumpMagic))
	if _, err := io.ReadFull(d.r, magic); err != nil || string(magic) != dumpMagic {
		return nil, d.bad("no dump of a space", err)
	}
	if k, err := d.r.ReadByte(); err != nil || k != recHead {
		return nil, d.bad("no head", err)
	}
	name, err := d.bytes(MaxSpaceBytes)
	if err != nil {
		return nil, err
	}
	d.Space = Space(name)
	if err := d.Space.Validate(); err != nil {
		return nil, d.bad("name of the space", err)
	}
	if d.State.LastSeq, err = d.uint(); err != nil {
		return nil, err
	}
	if d.State.Trimmed, err = d.uint(); err != nil {
		return nil, err
	}
	if d.State.At, err = d.time(); err != nil {
		return nil, err
	}
	if d.State.Trimmed > d.State.LastSeq {
		return nil, d.bad("more entries trimmed than there were", nil)
	}
	return d, nil
}

// Next gives the next chunk; the last one has the State, and then comes io.EOF.
func (d *DumpReader) Next() (c Chunk, err error) {
	if d.done {
		return Chunk{}, io.EOF
	}
	for size, n := 0, 0; size < ChunkBytes && n < ChunkCount; n++ {
		k, err := d.r.ReadByte()
		if err != nil {
			return Chunk{}, d.bad("cut", err)
		}
		switch {
		case k == recKey && d.entries == 0:
			it, err := d.item()
			if err != nil {
				return Chunk{}, err
			}
			c.Items = append(c.Items, it)
			size += len(it.Key) + len(it.Value)
		case k == recEntry:
			en, err := d.entry()
			if err != nil {
				return Chunk{}, err
			}
			c.Log = append(c.Log, en)
			size += len(en.Data)
		case k == recEnd:
			c.State, d.done = &d.State, true
			return c, d.end()
		default:
			return Chunk{}, d.bad(fmt.Sprintf("record of kind %q", k), nil)
		}
	}
	return c, nil
}

func (d *DumpReader) item() (it Item, err error) {
	key, err := d.bytes(MaxKeyBytes)
	if err != nil {
		return it, err
	}
	it.Key = string(key)
	if it.Key == "" || it.Key <= d.last {
		return it, d.bad("keys out of order", nil)
	}
	d.last = it.Key
	d.keys++
	it.Value, err = d.bytes(MaxBatchBytes)
	return it, err
}

func (d *DumpReader) entry() (en Entry, err error) {
	if en.At, err = d.time(); err != nil {
		return en, err
	}
	d.entries++
	if en.Seq = d.State.Trimmed + d.entries; en.Seq > d.State.LastSeq {
		return en, d.bad("more log entries than its head says", nil)
	}
	en.Data, err = d.bytes(MaxBatchBytes)
	return en, err
}

func (d *DumpReader) end() error {
	keys, err := d.uint()
	if err != nil {
		return err
	}
	entries, err := d.uint()
	if err != nil {
		return err
	}
	if keys != d.keys || entries != d.entries || d.State.Trimmed+entries != d.State.LastSeq {
		return d.bad(fmt.Sprintf("%d keys and %d log entries, not what its head and its end say", d.keys, d.entries), nil)
	}
	if _, err := d.r.ReadByte(); err != io.EOF {
		return d.bad("more behind its end", err)
	}
	return nil
}

func (d *DumpReader) uint() (uint64, error) {
	n, err := binary.ReadUvarint(d.r)
	if err != nil {
		return 0, d.bad("cut", err)
	}
	return n, nil
}

func (d *DumpReader) time() (time.Time, error) {
	n, err := d.uint()
	if err == nil && n > math.MaxInt64 {
		err = d.bad("time out of range", nil)
	}
	return time.UnixMicro(int64(n)).UTC(), err
}

func (d *DumpReader) bytes(most uint64) ([]byte, error) {
	n, err := d.uint()
	if err != nil {
		return nil, err
	}
	if n > most {
		return nil, d.bad(fmt.Sprintf("%d bytes where at most %d may be", n, most), nil)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(d.r, b); err != nil {
		return nil, d.bad("cut", err)
	}
	return b, nil
}

func (d *DumpReader) bad(why string, err error) error {
	if err == nil || err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: %s", ErrBadDump, why)
	}
	return fmt.Errorf("%w: %s: %w", ErrBadDump, why, err)
}
