package packs

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// WriteBehind ends with its context and with its folder, and leaves what it has seen
// as it was.
func TestWriteBehindEnds(t *testing.T) {
	d := &Dir{}
	folder := t.TempDir()
	if err := os.Mkdir(filepath.Join(folder, "pack"), 0o755); err != nil {
		t.Fatal(err)
	}
	content := make([]byte, behindLeast+1)
	growing := filepath.Join(folder, "pack", "tmp_pack_x")
	if err := os.WriteFile(growing, content, 0o444); err != nil {
		t.Fatal(err)
	}
	ended := make(chan bool)
	ctx, cancel := context.WithTimeout(t.Context(), 3*behindEvery)
	go func() { d.WriteBehind(ctx, folder); ended <- true }()
	<-ended
	cancel()
	if got, err := os.ReadFile(growing); err != nil || len(got) != len(content) {
		t.Errorf("file has %d bytes, %v; want %d", len(got), err, len(content))
	}
	go func() { d.WriteBehind(t.Context(), filepath.Join(folder, "gone")); ended <- true }()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Errorf("WriteBehind of a folder that is gone goes on")
	}
}
