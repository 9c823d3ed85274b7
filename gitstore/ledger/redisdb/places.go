package redisdb

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"sync"
)

// places are where the answers of this process' batches stand in a space's meta while
// they may be sent again: each batch under way has one of its own.
type places struct {
	prefix string // of this process' places

	mu    sync.Mutex // guards what follows
	free  []int
	made  int
	names uint64
}

func newPlaces() *places {
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails
	return &places{prefix: "own/" + hex.EncodeToString(id[:]) + "/"}
}

// take gives a place and a name that no other batch of this process has; done gives the
// place back.
func (p *places) take() (place, name string, done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names++
	n := p.made
	if last := len(p.free) - 1; last >= 0 {
		n, p.free = p.free[last], p.free[:last]
	} else {
		p.made++
	}
	return p.prefix + strconv.Itoa(n), strconv.FormatUint(p.names, 10), func() { p.put(n) }
}

func (p *places) put(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, n)
}
