package redisdb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/gitstore/ledger"
)

var _ ledger.Bulk = (*DB)(nil)

// loadingKey exists while the ledger is being loaded.
const loadingKey = "headgate:loading"

var errHalfLoaded = fmt.Errorf("%w: unless one is under way, empty this Redis database (FLUSHDB), then begin again", ledger.ErrUnfinished)

// beginLoad refuses to open a ledger whose loading was not finished, and with
// Options.Loading one that holds anything.
func (d *DB) beginLoad(ctx context.Context) error {
	limited, cancel := d.limited(ctx, 0, 0)
	defer cancel()
	switch err := d.client.Get(limited, loadingKey).Err(); {
	case err == nil:
		return errHalfLoaded
	case !errors.Is(err, redis.Nil):
		return d.fail(ctx, "look into", "redis", err)
	case !d.opt.Loading:
		return nil
	}
	if err := d.Spaces(ctx, func(s ledger.Space) error { return fmt.Errorf("%w: it has a space %s", ledger.ErrNotEmpty, s) }); err != nil {
		return err
	}
	set, err := d.client.SetNX(limited, loadingKey, "1", 0).Result()
	if err != nil {
		return d.fail(ctx, "begin to load", "redis", err)
	}
	if !set {
		return errHalfLoaded // somebody else has just begun
	}
	return nil
}

// FinishLoad implements ledger.Bulk.
func (d *DB) FinishLoad(ctx context.Context) error {
	limited, cancel := d.limited(ctx, 0, 0)
	defer cancel()
	return d.fail(ctx, "finish loading", "redis", d.client.Del(limited, loadingKey).Err())
}

// Spaces implements ledger.Bulk. Redis may tell a key twice; it is passed on once.
func (d *DB) Spaces(ctx context.Context, fn func(ledger.Space) error) error {
	var all []ledger.Space
	seen := map[ledger.Space]bool{}
	var mu sync.Mutex // guards all and seen: the servers of a cluster are asked at once
	scan := func(ctx context.Context, c redis.Cmdable) error {
		return d.scanSpaces(ctx, c, func(s ledger.Space) {
			mu.Lock()
			defer mu.Unlock()
			if !seen[s] {
				seen[s] = true
				all = append(all, s)
			}
		})
	}
	if err := d.eachServer(ctx, scan); err != nil {
		return d.fail(ctx, "list spaces in", "redis", err)
	}
	for _, s := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(s); err != nil {
			return err
		}
	}
	return nil
}

// eachServer calls do with every server that holds a part of the ledger, at once.
func (d *DB) eachServer(ctx context.Context, do func(context.Context, redis.Cmdable) error) error {
	if cluster, ok := d.client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return do(ctx, node) })
	}
	return do(ctx, d.client)
}

func (d *DB) scanSpaces(ctx context.Context, c redis.Cmdable, found func(ledger.Space)) error {
	for cursor := uint64(0); ; {
		if d.closed.Load() {
			return ledger.ErrClosed
		}
		limited, cancel := d.limited(ctx, 0, 1000)
		keys, next, err := c.Scan(limited, cursor, "headgate:{*}:meta", 1000).Result()
		cancel()
		if err != nil {
			return err
		}
		for _, key := range keys {
			if s, ok := spaceOfMeta(key); ok {
				found(s)
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// spaceOfMeta is the space whose meta key this is. The key of an answer may look
// like one to Redis, since a batch's id may hold anything.
func spaceOfMeta(key string) (ledger.Space, bool) {
	tag, rest, ok := strings.Cut(strings.TrimPrefix(key, "headgate:{"), "}")
	if !ok || rest != ":meta" {
		return "", false
	}
	return ledger.Space(tagUnescape.Replace(tag)), true
}

var tagUnescape = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")

// Load implements ledger.Bulk. The space begins a new incarnation: a node that knew
// it as it was before writes no more to it.
func (d *DB) Load(ctx context.Context, s ledger.Space, c ledger.Chunk) error {
	if err := s.Validate(); err != nil {
		return err
	}
	k := keysOf(s)
	args, size := loadArgs(c)
	limited, cancel := d.limited(ctx, size, len(args))
	defer cancel()
	got, err := d.runIn(ctx, limited, loadScript, "load", s, []string{k.values, k.order, k.log, k.meta, k.dropped}, args...)
	if err != nil {
		return err
	}
	if got != "L" {
		return fmt.Errorf("%w: space %s", ledger.ErrNotEmpty, s)
	}
	if c.State != nil {
		d.told(c.State.At.UnixMicro())
	}
	return nil
}

// loadArgs lays a chunk out as load.lua reads it and counts its bytes.
func loadArgs(c ledger.Chunk) (args []any, size int) {
	last, at, seq, low := "0", int64(0), uint64(0), uint64(0)
	if st := c.State; st != nil {
		last, at, seq = "1", st.At.UnixMicro(), st.LastSeq
		if st.Trimmed > 0 {
			low = st.Trimmed + 1
		}
	}
	args = append(args, len(c.Items), len(c.Log), last, at, seq, low)
	for _, it := range c.Items {
		args = append(args, it.Key, it.Value)
		size += len(it.Key) + len(it.Value)
	}
	for _, en := range c.Log {
		args = append(args, en.Seq, en.At.UnixMicro(), en.Data)
		size += len(en.Data)
	}
	return args, size
}

// ClearLoad takes away what a loading that failed has written, and ends it: the
// ledger is as empty as it was found. It is for a DB opened with Options.Loading.
func (d *DB) ClearLoad(ctx context.Context) error {
	if !d.opt.Loading {
		return fmt.Errorf("clear redis: %w: it was not opened to be loaded", ledger.ErrNotEmpty)
	}
	if err := d.eachServer(ctx, d.clearServer); err != nil {
		return d.fail(ctx, "clear", "redis", err)
	}
	return d.FinishLoad(ctx)
}

// clearServer unlinks all keys of spaces but those that remember a drop.
func (d *DB) clearServer(ctx context.Context, c redis.Cmdable) error {
	for cursor := uint64(0); ; {
		limited, cancel := d.limited(ctx, 0, 1000)
		keys, next, err := c.Scan(limited, cursor, "headgate:{*", 1000).Result()
		for i := 0; i < len(keys) && err == nil; i++ {
			if !strings.HasSuffix(keys[i], "}:dropped") {
				err = c.Unlink(limited, keys[i]).Err() // one by one: a cluster takes no others together
			}
		}
		cancel()
		if err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}
