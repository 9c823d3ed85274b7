package gitstore

import (
	"os"
	"path/filepath"
	"time"

	"github.com/headgate/headgate/gitstore/packs"
)

// othersEvery is how often a process looks whether another on its data folder has ended.
const othersEvery = 5 * time.Second

// sweepOrphans removes the quarantine of pushes, and what else was incoming, of
// processes that have ended: nobody is at work in it any more. What a crash keeps from
// being removed here is removed when its repo is opened, or when it is sharedGrace old.
func (s *Store) sweepOrphans(dead []string) {
	for _, owner := range dead {
		left, err := filepath.Glob(filepath.Join(s.reposDir(), "*", "repo_*", "packs", packs.IncomingOf(owner)+"*"))
		for _, path := range left {
			if s.life.Err() != nil {
				return
			}
			if rerr := os.RemoveAll(path); rerr != nil {
				err = rerr
			}
		}
		if err != nil {
			s.log.Warn("remove what an ended process left", "process", owner, "err", err)
		}
	}
}

// watchOthers cleans up after other processes on the same data folder until the store
// closes.
func (s *Store) watchOthers(every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-s.closed:
			return
		case <-t.C:
		}
		dead, err := sweepScratch(filepath.Dir(s.scratch.path))
		if err != nil {
			s.log.Warn("look after other processes", "err", err)
		}
		s.sweepOrphans(dead)
	}
}
