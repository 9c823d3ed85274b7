package packs

import (
	"container/list"
	"sync"
)

// A BaseCache keeps decoded delta bases within a budget of bytes, the longest
// unused going first. It may be shared by all Dirs of a server.
type BaseCache struct {
	budget int64

	mu   sync.Mutex // guards the fields below
	used int64
	all  map[baseKey]*list.Element
	lru  list.List // of *base, the latest used in front
}

// baseKey: an open pack is one instance, so a pack that is closed and opened
// again never finds what was decoded from an earlier file of that name.
type baseKey struct {
	pack *Pack
	off  int64
}

type base struct {
	key  baseKey
	typ  Type
	data []byte // read-only once it is here
}

// baseOverhead is what an entry costs beside its bytes, roughly.
const baseOverhead = 160

// NewBaseCache makes a cache that keeps at most budget bytes; 0 keeps nothing.
func NewBaseCache(budget int64) *BaseCache {
	return &BaseCache{budget: budget, all: make(map[baseKey]*list.Element)}
}

func (c *BaseCache) get(k baseKey) (*base, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.all[k]
	if !ok {
		return nil, false
	}
	c.lru.MoveToFront(e)
	return e.Value.(*base), true
}

// put keeps data, which nobody may change any more. One object never takes more
// than a quarter of the budget.
func (c *BaseCache) put(k baseKey, typ Type, data []byte) {
	cost := int64(len(data)) + baseOverhead
	if cost > c.budget/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.all[k]; ok {
		return
	}
	c.all[k] = c.lru.PushFront(&base{key: k, typ: typ, data: data})
	c.used += cost
	for c.used > c.budget {
		c.remove(c.lru.Back())
	}
}

func (c *BaseCache) remove(e *list.Element) {
	b := c.lru.Remove(e).(*base)
	delete(c.all, b.key)
	c.used -= int64(len(b.data)) + baseOverhead
}

// dropPack forgets everything of a pack that is closed.
func (c *BaseCache) dropPack(p *Pack) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.lru.Front(); e != nil; {
		next := e.Next()
		if e.Value.(*base).key.pack == p {
			c.remove(e)
		}
		e = next
	}
}
