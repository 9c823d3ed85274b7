package redisdb

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/gitstore/ledger"
)

// errHoldLost: the space is not held for the dump any more, so its moment is gone.
var errHoldLost = fmt.Errorf("%w: the dump was interrupted", ledger.ErrUnavailable)

// Dump implements ledger.Bulk. Redis has no snapshots: the space is held, which has
// every batch keep what stood under the keys that it changes. One dump at a time
// holds a space; another one waits for it.
func (d *DB) Dump(ctx context.Context, s ledger.Space) (ledger.Dump, error) {
	h := &dump{d: d, space: s, k: keysOf(s), id: uuid.NewString()}
	for {
		held, err := h.hold(ctx)
		if err != nil {
			return nil, err
		}
		if held {
			h.end = make(chan struct{})
			h.keeping.Go(h.keep)
			return h, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("dump %s: %w", s, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// dump reads a held space.
type dump struct {
	d     *DB
	space ledger.Space
	k     keys
	id    string
	state ledger.State

	closed  bool
	end     chan struct{} // closed to end keep
	keeping sync.WaitGroup
}

var _ ledger.Dump = (*dump)(nil)

func (h *dump) hold(ctx context.Context) (bool, error) {
	got, err := h.d.run(ctx, holdScript, "dump", h.space, []string{h.k.meta, h.k.before, h.k.beforeOrder}, h.id, h.d.opt.Hold.Milliseconds())
	if err != nil {
		return false, err
	}
	r := readReply(got)
	if r.err == nil && len(r.fields) == 0 {
		return false, fmt.Errorf("space %s: %w", h.space, ledger.ErrNotFound)
	}
	if r.string() == "B" {
		return false, r.err
	}
	at, seq, low := r.int(), r.int(), r.int()
	h.state = ledger.State{LastSeq: uint64(seq), Trimmed: uint64(max(low-1, 0)), At: fromMicros(at)}
	if r.err != nil {
		return false, fmt.Errorf("dump %s: %w", h.space, r.err)
	}
	return true, nil
}

// keep prolongs the hold while the dump is open, however slowly it is read. When this
// process dies the hold runs out.
func (h *dump) keep() {
	ctx := context.Background() // until Close
	t := time.NewTicker(h.d.opt.Hold / 4)
	defer t.Stop()
	for {
		select {
		case <-h.end:
			return
		case <-t.C:
		}
		if h.d.closed.Load() {
			return
		}
		_, _ = h.read(ctx, "P", 0) // a hold that is lost is told to who reads
	}
}

func (h *dump) State() ledger.State { return h.state }

// read asks for a part of the space.
func (h *dump) read(ctx context.Context, what string, from any) (*reply, error) {
	limited, cancel := h.d.limited(ctx, ledger.ChunkBytes, ledger.ChunkCount)
	defer cancel()
	got, err := h.d.runIn(ctx, limited, heldScript, "dump", h.space,
		[]string{h.k.values, h.k.order, h.k.log, h.k.meta, h.k.before, h.k.beforeOrder},
		h.id, h.d.opt.Hold.Milliseconds(), ledger.ChunkBytes, ledger.ChunkCount, what, from, h.state.LastSeq)
	if err != nil {
		return nil, err
	}
	r := readReply(got)
	if r.err == nil && len(r.fields) == 0 {
		return nil, fmt.Errorf("dump %s: %w", h.space, errHoldLost)
	}
	if kind := r.string(); kind != what || r.err != nil {
		return nil, fmt.Errorf("dump %s: %w", h.space, errors.Join(r.err, fmt.Errorf("script answered %q", kind)))
	}
	return r, nil
}

func (h *dump) Items(ctx context.Context, start string) ([]ledger.Item, string, error) {
	r, err := h.read(ctx, "K", start)
	if err != nil {
		return nil, "", err
	}
	now, before := part{full: r.int() == 1}, part{}
	now.fill(r.list())
	before.full = r.int() == 1
	before.fill(r.list())
	if err := errors.Join(r.err, now.err, before.err); err != nil {
		return nil, "", fmt.Errorf("dump %s: %w", h.space, err)
	}
	items, next := then(now, before)
	return items, next, nil
}

// part is a run of keys in byte order without gaps; full says that there may be more
// behind it.
type part struct {
	items []ledger.Item
	full  bool
	err   error
}

func (p *part) fill(r *reply) {
	for len(r.fields) > 0 && r.err == nil {
		p.items = append(p.items, ledger.Item{Key: r.string(), Value: r.bytes()})
	}
	p.err = r.err
}

// reaches reports whether p tells of key: it is not behind p's end.
func (p *part) reaches(key string) bool {
	return !p.full || key <= p.items[len(p.items)-1].Key
}

// then puts together what stood there when the space was held: what stands there
// now, but for the keys changed since what they had before. next is empty at the end.
func then(now, before part) (items []ledger.Item, next string) {
	a, b, last := now.items, before.items, ""
	for len(a) > 0 || len(b) > 0 {
		isNew := len(b) == 0 || len(a) > 0 && a[0].Key < b[0].Key
		it := ledger.Item{}
		switch {
		case isNew:
			it, a = a[0], a[1:]
		default:
			if len(a) > 0 && a[0].Key == b[0].Key {
				a = a[1:]
			}
			it, b = b[0], b[1:]
		}
		if !now.reaches(it.Key) || !before.reaches(it.Key) {
			break
		}
		last = it.Key
		switch {
		case isNew:
			items = append(items, it)
		case it.Value[0] == '+':
			items = append(items, ledger.Item{Key: it.Key, Value: it.Value[1:]})
		}
	}
	if now.full || before.full {
		next = last + "\x00"
	}
	return items, next
}

func (h *dump) Log(ctx context.Context, after uint64) ([]ledger.Entry, error) {
	if after >= h.state.LastSeq {
		return nil, nil
	}
	r, err := h.read(ctx, "L", after)
	if err != nil {
		return nil, err
	}
	entries, err := readEntries(r.list())
	if err := errors.Join(err, r.err); err != nil {
		return nil, fmt.Errorf("dump log of %s: %w", h.space, err)
	}
	return entries, nil
}

// Close lets the space go, also when the reader's own context has ended.
func (h *dump) Close() error {
	if h.closed {
		return nil
	}
	h.closed = true
	close(h.end)
	h.keeping.Wait()
	if h.d.closed.Load() {
		return nil // the hold runs out
	}
	_, err := h.d.run(context.Background(), unholdScript, "end dump of", h.space, []string{h.k.meta, h.k.before, h.k.beforeOrder}, h.id)
	return err
}
