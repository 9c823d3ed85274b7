package packs

import (
	"bufio"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/idxfile"
	"github.com/headgate/headgate/refpolicy"
)

// A Writer writes one new pack. It is for one goroutine. Its owner ends it by
// Finish or Abort; after a call that failed only Abort is left. An object that
// is added twice is written once.
type Writer struct {
	d       *Dir
	tmp     string // path of the pack being written; its idx stands beside it
	f       File
	buf     *bufio.Writer
	off     int64
	seen    map[refpolicy.OID]struct{}
	idx     idxfile.Writer
	expect  uint32
	sum     hash.Hash // of the pack so far; right as long as expect comes true
	stale   bool      // sum is not right any more
	crc     uint32    // of the entry being written
	noSum   bool      // what is written now will be read again, and summed then
	done    bool
	lastErr error
}

// NewWriter starts a pack in the folder, under a name that nobody looks for.
func (d *Dir) NewWriter(ctx context.Context) (*Writer, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	w := &Writer{d: d, tmp: d.path(d.incomingName(), ".tmp"), seen: make(map[refpolicy.OID]struct{}), sum: sha1.New()}
	f, err := d.fs.Create(w.tmp)
	if err != nil {
		return nil, fmt.Errorf("create pack: %w", err)
	}
	w.f, w.buf = f, bufio.NewWriterSize(f, 128<<10)
	_ = w.idx.OnHeader(0)
	return w, nil
}

// Expect says before the first object how many there will be. It is a hint: when
// it comes true, Finish need not read the pack again for its checksum.
func (w *Writer) Expect(objects int) {
	if w.off == 0 && objects > 0 && objects <= maxObjects {
		w.expect = uint32(objects)
	}
}

// Has reports whether the object was added.
func (w *Writer) Has(id refpolicy.OID) bool {
	_, ok := w.seen[id]
	return ok
}

// Count is the number of objects so far.
func (w *Writer) Count() int { return len(w.seen) }

// Size is the number of bytes so far.
func (w *Writer) Size() int64 { return w.off }

// AddEntry adds an object that is deflated already: size is that of the object,
// zdata the zlib stream. The caller answers for both being what id says.
func (w *Writer) AddEntry(id refpolicy.OID, typ Type, size int64, zdata []byte) error {
	if err := w.ready(typ); err != nil {
		return err
	}
	if w.Has(id) {
		return nil
	}
	start := w.begin()
	w.write(AppendHead(nil, typ, size))
	w.write(zdata)
	return w.added(id, start)
}

// ready checks that an object may be added and writes the header before the first.
func (w *Writer) ready(typ Type) error {
	switch {
	case w.done:
		return ErrWriterDone
	case w.lastErr != nil:
		return fmt.Errorf("%w: %w", ErrWriterDone, w.lastErr)
	case !typ.Valid():
		return fmt.Errorf("%w: %d", ErrBadType, typ)
	}
	if w.off == 0 {
		h := packHeader(w.expect)
		w.write(h[:])
	}
	return w.lastErr
}

func (w *Writer) begin() (start int64) {
	w.crc = 0
	return w.off
}

// write adds bytes to the file, its checksum and that of the entry. The first
// error stays in lastErr.
func (w *Writer) write(b []byte) {
	if w.lastErr != nil {
		return
	}
	n, err := w.buf.Write(b)
	w.off += int64(n)
	if !w.noSum {
		w.sumUp(b)
	}
	if err != nil {
		w.lastErr = fmt.Errorf("write pack: %w", err)
	}
}

func (w *Writer) sumUp(b []byte) {
	w.crc = crc32.Update(w.crc, crc32.IEEETable, b)
	if w.expect > 0 && !w.stale {
		w.sum.Write(b)
	}
}

// added records the entry that began at start.
func (w *Writer) added(id refpolicy.OID, start int64) error {
	if w.lastErr != nil {
		return w.lastErr
	}
	if len(w.seen) >= maxObjects {
		w.lastErr = fmt.Errorf("write pack: over %d objects", maxObjects)
		return w.lastErr
	}
	w.seen[id] = struct{}{}
	w.idx.Add(plumbing.Hash(id), uint64(start), w.crc)
	return nil
}

// dropEntry takes back what was written since start.
func (w *Writer) dropEntry(start int64) error {
	if err := w.flush(); err != nil {
		return err
	}
	w.stale = true
	err := w.f.Truncate(start)
	if err == nil {
		_, err = w.f.Seek(start, io.SeekStart)
	}
	if err != nil {
		w.lastErr = fmt.Errorf("write pack: %w", err)
	}
	w.off = start
	return w.lastErr
}

func (w *Writer) flush() error {
	if w.lastErr == nil {
		if err := w.buf.Flush(); err != nil {
			w.lastErr = fmt.Errorf("write pack: %w", err)
		}
	}
	return w.lastErr
}

// Finish completes, syncs and names the pack and its idx. The pack exists for
// nobody until the caller registers the name. On an error everything is removed.
func (w *Writer) Finish() (Info, error) {
	if w.done {
		return Info{}, ErrWriterDone
	}
	info, err := w.finish()
	if err != nil {
		return Info{}, errors.Join(err, w.Abort())
	}
	w.done = true
	return info, nil
}

func (w *Writer) finish() (Info, error) {
	if w.lastErr != nil {
		return Info{}, w.lastErr
	}
	if len(w.seen) == 0 {
		return Info{}, ErrEmptyPack
	}
	sum, err := w.trailer()
	if err != nil {
		return Info{}, fmt.Errorf("finish pack: %w", err)
	}
	info := Info{Name: newName(), Size: w.off, Objects: len(w.seen)}
	if err := w.writeIdx(sum); err != nil {
		return Info{}, fmt.Errorf("finish pack: %w", err)
	}
	err = w.f.Sync()
	if cerr := w.f.Close(); err == nil {
		err = cerr
	}
	w.f = nil
	if err != nil {
		return Info{}, fmt.Errorf("finish pack: %w", err)
	}
	if err := w.d.moveIn(info.Name, w.tmp, w.idxPath()); err != nil {
		return Info{}, fmt.Errorf("finish pack: %w", err)
	}
	return info, nil
}

func (w *Writer) idxPath() string { return w.tmp + ".idx" }

// trailer puts the true number of objects into the header and the checksum at
// the end.
func (w *Writer) trailer() (sum plumbing.Hash, err error) {
	n := uint32(len(w.seen))
	if err := w.flush(); err != nil {
		return sum, err
	}
	if n != w.expect || w.stale {
		h := packHeader(n)
		if _, err := w.f.WriteAt(h[:], 0); err != nil {
			return sum, err
		}
		w.sum.Reset()
		buf := make([]byte, 256<<10)
		if _, err := io.CopyBuffer(w.sum, io.NewSectionReader(w.f, 0, w.off), buf); err != nil {
			return sum, err
		}
	}
	w.sum.Sum(sum[:0])
	w.noSum = true
	w.write(sum[:])
	return sum, w.flush()
}

func (w *Writer) writeIdx(sum plumbing.Hash) error {
	if err := w.idx.OnFooter(sum); err != nil {
		return err
	}
	index, err := w.idx.Index()
	if err != nil {
		return err
	}
	f, err := w.d.fs.Create(w.idxPath())
	if err != nil {
		return err
	}
	buf := bufio.NewWriterSize(f, 64<<10)
	_, err = idxfile.NewEncoder(buf).Encode(index)
	if err == nil {
		err = buf.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// Abort removes what was written. After Finish it does nothing.
func (w *Writer) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	if w.f != nil {
		_ = w.f.Close() // the file goes
	}
	for _, path := range []string{w.tmp, w.idxPath()} {
		if err := removeTree(w.d.fs, path); err != nil {
			return fmt.Errorf("abort pack: %w", err)
		}
	}
	return nil
}
