package client

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/sessions/snapshot"
)

// A Memo remembers what images were like when they were saved last, so that the strong
// hash of a chunk that has not changed need not be made again: a save then costs little
// more than reading. It is a file of the runner's; without it everything is hashed.
//
// What is compared are fingerprints: AES-GCM's authenticator over the content, under a
// key that is random and in this file alone. It is a universal hash: for two different contents
// of a chunk, chosen without knowing the key, the odds of one fingerprint are below
// 2^-112. So the file must not be readable by what is saved.
//
//	file   = "headgate memo 1" LF key(16) sha(20) count(4) *part SHA-256 of all before
//	part   = name-length(2) name chunk-bytes(4) size(8) chunks(4) *( fingerprint(16) length(4) hash(32) )
type Memo struct {
	path  string
	key   [16]byte
	aead  cipher.AEAD
	sha   snapshot.OID
	parts map[string]*memoPart
}

// A Fingerprint tells contents apart within one Memo.
type Fingerprint [16]byte

type memoPart struct {
	chunkBytes int
	size       int64
	prints     []Fingerprint
	chunks     []snapshot.Chunk
}

const (
	memoMagic     = "headgate memo 1\n"
	memoChunkSize = 16 + 4 + 32
	maxMemo       = 8 << 30 // bytes of its file
)

// OpenMemo reads a memo's file. One that is not there, or is damaged, is an empty memo.
func OpenMemo(path string) (*Memo, error) {
	m := &Memo{path: path, parts: map[string]*memoPart{}}
	text, err := readMemo(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read memo: %w", err)
	}
	if err != nil || !m.decode(text) {
		m.sha, m.parts = snapshot.OID{}, map[string]*memoPart{}
		_, _ = rand.Read(m.key[:]) // never fails: crypto/rand ends the program instead
	}
	block, err := aes.NewCipher(m.key[:])
	if err == nil {
		m.aead, err = cipher.NewGCM(block)
	}
	if err != nil {
		return nil, fmt.Errorf("open memo: %w", err)
	}
	return m, nil
}

func readMemo(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxMemo || info.Mode().Perm()&0o077 != 0 {
		return nil, fs.ErrNotExist // none of ours
	}
	return os.ReadFile(path)
}

// Of forgets everything unless it is of the snapshot that a save builds on.
func (m *Memo) Of(base snapshot.OID) {
	if m.sha != base || base.IsZero() {
		m.sha, m.parts = snapshot.OID{}, map[string]*memoPart{}
	}
}

// Fingerprint is that of a content. It may be asked by many at once.
func (m *Memo) Fingerprint(content []byte) (f Fingerprint) {
	var nonce [12]byte // one for all: what is authenticated is never shown to anybody
	m.aead.Seal(f[:0], nonce[:], nil, content)
	return f
}

// Chunk gives what chunk i of a part was, if its content has this fingerprint.
func (m *Memo) Chunk(part string, chunkBytes, i int, f Fingerprint) (c snapshot.Chunk, ok bool) {
	p := m.parts[part]
	if p == nil || p.chunkBytes != chunkBytes || i >= len(p.chunks) || p.prints[i] != f {
		return c, false
	}
	return p.chunks[i], true
}

// has reports whether there is anything of a part.
func (m *Memo) has(part string) bool { return m != nil && m.parts[part] != nil }

// leafChunks is how many chunks a part's leaf had.
func (m *Memo) leafChunks(part string, leaf int) int {
	p := m.parts[part]
	if p == nil {
		return 0
	}
	return max(0, min(snapshot.LeafChunks, len(p.chunks)-leaf*snapshot.LeafChunks))
}

// A MemoPart is what is to be remembered of a part.
type MemoPart struct {
	Name       string
	ChunkBytes int
	Size       int64
	Prints     []Fingerprint
	Chunks     []snapshot.Chunk // as many
}

// Keep remembers what was saved as sha, in place of all before: it writes the file whole
// or leaves the old one.
func (m *Memo) Keep(sha snapshot.OID, parts []MemoPart) error {
	m.sha, m.parts = sha, make(map[string]*memoPart, len(parts))
	for _, p := range parts {
		m.parts[p.Name] = &memoPart{p.ChunkBytes, p.Size, p.Prints, p.Chunks}
	}
	if err := m.write(m.encode(parts)); err != nil {
		return fmt.Errorf("write memo: %w", err)
	}
	return nil
}

func (m *Memo) encode(parts []MemoPart) []byte {
	size := len(memoMagic) + len(m.key) + len(m.sha) + 4 + sha256.Size
	for _, p := range parts {
		size += 2 + len(p.Name) + 16 + len(p.Chunks)*memoChunkSize
	}
	b := make([]byte, 0, size)
	b = append(append(append(b, memoMagic...), m.key[:]...), m.sha[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(parts)))
	for _, p := range parts {
		b = binary.BigEndian.AppendUint16(b, uint16(len(p.Name)))
		b = append(b, p.Name...)
		b = binary.BigEndian.AppendUint32(b, uint32(p.ChunkBytes))
		b = binary.BigEndian.AppendUint64(b, uint64(p.Size))
		b = binary.BigEndian.AppendUint32(b, uint32(len(p.Chunks)))
		for i, c := range p.Chunks {
			b = append(b, p.Prints[i][:]...)
			b = binary.BigEndian.AppendUint32(b, c.Length)
			b = append(b, c.Hash[:]...)
		}
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// decode reads what encode writes; false if it is something else.
func (m *Memo) decode(b []byte) bool {
	r := memoReader{b: b}
	if len(b) < sha256.Size {
		return false
	}
	r.b = b[:len(b)-sha256.Size]
	sum := sha256.Sum256(r.b)
	if !bytes.Equal(sum[:], b[len(r.b):]) || string(r.take(len(memoMagic))) != memoMagic {
		return false
	}
	copy(m.key[:], r.take(len(m.key)))
	copy(m.sha[:], r.take(len(m.sha)))
	for range r.number(4) {
		name := string(r.take(int(r.number(2))))
		p := &memoPart{chunkBytes: int(r.number(4)), size: int64(r.number(8))}
		n := int(r.number(4))
		if r.bad || n > len(r.b)/memoChunkSize {
			return false
		}
		p.prints, p.chunks = make([]Fingerprint, n), make([]snapshot.Chunk, n)
		for i := range n {
			copy(p.prints[i][:], r.take(16))
			p.chunks[i].Length = uint32(r.number(4))
			copy(p.chunks[i].Hash[:], r.take(32))
		}
		m.parts[name] = p
	}
	return !r.bad && len(r.b) == 0
}

// A memoReader takes bytes off the front; bad says that there were too few.
type memoReader struct {
	b   []byte
	bad bool
}

func (r *memoReader) take(n int) []byte {
	if n > len(r.b) {
		r.bad, r.b = true, nil
		return nil
	}
	taken := r.b[:n]
	r.b = r.b[n:]
	return taken
}

func (r *memoReader) number(n int) (v uint64) {
	for _, c := range r.take(n) {
		v = v<<8 | uint64(c)
	}
	return v
}

func (m *Memo) write(text []byte) error {
	if err := os.MkdirAll(filepath.Dir(m.path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(m.path), ".memo-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), m.path)
}
