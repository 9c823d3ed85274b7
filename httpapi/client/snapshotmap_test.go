package client

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// A file that is saved again is looked at where it is: what has changed in it is saved,
// the rest is not sent, and one that has been cut off is an error.
func TestSaveAgainOfFile(t *testing.T) {
	g := newFakeGate(t)
	path, at := filepath.Join(t.TempDir(), "memo"), filepath.Join(t.TempDir(), "image")
	want := memory(11, 21<<20+5000)
	part := SavePart{Size: int64(len(want)), Open: func() (io.ReadCloser, error) { return os.Open(at) }}
	save := func() error {
		m, err := OpenMemo(path)
		if err != nil {
			t.Fatal(err)
		}
		_, err = g.client(t).Save(t.Context(), SaveOptions{Session: "s", Memo: m, Parts: []SavePart{part}})
		g.mu.Lock()
		defer g.mu.Unlock()
		g.base = fakeSHA
		return err
	}
	for round := range 3 {
		if err := os.WriteFile(at, want, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := save(); err != nil {
			t.Fatalf("save %d: %v", round, err)
		}
		var out bytes.Buffer
		if _, err := g.client(t).Restore(t.Context(), fakeSHA, RestoreOptions{To: &out}); err != nil || !bytes.Equal(out.Bytes(), want) {
			t.Fatalf("Restore after save %d: %d bytes, %v", round, out.Len(), err)
		}
		for _, n := range []int{0, 5 << 20, 5<<20 + 100, len(want) - 1} {
			want[n]++
		}
	}
	if err := os.Truncate(at, 9<<20); err != nil {
		t.Fatal(err)
	}
	if err := save(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("save of a file that was cut off: %v", err)
	}
}
