package redisdb

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/gitstore/ledger"
)

// view reads a space afresh with each call; one call is one command or one script
// and so sees one moment.
type view struct {
	d     *DB
	space ledger.Space
	k     keys
}

// Read opens a view. It asks nothing: Redis answers no read before what the read
// saw is synced (see the package's comment).
func (d *DB) Read(ctx context.Context, s ledger.Space) (ledger.View, error) {
	if d.closed.Load() {
		return nil, ledger.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open view of %s: %w", s, err)
	}
	return &view{d: d, space: s, k: keysOf(s)}, nil
}

// Peek is Read: Redis shows nothing that is not durable.
func (d *DB) Peek(ctx context.Context, s ledger.Space) (ledger.View, error) { return d.Read(ctx, s) }

// ReadKeys implements ledger.Ledger.
func (d *DB) ReadKeys(ctx context.Context, s ledger.Space, keys ...string) ([][]byte, error) {
	v, err := d.Read(ctx, s)
	if err != nil {
		return nil, err
	}
	return v.GetMany(ctx, keys...)
}

// PeekKeys is ReadKeys, as Peek is Read.
func (d *DB) PeekKeys(ctx context.Context, s ledger.Space, keys ...string) ([][]byte, error) {
	return d.ReadKeys(ctx, s, keys...)
}

func (v *view) Close() error { return nil }

func (v *view) Get(ctx context.Context, key string) ([]byte, error) {
	if v.d.closed.Load() {
		return nil, ledger.ErrClosed
	}
	limited, cancel := v.d.limited(ctx, 0, 0)
	defer cancel()
	cmd := redis.NewStringCmd(limited, "hget", v.k.values, key)
	err := v.d.reads.ask(limited, cmd, len(key))
	if errors.Is(err, redis.Nil) {
		return nil, ledger.ErrNotFound
	}
	if err != nil {
		return nil, v.d.fail(ctx, "get key in", v.space, err)
	}
	return cmd.Bytes()
}

func (v *view) GetMany(ctx context.Context, keys ...string) ([][]byte, error) {
	if v.d.closed.Load() {
		return nil, ledger.ErrClosed
	}
	if len(keys) == 0 {
		return nil, nil
	}
	limited, cancel := v.d.limited(ctx, 0, len(keys))
	defer cancel()
	cmd, size := getMany(limited, v.k, keys)
	if err := v.d.reads.ask(limited, cmd, size); err != nil {
		return nil, v.d.fail(ctx, "get keys in", v.space, err)
	}
	return valuesOf(cmd), nil
}

// getMany is the command that reads keys, and about its size.
func getMany(ctx context.Context, k keys, names []string) (cmd *redis.SliceCmd, size int) {
	args := make([]any, 2, 2+len(names))
	args[0], args[1] = "hmget", k.values
	for _, key := range names {
		args = append(args, key)
		size += len(key)
	}
	return redis.NewSliceCmd(ctx, args...), size
}

func valuesOf(cmd *redis.SliceCmd) [][]byte {
	got := cmd.Val()
	values := make([][]byte, len(got))
	for i, g := range got {
		if s, ok := g.(string); ok {
			values[i] = []byte(s)
		}
	}
	return values
}

func (v *view) Scan(ctx context.Context, prefix, start string, limit int) ([]ledger.Item, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("scan %s: limit %d is not positive", v.space, limit)
	}
	low, high := bounds(prefix, start)
	return v.items(ctx, low, high, limit)
}

func (v *view) Range(ctx context.Context, from, to string, limit int) ([]ledger.Item, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("read range of %s: limit %d is not positive", v.space, limit)
	}
	return v.items(ctx, "["+from, "("+to, limit)
}

// items are those between two ends as ZRANGEBYLEX takes them.
func (v *view) items(ctx context.Context, low, high string, limit int) ([]ledger.Item, error) {
	limited, cancel := v.d.limited(ctx, 0, limit)
	defer cancel()
	got, err := v.d.runIn(ctx, limited, scanScript, "scan", v.space, []string{v.k.values, v.k.order}, low, high, limit)
	if err != nil {
		return nil, err
	}
	r := readReply(got)
	items := make([]ledger.Item, 0, len(r.fields)/2)
	for len(r.fields) > 0 && r.err == nil {
		items = append(items, ledger.Item{Key: r.string(), Value: r.bytes()})
	}
	if r.err != nil {
		return nil, fmt.Errorf("scan %s: %w", v.space, r.err)
	}
	return items, nil
}

func (v *view) Log(ctx context.Context, after uint64, limit int) ([]ledger.Entry, error) {
	if limit <= 0 {
		return nil, fmt.Errorf("read log of %s: limit %d is not positive", v.space, limit)
	}
	limited, cancel := v.d.limited(ctx, 0, limit)
	defer cancel()
	had := v.d.known.told(v.space)
	got, err := v.d.runIn(ctx, limited, logScript, "read log of", v.space, []string{v.k.log, v.k.meta}, min(after, maxSeq), limit)
	if err != nil {
		return nil, err
	}
	r := readReply(got)
	low, st := uint64(r.int()), state{inc: r.int(), ver: r.int(), at: r.int()}
	if r.err == nil {
		v.d.notice(v.space, had, st)
	}
	entries, err := readEntries(r.list())
	if err != nil || r.err != nil {
		return nil, fmt.Errorf("read log of %s: %w", v.space, errors.Join(err, r.err))
	}
	if after < maxSeq && after+1 < low {
		return nil, fmt.Errorf("read log of %s after %d: first kept is %d: %w", v.space, after, low, ledger.ErrLogTrimmed)
	}
	if n := len(entries); n > 0 {
		st.seq, st.logAt = entries[n-1].Seq, entries[n-1].At.UnixMicro()
	}
	v.d.known.read(v.space, st, len(entries) > 0)
	return entries, nil
}

// readEntries reads what XRANGE gives: {"<seq>-0", {"a", at, "d", data}}, ...
func readEntries(r *reply) ([]ledger.Entry, error) {
	entries := make([]ledger.Entry, 0, len(r.fields))
	for len(r.fields) > 0 && r.err == nil {
		one := r.list()
		id := one.string()
		fields := one.list()
		fields.next()
		at := fields.string()
		fields.next()
		data := fields.bytes()
		if fields.err != nil {
			return nil, fields.err
		}
		seq, err := strconv.ParseUint(strings.TrimSuffix(id, "-0"), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("log number: %w", err)
		}
		micros, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("time of log entry %d: %w", seq, err)
		}
		entries = append(entries, ledger.Entry{Seq: seq, At: fromMicros(micros), Data: data})
	}
	return entries, r.err
}

func (v *view) LastSeq(ctx context.Context) (uint64, error) {
	if v.d.closed.Load() {
		return 0, ledger.ErrClosed
	}
	limited, cancel := v.d.limited(ctx, 0, 0)
	defer cancel()
	had := v.d.known.told(v.space)
	got, err := v.d.client.HMGet(limited, v.k.meta, metaFields...).Result()
	if err != nil {
		return 0, v.d.fail(ctx, "read last log number of", v.space, err)
	}
	st, err := readMeta(got)
	if err != nil || st.inc == 0 { // no such space, or one that was dropped
		return 0, err
	}
	v.d.notice(v.space, had, st)
	v.d.known.read(v.space, st, false)
	return st.seq, nil
}

// metaFields are what readMeta reads; what follows the first four may be absent.
var metaFields = []string{"inc", "ver", "at", "seq", "syncs"}

// readMeta reads a space's numbers; the zero state is for a space that does not exist.
func readMeta(got []any) (state, error) {
	numbers := make([]int64, len(metaFields))
	for i, g := range got {
		s, ok := g.(string)
		if !ok && i < 4 {
			return state{}, nil
		}
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return state{}, fmt.Errorf("read numbers of a space: %w", err)
		}
		numbers[i] = n
	}
	return state{inc: numbers[0], ver: numbers[1], at: numbers[2], seq: uint64(numbers[3]), syncs: numbers[4]}, nil
}
