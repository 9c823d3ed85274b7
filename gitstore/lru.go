package gitstore

import (
	"container/list"
	"sync"
)

// lru is a cache bounded by the sum of its entries' costs. It is safe for concurrent use.
type lru[K comparable, V any] struct {
	mu    sync.Mutex // guards all below
	max   int64
	cost  int64
	order *list.List // front: used last
	items map[K]*list.Element
}

type lruEntry[K comparable, V any] struct {
	key   K
	value V
	cost  int64
}

func newLRU[K comparable, V any](limit int64) *lru[K, V] {
	return &lru[K, V]{max: limit, order: list.New(), items: map[K]*list.Element{}}
}

func (c *lru[K, V]) get(k K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.items[k]
	if !ok {
		return v, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*lruEntry[K, V]).value, true
}

// put keeps v under k, throwing out what was not used for longest. An entry that
// would take more than a quarter of the cache is not kept.
func (c *lru[K, V]) put(k K, v V, cost int64) {
	if cost > c.max/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.items[k]; ok {
		c.remove(e)
	}
	c.items[k] = c.order.PushFront(&lruEntry[K, V]{k, v, cost})
	c.cost += cost
	for c.cost > c.max {
		c.remove(c.order.Back())
	}
}

// drop forgets what is kept under k.
func (c *lru[K, V]) drop(k K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.items[k]; ok {
		c.remove(e)
	}
}

func (c *lru[K, V]) remove(e *list.Element) {
	entry := c.order.Remove(e).(*lruEntry[K, V])
	delete(c.items, entry.key)
	c.cost -= entry.cost
}
