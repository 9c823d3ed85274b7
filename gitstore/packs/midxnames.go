package packs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// The beginning of a multi-pack-index, as git documents it:
//
//	index   = "MIDX" version hash chunks bases packs table *chunk
//	version = %x01, hash = %x01 (SHA-1), chunks and bases one byte each
//	packs   = 4 bytes, big-endian
//	table   = one entry for each chunk and one more: id (4 bytes), offset (8 bytes)
//	chunk   = for the id "PNAM": the names of the packs' idx files, each ended by NUL
const (
	midxHeadLen  = 12
	midxEntryLen = 12
	// maxMidxNames bounds the list of names, of which each takes 50 bytes.
	maxMidxNames = 16 << 20
)

// IndexedPacks reads from the multi-pack-index of an index folder which packs it
// names: ErrIndexBroken if it cannot be read.
func (d *Dir) IndexedPacks(name string) ([]string, error) {
	if err := CheckIndexName(name); err != nil {
		return nil, err
	}
	f, size, err := openSized(d.fs, filepath.Join(d.IndexPath(name), midxName))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer f.Close()
	names, err := midxNames(f, size)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w: %w", name, ErrIndexBroken, err)
	}
	return names, nil
}

// midxNames gives the packs a multi-pack-index of size bytes names.
func midxNames(r io.ReaderAt, size int64) ([]string, error) {
	var head [midxHeadLen]byte
	if _, err := r.ReadAt(head[:], 0); err != nil {
		return nil, fmt.Errorf("read header: %w", err)
	}
	if !bytes.Equal(head[:6], []byte("MIDX\x01\x01")) {
		return nil, fmt.Errorf("header %x is not that of a multi-pack-index", head[:6])
	}
	table := make([]byte, (int(head[6])+1)*midxEntryLen)
	if _, err := r.ReadAt(table, midxHeadLen); err != nil {
		return nil, fmt.Errorf("read chunk table: %w", err)
	}
	for ; len(table) > midxEntryLen; table = table[midxEntryLen:] {
		if string(table[:4]) != "PNAM" {
			continue
		}
		from, to := binary.BigEndian.Uint64(table[4:]), binary.BigEndian.Uint64(table[midxEntryLen+4:])
		if from > to || to > uint64(size) || to-from > maxMidxNames {
			return nil, fmt.Errorf("names are said to be at %d to %d of %d bytes", from, to, size)
		}
		return namesIn(r, int64(from), int(to-from), int(binary.BigEndian.Uint32(head[8:])))
	}
	return nil, fmt.Errorf("it has no names")
}

func namesIn(r io.ReaderAt, from int64, size, count int) ([]string, error) {
	text := make([]byte, size)
	if _, err := r.ReadAt(text, from); err != nil {
		return nil, fmt.Errorf("read names: %w", err)
	}
	var names []string
	for range min(count, size) {
		one, rest, ok := bytes.Cut(text, []byte{0})
		name := strings.TrimSuffix(strings.TrimSuffix(string(one), ".idx"), ".pack")
		if err := CheckName(name); !ok || err != nil {
			return nil, fmt.Errorf("name %d is %q", len(names), one)
		}
		names, text = append(names, name), rest
	}
	if len(names) != count {
		return nil, fmt.Errorf("%d names, its header says %d", len(names), count)
	}
	return names, nil
}
