package gitstore

import (
	"os"
	"sync"
	"testing"
)

// Of several processes that open a data folder at once none takes another's scratch
// folder for that of one that is gone.
func TestScratchFoldersOpenedAtOnce(t *testing.T) {
	parent := t.TempDir()
	for range 300 {
		var wg sync.WaitGroup
		opened := make([]*scratch, 4)
		for i := range opened {
			wg.Go(func() {
				s, err := openScratch(parent)
				if err != nil {
					t.Errorf("openScratch: %v", err)
					return
				}
				opened[i] = s
			})
		}
		wg.Wait()
		for _, s := range opened {
			if s == nil {
				continue
			}
			if _, err := os.Stat(s.path); err != nil {
				t.Errorf("scratch folder of a process that runs: %v", err)
			}
			s.close()
		}
		if t.Failed() {
			return
		}
	}
}
