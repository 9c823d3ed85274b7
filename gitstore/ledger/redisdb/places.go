package redisdb

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A place is where the answer of a batch stands in its space's meta while the batch may
// be sent again, and for longer, until another batch of this process is given the place.
type place struct {
	field string
	name  string // of the batch: a number that grows with each batch of this process
}

// places are those of this process: each batch under way has one of its own. One is
// given to another batch only after what its batch was told has been noted, and never if
// its batch was not answered and may still come to the server: apply.lua relies on both.
type places struct {
	prefix string

	mu    sync.Mutex // guards what follows
	free  []place
	made  int
	names uint64
}

func newPlaces() *places {
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails
	return &places{prefix: "own/" + hex.EncodeToString(id[:]) + "/"}
}

// take gives a place, and a name that no other batch of this process has.
func (p *places) take() place {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names++
	name := strconv.FormatUint(p.names, 10)
	if last := len(p.free) - 1; last >= 0 {
		at := p.free[last]
		p.free = p.free[:last]
		at.name = name
		return at
	}
	p.made++
	return place{field: p.prefix + strconv.Itoa(p.made), name: name}
}

// put gives a place back that nobody waits at; err is what its batch was answered.
func (p *places) put(at place, err error) {
	var replied redis.Error
	if err != nil && !errors.As(err, &replied) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, at)
}
