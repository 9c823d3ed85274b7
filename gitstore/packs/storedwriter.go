package packs

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/headgate/headgate/refpolicy"
)

const (
	storedBuffer = 1 << 20
	// storedBehind is how much is written before the disk is told to begin with it.
	storedBehind = 8 << 20
)

// A StoredWriter writes one new pack of stored entries, at the speed of hashing. It is
// safe for concurrent use. Its owner ends it by Finish or Abort; after a write that
// failed only Abort is left. An object that is added twice is written once.
type StoredWriter struct {
	d   *Dir
	tmp string // path of the pack being written; its idx stands beside it
	f   File

	mu      sync.Mutex
	buf     []byte // what is not written yet
	flushed int64  // bytes written
	begun   int64  // bytes that the disk was told of
	entries []storedAt
	table   placeTable
	lastErr error
	done    bool
}

// storedAt is where an entry of a StoredWriter is; it ends where the next one begins.
type storedAt struct {
	id    refpolicy.OID
	crc   uint32
	off   int64
	print entryPrint
}

// NewStoredWriter starts a pack in the folder, under a name that nobody looks for.
func (d *Dir) NewStoredWriter(ctx context.Context) (*StoredWriter, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	w := &StoredWriter{d: d, tmp: d.path(d.incomingName(), ".tmp")}
	f, err := d.fs.Create(w.tmp)
	if err != nil {
		return nil, fmt.Errorf("create pack: %w", err)
	}
	w.start(f)
	return w, nil
}

func (w *StoredWriter) start(f File) {
	w.f = f
	h := packHeader(0)
	w.buf = append(make([]byte, 0, storedBuffer+storedBuffer/16), h[:]...)
}

// AddChunk adds a blob. Its id is not looked at for a collision attack: that takes
// several times as long as all else here, a chunk is named by a strong hash wherever
// it is read, and whoever brings the other content of such a pair by any other road is
// refused there.
func (w *StoredWriter) AddChunk(content []byte) (refpolicy.OID, error) {
	id := objectID(Blob, content)
	return id, w.add(id, Blob, content)
}

// AddObject adds an object of any type: ErrCollision if its content is an attack.
func (w *StoredWriter) AddObject(typ Type, content []byte) (refpolicy.OID, error) {
	if !typ.Valid() {
		return refpolicy.OID{}, fmt.Errorf("%w: %d", ErrBadType, typ)
	}
	h := newObjectHash(typ, int64(len(content)))
	h.Write(content)
	id, err := h.id()
	if err != nil {
		return id, err
	}
	return id, w.add(id, typ, content)
}

// entryBufs are for entries that are put together outside the lock.
var entryBufs = sync.Pool{New: func() any { return new([]byte) }}

func (w *StoredWriter) add(id refpolicy.OID, typ Type, content []byte) error {
	if w.Has(id) {
		return w.failed()
	}
	buf := entryBufs.Get().(*[]byte)
	defer entryBufs.Put(buf)
	raw, crc := appendStored((*buf)[:0], typ, content)
	*buf = raw
	_, err := w.addRaw(storedAt{id: id, crc: crc, print: printOf(raw)}, raw)
	return err
}

// failed is why nothing can be added any more.
func (w *StoredWriter) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ready()
}

func (w *StoredWriter) ready() error {
	switch {
	case w.done:
		return ErrWriterDone
	case w.lastErr != nil:
		return fmt.Errorf("%w: %w", ErrWriterDone, w.lastErr)
	}
	return nil
}

// addRaw adds an entry as it stands in a pack and tells where it is, which e does not
// know yet.
func (w *StoredWriter) addRaw(e storedAt, raw []byte) (off int64, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.ready(); err != nil {
		return 0, err
	}
	if i, ok := w.find(e.id); ok {
		return w.entries[i].off, nil
	}
	if len(w.entries) >= maxObjects {
		w.lastErr = fmt.Errorf("write pack: over %d objects", maxObjects)
		return 0, w.lastErr
	}
	off = w.size()
	e.off = off
	w.entries = append(w.entries, e)
	w.table.add(spreadOf(e.id), len(w.entries)-1, func(i int) uint32 { return spreadOf(w.entries[i].id) })
	w.buf = append(w.buf, raw...)
	if len(w.buf) >= storedBuffer {
		return off, w.flush()
	}
	return off, nil
}

// find gives the place of an object. Called with mu held.
func (w *StoredWriter) find(id refpolicy.OID) (int, bool) {
	return w.table.find(spreadOf(id), func(i int) bool { return w.entries[i].id == id })
}

func (w *StoredWriter) size() int64 { return w.flushed + int64(len(w.buf)) }

// flush writes what is held back. Called with mu held.
func (w *StoredWriter) flush() error {
	if w.lastErr != nil || len(w.buf) == 0 {
		return w.lastErr
	}
	if _, err := w.f.WriteAt(w.buf, w.flushed); err != nil {
		w.lastErr = fmt.Errorf("write pack: %w", err)
		return w.lastErr
	}
	w.flushed += int64(len(w.buf))
	w.buf = w.buf[:0]
	if w.flushed-w.begun >= storedBehind {
		beginWritingFile(w.f, w.begun, w.flushed)
		w.begun = w.flushed
	}
	return nil
}

// Has reports whether the object was added.
func (w *StoredWriter) Has(id refpolicy.OID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.find(id)
	return ok
}

// Count is the number of objects so far.
func (w *StoredWriter) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.entries)
}

// Size is the number of bytes so far.
func (w *StoredWriter) Size() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size()
}

// Append appends the content of an object that was added to buf, read back from the
// file: ErrNotFound, or an error that is ErrPackBroken when it is not what was written.
func (w *StoredWriter) Append(id refpolicy.OID, buf []byte) ([]byte, error) {
	w.mu.Lock()
	i, ok := w.find(id)
	if !ok {
		w.mu.Unlock()
		return buf, ErrNotFound
	}
	e, end := w.entries[i], w.size()
	if i+1 < len(w.entries) {
		end = w.entries[i+1].off
	}
	var err error
	if end > w.flushed {
		err = w.flush()
	}
	f := w.f
	w.mu.Unlock()
	if err != nil {
		return buf, err
	}
	if f == nil {
		return buf, ErrWriterDone
	}
	_, got, err := appendEntry(f, e.off, end, e.crc, buf)
	if err != nil {
		err = &BrokenError{Name: "being written", Err: err}
	}
	return got, err
}

// appendEntry appends the content of the stored entry that is in f from off to end.
// errNotStored: the entry is of another form.
func appendEntry(f io.ReaderAt, off, end int64, crc uint32, buf []byte) (Type, []byte, error) {
	start, n := len(buf), int(end-off)
	if cap(buf)-start < n {
		grown := make([]byte, start, start+max(n, start/2))
		copy(grown, buf)
		buf = grown
	}
	raw := buf[start : start+n]
	if err := readEntry(f, off, crc, raw); err != nil {
		return 0, buf[:start], err
	}
	typ, content, ok, err := storedContent(raw)
	switch {
	case err != nil:
		return 0, buf[:start], fmt.Errorf("entry at %d: %w", off, err)
	case !ok:
		return 0, buf[:start], errNotStored
	}
	return typ, buf[:start+len(content)], nil
}

// readEntry fills raw with an entry and holds it to its checksum.
func readEntry(f io.ReaderAt, off int64, crc uint32, raw []byte) error {
	if _, err := f.ReadAt(raw, off); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read entry at %d: %w", off, err)
	}
	if err := checkCRC(raw, crc); err != nil {
		return fmt.Errorf("entry at %d: %w", off, err)
	}
	return nil
}

func checkCRC(raw []byte, crc uint32) error {
	if crc32.ChecksumIEEE(raw) != crc {
		return fmt.Errorf("%w: checksum", errEntry)
	}
	return nil
}

// Abort removes what was written. After Finish it does nothing.
func (w *StoredWriter) Abort() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.abort()
}

func (w *StoredWriter) abort() error {
	if w.done {
		return nil
	}
	w.done = true
	if w.f != nil {
		_ = w.f.Close() // the file goes
		w.f = nil
	}
	for _, path := range []string{w.tmp, w.tmp + ".idx"} {
		if err := removeTree(w.d.fs, path); err != nil {
			return fmt.Errorf("abort pack: %w", err)
		}
	}
	return nil
}

// flushAll writes what is held back, and written tells how far that has come.
func (w *StoredWriter) flushAll() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flush()
}

func (w *StoredWriter) written() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flushed
}
