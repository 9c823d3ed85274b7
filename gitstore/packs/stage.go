package packs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// A Stage keeps chunks that come in over many requests, until they make a pack. It
// outlives its process, and several may fill it at once, since each writes files of
// its own in the folder and reads those of others:
//
//	uploads/<name>/<run>.chunks   a pack being filled
//	               <run>.list     a record for each of its entries (stagelist.go)
//	               <run>.notes    small data by name (stagenotes.go)
//
// Nothing of it is synced: records and entries carry checksums, and what did not reach
// the disk whole is not there. A file is never written to by any process but the one
// that made it, and never again after it became a pack, of which it is a link then.
//
// A Stage is safe for concurrent use.
type Stage struct {
	d    *Dir
	path string

	mu    sync.Mutex // guards all below
	own   *stageRun  // being filled; nil until the first chunk, and after Pack
	notes File
	runs  map[string]*stageRun // by name, own included
	recs  []stageRecord
	table placeTable
	bytes int64
	gone  bool
}

// A stageRun is the pair of files of one run.
type stageRun struct {
	name string
	w    *StoredWriter // of our own
	list File          // to write, of our own
	f    File          // to read, of others or given away
	read int64         // bytes of the list that are in recs
	due  []byte        // records that are not written yet, since their entries are not
}

const uploadsName = "uploads"

// Extensions of the files of a run.
const (
	chunksExt = ".chunks"
	listExt   = ".list"
	notesExt  = ".notes"
)

func (d *Dir) uploadsPath() string { return filepath.Join(d.root, uploadsName) }

// checkStageName refuses what is not safe in a path: ErrBadName.
func checkStageName(name string) error {
	odd := strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_'
	})
	if name == "" || len(name) > 100 || odd {
		return fmt.Errorf("%w: stage %q", ErrBadName, name)
	}
	return nil
}

// OpenStage opens a stage, or makes it. Of several that are open at once each sees what
// the others have added. The caller ends it by Close, or RemoveStage.
func (d *Dir) OpenStage(name string) (*Stage, error) {
	if err := checkStageName(name); err != nil {
		return nil, err
	}
	s := &Stage{d: d, path: filepath.Join(d.uploadsPath(), name), runs: map[string]*stageRun{}}
	for _, folder := range []string{d.uploadsPath(), s.path} {
		if err := d.fs.Mkdir(folder); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("open stage: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refresh(); err != nil {
		s.close()
		return nil, fmt.Errorf("open stage: %w", err)
	}
	return s, nil
}

// Add stages a chunk's blob under the hash of its content of length bytes, and gives
// the blob's id. One that is there is not written again.
func (s *Stage) Add(hash [32]byte, length uint32, blob []byte) (refpolicy.OID, error) {
	if id, ok := s.find(hash, length); ok {
		return id, nil
	}
	id := objectID(Blob, blob)
	buf := entryBufs.Get().(*[]byte)
	defer entryBufs.Put(buf)
	raw, crc := appendStored((*buf)[:0], Blob, blob)
	*buf = raw
	entry := storedAt{id: id, crc: crc, print: printOf(raw)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.place(hash); ok {
		return s.recs[i].id, nil
	}
	if err := s.ready(); err != nil {
		return id, fmt.Errorf("stage chunk: %w", err)
	}
	off, err := s.own.w.addRaw(entry, raw)
	if err != nil {
		s.abandon()
		return id, fmt.Errorf("stage chunk: %w", err)
	}
	rec := stageRecord{hash: hash, length: length, id: id, off: off, stored: uint32(len(raw)), crc: crc, run: s.own}
	s.note(rec)
	s.own.due = rec.append(s.own.due)
	if len(s.own.due) >= stageDue*recordLen || s.own.w.written() >= off+int64(len(raw)) {
		err = s.flush()
	}
	return id, err
}

// abandon goes on without a file that could not be written to: what reached it is read,
// the rest is not staged. Called with mu held.
func (s *Stage) abandon() {
	run := s.own
	s.own = nil
	run.due = nil
	end := run.w.written()
	for i := range s.recs {
		if r := &s.recs[i]; r.run == run && r.off+int64(r.stored) > end {
			s.forget(r)
		}
	}
	run.f, run.w = run.w.f, nil
	_ = run.list.Close() // synced by nobody
	run.list = nil
}

// forget takes a chunk out of the stage.
func (s *Stage) forget(r *stageRecord) {
	r.run = nil
	s.bytes -= int64(r.stored)
}

// stageDue is how many records are held back at most.
const stageDue = 256

func (s *Stage) find(hash [32]byte, length uint32) (id refpolicy.OID, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.place(hash)
	if !ok || s.recs[i].length != length {
		return id, false
	}
	return s.recs[i].id, true
}

// place finds a record. Called with mu held.
func (s *Stage) place(hash [32]byte) (int, bool) {
	return s.table.find(spreadHash(hash), func(i int) bool { return s.recs[i].hash == hash && s.recs[i].run != nil })
}

func spreadHash(h [32]byte) uint32 { return binary.LittleEndian.Uint32(h[:]) }

// note takes a record into memory. Called with mu held.
func (s *Stage) note(rec stageRecord) {
	if _, ok := s.place(rec.hash); ok {
		return
	}
	s.recs = append(s.recs, rec)
	s.table.add(spreadHash(rec.hash), len(s.recs)-1, func(i int) uint32 { return spreadHash(s.recs[i].hash) })
	s.bytes += int64(rec.stored)
}

// ready makes sure of files of our own. Called with mu held.
func (s *Stage) ready() error {
	if s.gone {
		return fs.ErrClosed
	}
	if s.own != nil {
		return nil
	}
	run := &stageRun{name: randomHex()}
	if s.d.o.Owner != "" {
		run.name = s.d.o.Owner + "-" + run.name
	}
	base := filepath.Join(s.path, run.name)
	f, err := s.d.fs.Create(base + chunksExt)
	if err != nil {
		return err
	}
	if run.list, err = s.d.fs.Create(base + listExt); err != nil {
		_ = f.Close()
		return err
	}
	run.w = &StoredWriter{d: s.d, tmp: base + chunksExt}
	run.w.start(f)
	s.own, s.runs[run.name] = run, run
	return nil
}

// flush hands all that was added to the system, entries before their records. Called
// with mu held.
func (s *Stage) flush() error {
	if s.own == nil || len(s.own.due) == 0 {
		return nil
	}
	err := s.own.w.flushAll()
	if err == nil {
		_, err = s.own.list.WriteAt(s.own.due, s.own.read)
	}
	if err != nil {
		s.abandon()
		return fmt.Errorf("stage chunk: %w", err)
	}
	s.own.read += int64(len(s.own.due))
	s.own.due = s.own.due[:0]
	return nil
}

// A StageKey names a chunk by its content.
type StageKey struct {
	Hash   [32]byte
	Length uint32
}

// Has tells which chunks are staged, by place; the zero id for those that are not.
func (s *Stage) Has(keys []StageKey) []refpolicy.OID {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.flush()   // whoever asks goes by the answer, in another process too; Add tells
	_ = s.refresh() // what cannot be read is not there
	ids := make([]refpolicy.OID, len(keys))
	for n, k := range keys {
		if i, ok := s.place(k.Hash); ok && s.recs[i].length == k.Length {
			ids[n] = s.recs[i].id
		}
	}
	return ids
}

// Sizes tells how many bytes the blobs of chunks have, by place; 0 for those that are not
// staged.
func (s *Stage) Sizes(keys []StageKey) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sizes := make([]int, len(keys))
	for n, k := range keys {
		if i, ok := s.place(k.Hash); ok && s.recs[i].length == k.Length {
			sizes[n] = contentBytes(int(s.recs[i].stored))
		}
	}
	return sizes
}

// Bytes is how much is staged, as it is stored.
func (s *Stage) Bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// Pack turns what is staged into a pack that nobody knows of. What this process staged
// since the last Pack is taken over as it is, the rest is copied if it is what it was
// written as. More can be added before it is finished, and the stage stays as it is
// whatever becomes of the pack.
func (s *Stage) Pack(ctx context.Context) (*StoredWriter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, given, err := s.takeOver(ctx)
	if err != nil {
		return nil, fmt.Errorf("pack stage: %w", err)
	}
	err = s.refresh()
	var raw []byte
	for i := 0; i < len(s.recs) && err == nil; i++ {
		if s.recs[i].run == nil || s.recs[i].run == given {
			continue
		}
		if err = context.Cause(ctx); err == nil {
			raw, err = s.copyTo(w, i, raw)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pack stage: %w", err), w.Abort())
	}
	return w, nil
}

// takeOver gives a writer that goes on with our own file under a second name; own is
// only read from then on.
func (s *Stage) takeOver(ctx context.Context) (*StoredWriter, *stageRun, error) {
	if s.own == nil {
		w, err := s.d.NewStoredWriter(ctx)
		return w, nil, err
	}
	run := s.own
	if err := s.flush(); err != nil {
		return nil, nil, err
	}
	f, err := s.d.fs.Open(run.w.tmp)
	if err != nil {
		return nil, nil, err
	}
	tmp := s.d.path(s.d.incomingName(), ".tmp")
	if err := s.d.fs.Link(run.w.tmp, tmp); err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	w := run.w
	w.tmp = tmp
	_ = run.list.Close() // written, and synced by nobody
	run.f, run.w, run.list, s.own = f, nil, nil, nil
	return w, run, nil
}

// copyTo copies an entry of another file, or forgets the chunk if it is damaged.
func (s *Stage) copyTo(w *StoredWriter, i int, raw []byte) ([]byte, error) {
	rec := &s.recs[i]
	raw = append(raw[:0], make([]byte, rec.stored)...)
	err := readEntry(rec.run.f, rec.off, rec.crc, raw)
	if err == nil {
		err = checkStored(raw, rec.id)
	}
	if err != nil {
		s.forget(rec)
		return raw, nil
	}
	_, err = w.addRaw(storedAt{id: rec.id, crc: rec.crc, print: printOf(raw)}, raw)
	return raw, err
}

// Close lets go of the files.
func (s *Stage) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.flush()
	s.close()
	return err
}

func (s *Stage) close() {
	s.gone = true
	for _, run := range s.runs {
		for _, f := range []File{run.list, run.f} {
			if f != nil {
				_ = f.Close() // read, or synced by nobody
			}
		}
		if run.w != nil {
			_ = run.w.f.Close()
		}
	}
	if s.notes != nil {
		_ = s.notes.Close()
	}
	s.runs, s.own, s.notes = nil, nil, nil
}

// RemoveStage removes a stage with all that is in it, which nobody in this process has
// open; one that is not there is no error.
func (d *Dir) RemoveStage(name string) error {
	if err := checkStageName(name); err != nil {
		return err
	}
	if err := removeTree(d.fs, filepath.Join(d.uploadsPath(), name)); err != nil {
		return fmt.Errorf("remove stage: %w", err)
	}
	return nil
}

// A StageInfo is a stage that was found, and when it was written to last.
type StageInfo struct {
	Name    string
	Touched time.Time
}

// Stages gives all stages, in byte order.
func (d *Dir) Stages() ([]StageInfo, error) {
	entries, err := d.fs.ReadDir(d.uploadsPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list stages: %w", err)
	}
	var all []StageInfo
	for _, e := range entries {
		if checkStageName(e.Name()) != nil {
			continue
		}
		at, err := lastTouched(d.fs, filepath.Join(d.uploadsPath(), e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list stages: %w", err)
		}
		all = append(all, StageInfo{e.Name(), at})
	}
	return all, nil
}
