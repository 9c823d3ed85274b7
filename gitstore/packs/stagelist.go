package packs

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/refpolicy"
)

// A stageRecord is one entry of a run:
//
//	record = hash(32) length(4) id(20) offset(8) stored(4) crc(4) sum(4)   big endian
//	crc    = CRC-32 of the entry, which begins at offset and has stored bytes
//	sum    = CRC-32 of what precedes it in the record
type stageRecord struct {
	hash   [32]byte
	length uint32
	id     refpolicy.OID
	off    int64
	stored uint32
	crc    uint32
	run    *stageRun // nil: it has turned out to be damaged
}

const recordLen = 32 + 4 + 20 + 8 + 4 + 4 + 4

// maxStored bounds an entry that a record may name.
const maxStored = 80 << 20

func (r stageRecord) append(b []byte) []byte {
	start := len(b)
	b = append(b, r.hash[:]...)
	b = binary.BigEndian.AppendUint32(b, r.length)
	b = append(b, r.id[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(r.off))
	b = binary.BigEndian.AppendUint32(b, r.stored)
	b = binary.BigEndian.AppendUint32(b, r.crc)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[start:]))
}

// parseStageRecord reads one of recordLen bytes; ok is false for one that is torn.
func parseStageRecord(b []byte) (r stageRecord, ok bool) {
	if crc32.ChecksumIEEE(b[:recordLen-4]) != binary.BigEndian.Uint32(b[recordLen-4:]) {
		return r, false
	}
	copy(r.hash[:], b)
	r.length = binary.BigEndian.Uint32(b[32:])
	copy(r.id[:], b[36:])
	off := binary.BigEndian.Uint64(b[56:])
	r.off, r.stored, r.crc = int64(off), binary.BigEndian.Uint32(b[64:]), binary.BigEndian.Uint32(b[68:])
	return r, off >= packHeadLen && off < 1<<62 && r.stored > 0 && r.stored <= maxStored
}

// refresh reads what other runs have come to hold. Called with mu held.
func (s *Stage) refresh() error {
	if s.gone {
		return fs.ErrClosed
	}
	entries, err := s.d.fs.ReadDir(s.path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), listExt)
		if !ok || s.own != nil && s.own.name == name {
			continue
		}
		if err := s.refreshRun(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (s *Stage) refreshRun(name string) error {
	base := filepath.Join(s.path, name)
	list, size, err := openSized(s.d.fs, base+listExt)
	if err != nil {
		return err
	}
	defer list.Close()
	run := s.runs[name]
	if run == nil {
		run = &stageRun{name: name}
		if run.f, err = s.d.fs.Open(base + chunksExt); err != nil {
			return err
		}
		s.runs[name] = run
	}
	// A record is looked at once; one that is torn, again when there is more.
	buf := make([]byte, 1024*recordLen)
	var raw []byte
	for run.read+recordLen <= size {
		b := buf[:min(int64(len(buf)), (size-run.read)/recordLen*recordLen)]
		if _, err := list.ReadAt(b, run.read); err != nil {
			return err
		}
		for ; len(b) > 0; b = b[recordLen:] {
			rec, ok := parseStageRecord(b)
			if !ok {
				return nil
			}
			run.read += recordLen
			if raw, ok = entryThere(run, rec, raw); ok {
				rec.run = run
				s.note(rec)
			}
		}
	}
	return nil
}

// entryThere reports whether the entry of a record is in the file whole.
func entryThere(run *stageRun, rec stageRecord, raw []byte) ([]byte, bool) {
	if int(rec.stored) > cap(raw) {
		raw = make([]byte, rec.stored)
	}
	raw = raw[:rec.stored]
	return raw, readEntry(run.f, rec.off, rec.crc, raw) == nil
}
