package packs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A run's notes follow each other:
//
//	note = sum(4) at(8) name-length(2) data-length(4) name data   big endian
//	sum  = CRC-32 of what follows; at = when it was written, unix nanoseconds
const noteHead = 4 + 8 + 2 + 4

// MaxNote bounds the data of a note.
const MaxNote = 64 << 20

// Note keeps small data beside the chunks, the newest for each name.
func (s *Stage) Note(name string, data []byte) error {
	if len(name) >= 1<<16 || len(data) > MaxNote {
		return fmt.Errorf("stage note: %w: %d bytes", ErrTooLarge, len(data))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return fmt.Errorf("stage note: %w", fs.ErrClosed)
	}
	if s.notes == nil {
		f, err := s.d.fs.Create(filepath.Join(s.path, randomHex()+notesExt))
		if err != nil {
			return fmt.Errorf("stage note: %w", err)
		}
		s.notes = f
	}
	b := make([]byte, 4, noteHead+len(name)+len(data))
	b = binary.BigEndian.AppendUint64(b, uint64(time.Now().UnixNano()))
	b = binary.BigEndian.AppendUint16(b, uint16(len(name)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(data)))
	b = append(append(b, name...), data...)
	binary.BigEndian.PutUint32(b, crc32.ChecksumIEEE(b[4:]))
	if _, err := s.notes.Write(b); err != nil {
		_ = s.notes.Close() // what follows half a note would be lost: begin another file
		s.notes = nil
		return fmt.Errorf("stage note: %w", err)
	}
	return nil
}

// noteAt is where a note's data is.
type noteAt struct {
	file string
	off  int64
	n    int
	at   uint64
}

// Notes calls each for the newest note of every name, in byte order.
func (s *Stage) Notes(ctx context.Context, each func(name string, data []byte) error) error {
	entries, err := s.d.fs.ReadDir(s.path)
	if err != nil {
		return fmt.Errorf("read notes: %w", err)
	}
	newest := map[string]noteAt{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), notesExt) {
			continue
		}
		if err := s.scanNotes(ctx, filepath.Join(s.path, e.Name()), newest); err != nil {
			return fmt.Errorf("read notes: %w", err)
		}
	}
	names := make([]string, 0, len(newest))
	for name := range newest {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		data, err := s.readNote(newest[name])
		if err != nil {
			return fmt.Errorf("read notes: %w", err)
		}
		if err := each(name, data); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stage) readNote(n noteAt) ([]byte, error) {
	f, err := s.d.fs.Open(n.file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, n.n)
	_, err = f.ReadAt(data, n.off)
	if err == io.EOF && n.n == 0 {
		err = nil
	}
	return data, err
}

// scanNotes reads a file of notes up to the first that is torn.
func (s *Stage) scanNotes(ctx context.Context, path string, newest map[string]noteAt) error {
	f, size, err := openSized(s.d.fs, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var b []byte
	for off := int64(0); off+noteHead <= size; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		var head [noteHead]byte
		if _, err := f.ReadAt(head[:], off); err != nil {
			return err
		}
		named, n := int64(binary.BigEndian.Uint16(head[12:])), int64(binary.BigEndian.Uint32(head[14:]))
		if n > MaxNote || off+noteHead+named+n > size {
			return nil
		}
		b = slices.Grow(b[:0], int(noteHead+named+n))[:noteHead+named+n]
		if _, err := f.ReadAt(b, off); err != nil {
			return err
		}
		if crc32.ChecksumIEEE(b[4:]) != binary.BigEndian.Uint32(b) {
			return nil
		}
		name, at := string(b[noteHead:noteHead+named]), binary.BigEndian.Uint64(b[4:])
		if old, ok := newest[name]; !ok || at >= old.at {
			newest[name] = noteAt{path, off + noteHead + named, int(n), at}
		}
		off += noteHead + named + n
	}
	return nil
}
