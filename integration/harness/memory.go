package harness

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// RSSAnon is the anonymous resident memory of a process, in bytes.
func RSSAnon(pid int) (int64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "RssAnon:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no RssAnon for process %d", pid)
}

// children are the ids of all processes below pid.
func children(pid int) []int {
	var all []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range tasks {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for _, field := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(append(all, child), children(child)...)
			}
		}
	}
	return all
}

// A Watch samples the memory of a process and of those below it.
type Watch struct {
	stop, done chan struct{}
	once       sync.Once

	mu        sync.Mutex // guards what follows
	own, most int64
}

// WatchMemory samples until Peak is called.
func WatchMemory(pid int, every time.Duration) *Watch {
	w := &Watch{stop: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			w.sample(pid)
			select {
			case <-w.stop:
				return
			case <-tick.C:
			}
		}
	}()
	return w
}

func (w *Watch) sample(pid int) {
	own, err := RSSAnon(pid)
	if err != nil {
		return
	}
	var below int64
	for _, child := range children(pid) {
		if n, err := RSSAnon(child); err == nil {
			below = max(below, n)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.own, w.most = max(w.own, own), max(w.most, below)
}

// Peak ends the watch and gives the most that the process itself, and that any one
// process below it, had.
func (w *Watch) Peak() (own, child int64) {
	w.once.Do(func() { close(w.stop) })
	<-w.done
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.own, w.most
}
