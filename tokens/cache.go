package tokens

import (
	"crypto/sha256"
	"sync"
)

const (
	// cacheBytes bounds each of a cache's two halves, by the length of the tokens
	// whose principals are kept.
	cacheBytes = 16 << 20
	// entryBytes is what an entry is reckoned to need beside its token's claims.
	entryBytes = 512
)

// A tokenSum is the SHA-256 of a token: what the cache knows it by.
type tokenSum [sha256.Size]byte

// A cache remembers the principals of tokens whose signature was found good. It
// keeps what was asked for lately: entries are written to the young half, a full
// young half becomes the old one, and the old one before it is dropped.
type cache struct {
	limit int

	mu    sync.RWMutex // guards all below
	young map[tokenSum]*Principal
	old   map[tokenSum]*Principal
	bytes int // reckoned size of young
}

func newCache(limit int) *cache {
	return &cache{limit: limit, young: make(map[tokenSum]*Principal)}
}

// get gives the principal of the token with this sum, or nil. The caller checks
// its times.
func (c *cache) get(sum tokenSum) *Principal {
	c.mu.RLock()
	p := c.young[sum]
	aged := p == nil && c.old[sum] != nil
	c.mu.RUnlock()
	if !aged {
		return p
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if p = c.old[sum]; p != nil {
		c.put(sum, p)
	}
	return p
}

// add remembers p for the token with this sum.
func (c *cache) add(sum tokenSum, p *Principal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(sum, p)
}

// put writes to the young half; mu is held.
func (c *cache) put(sum tokenSum, p *Principal) {
	if _, known := c.young[sum]; known {
		return
	}
	size := p.tokenBytes + entryBytes
	if c.bytes+size > c.limit {
		c.old, c.young, c.bytes = c.young, make(map[tokenSum]*Principal), 0
	}
	c.young[sum] = p
	c.bytes += size
}
