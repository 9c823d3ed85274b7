package client

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/sessions/snapshot"
)

func openMemo(t interface {
	Helper()
	Fatalf(string, ...any)
}, path string) *Memo {
	t.Helper()
	m, err := OpenMemo(path)
	if err != nil {
		t.Fatalf("OpenMemo: %v", err)
	}
	return m
}

// What was kept is known after opening again, for the same content at the same place
// after the same snapshot, and for nothing else.
func TestMemoKnowsWhatWasSaved(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		path := filepath.Join(dir, "memo")
		m := openMemo(t, path)
		contents := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, 64), 1, 20).Draw(t, "contents")
		part := MemoPart{Name: "memory", ChunkBytes: 4096, Size: 1 << 20}
		for i, c := range contents {
			part.Prints = append(part.Prints, m.Fingerprint(c))
			part.Chunks = append(part.Chunks, snapshot.Chunk{Length: uint32(len(c)), Hash: snapshot.Hash{byte(i), 1}})
		}
		sha := snapshot.OID{1, 2}
		if err := m.Keep(sha, []MemoPart{part, {Name: "disk"}}); err != nil {
			t.Fatalf("Keep: %v", err)
		}
		again := openMemo(t, path)
		again.Of(sha)
		for i, c := range contents {
			if got, ok := again.Chunk("memory", 4096, i, again.Fingerprint(c)); !ok || got != part.Chunks[i] {
				t.Fatalf("Chunk %d = %+v, %t, want %+v", i, got, ok, part.Chunks[i])
			}
			other := append(bytes.Clone(c), 0)
			if _, ok := again.Chunk("memory", 4096, i, again.Fingerprint(other)); ok {
				t.Fatalf("Chunk %d is known for another content", i)
			}
			for _, unknown := range []struct {
				part  string
				bytes int
				i     int
			}{{"disk", 4096, i}, {"none", 4096, i}, {"memory", 8192, i}, {"memory", 4096, len(contents)}} {
				if _, ok := again.Chunk(unknown.part, unknown.bytes, unknown.i, again.Fingerprint(c)); ok {
					t.Fatalf("Chunk of %+v is known", unknown)
				}
			}
		}
		again.Of(snapshot.OID{9})
		if _, ok := again.Chunk("memory", 4096, 0, again.Fingerprint(contents[0])); ok {
			t.Fatal("Chunk is known after another snapshot")
		}
	})
}

// A memo that is cut, changed, or readable by others is an empty one with a new key.
func TestDamagedMemoIsForgotten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memo")
	m := openMemo(t, path)
	content := []byte("content")
	sha := snapshot.OID{1}
	part := MemoPart{Name: "memory", ChunkBytes: 4096, Size: 7, Prints: []Fingerprint{m.Fingerprint(content)}, Chunks: []snapshot.Chunk{{Length: 7}}}
	if err := m.Keep(sha, []MemoPart{part}); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	known := func() bool {
		m := openMemo(t, path)
		m.Of(sha)
		_, ok := m.Chunk("memory", 4096, 0, m.Fingerprint(content))
		return ok
	}
	if !known() {
		t.Fatal("a good memo is not known")
	}
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if known() {
			t.Errorf("a memo with byte %d changed is known", i)
		}
		if err := os.WriteFile(path, good[:i], 0o600); err != nil {
			t.Fatal(err)
		}
		if known() {
			t.Errorf("a memo cut after %d bytes is known", i)
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if known() {
		t.Error("a memo that others can read is known")
	}
}

func BenchmarkFingerprint(b *testing.B) {
	m, err := OpenMemo(filepath.Join(b.TempDir(), "memo"))
	if err != nil {
		b.Fatal(err)
	}
	content := bytes.Repeat([]byte{1, 2, 3, 5}, 4<<10)
	b.SetBytes(int64(len(content)))
	for b.Loop() {
		m.Fingerprint(content)
	}
}
