package packs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// behindEvery is how often the files of a folder are looked at, and behindLeast how
// much one must have grown to be written out.
const (
	behindEvery = 20 * time.Millisecond
	behindLeast = 4 << 20
)

// WriteBehind has the disk begin with what another process writes into an incoming
// folder while that writes on, until ctx ends. Without it all of a large pack is
// written when it is synced, and whoever syncs a commit meanwhile waits behind it: a
// small sync beside one of 700 MB took up to 300 ms, with it 80. It makes nothing
// durable, and where the system cannot do it nothing is lost.
func (d *Dir) WriteBehind(ctx context.Context, folder string) {
	begun := map[string]int64{}
	tick := time.NewTicker(behindEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		entries, err := os.ReadDir(filepath.Join(folder, "pack"))
		if err != nil {
			return
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), "tmp_") {
				continue // a link to a pack, or one that is done
			}
			info, err := e.Info()
			if err != nil || info.Size()-begun[e.Name()] < behindLeast {
				continue
			}
			beginWriting(filepath.Join(folder, "pack", e.Name()), begun[e.Name()], info.Size())
			begun[e.Name()] = info.Size()
		}
	}
}
