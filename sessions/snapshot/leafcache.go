package snapshot

import (
	"container/list"
	"context"
	"sync"
)

const (
	cachedLeaves = 2_048 // of about 14 KiB each
	cachedImages = 256
)

// An lru keeps the values that were asked for last. It is safe for concurrent use.
type lru[K comparable, V any] struct {
	most int

	mu    sync.Mutex // guards what follows
	order *list.List // of *lruEntry, the newest first
	have  map[K]*list.Element
}

type lruEntry[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](most int) *lru[K, V] {
	return &lru[K, V]{most: most, order: list.New(), have: map[K]*list.Element{}}
}

func (c *lru[K, V]) get(key K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.have[key]
	if !ok {
		return v, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*lruEntry[K, V]).value, true
}

func (c *lru[K, V]) put(key K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.have[key]; ok {
		return
	}
	c.have[key] = c.order.PushFront(&lruEntry[K, V]{key, v})
	for c.order.Len() > c.most {
		last := c.order.Back()
		c.order.Remove(last)
		delete(c.have, last.Value.(*lruEntry[K, V]).key)
	}
}

func (c *lru[K, V]) drop(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.have[key]; ok {
		c.order.Remove(e)
		delete(c.have, key)
	}
}

// A leafKey names a leaf by its tree, which never changes.
type leafKey struct {
	repo string
	tree OID
	last bool // the last of a paged part has its own number of chunks
}

// cachedLeaf is leaf n of a part, from the cache if it is there.
func (k *Keeper) cachedLeaf(ctx context.Context, repo Repo, x *partIndex, n int) (storedLeaf, error) {
	if x.trees[n].IsZero() {
		return zeroLeaf(x.part, n), nil
	}
	key := leafKey{repo.ID().ID, x.trees[n], n == len(x.trees)-1}
	if l, ok := k.leaves.get(key); ok && x.fits(n, l) == nil {
		return l, nil
	}
	l, _, err := x.leaf(ctx, repo, n)
	if err == nil {
		k.leaves.put(key, l)
	}
	return l, err
}
