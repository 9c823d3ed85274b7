package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// heat says how much of a repo is hot, as far as this process knows, and whether
// somebody is settling it.
type heat struct {
	objects, bytes atomic.Int64
	settling       atomic.Bool
	pauseUntil     atomic.Int64 // unix nanoseconds; after a failure
}

// settlePause keeps a repo that cannot be settled, as on a full disk, from copying
// its hot objects at every commit.
const settlePause = 5 * time.Second

// measureHeat counts what is hot when a repo is opened.
func (r *Repo) measureHeat(ctx context.Context) error {
	v, err := r.ledger.Peek(ctx, r.space)
	if err != nil {
		return fmt.Errorf("measure hot objects: %w", err)
	}
	defer v.Close()
	var objects, size int64
	for start := hotKeys; ; {
		page, err := v.Scan(ctx, hotKeys, start, ledger.BulkKeys)
		if err != nil {
			return fmt.Errorf("measure hot objects: %w", err)
		}
		for _, it := range page {
			objects++
			size += int64(len(it.Value))
		}
		if len(page) < ledger.BulkKeys {
			break
		}
		start = page[len(page)-1].Key + "\x00"
	}
	r.heat.objects.Store(objects)
	r.heat.bytes.Store(size)
	return nil
}

// warmed counts what a batch added and starts settling when that is enough.
func (r *Repo) warmed(objects, size int) {
	r.store.moves.Add(1)
	n := r.heat.objects.Add(int64(objects))
	b := r.heat.bytes.Add(int64(size))
	l := r.store.limits
	if n < int64(l.SettleObjects) && b < l.SettleBytes || time.Now().UnixNano() < r.heat.pauseUntil.Load() {
		return
	}
	end, err := r.store.begin()
	if err != nil {
		return // closing settles by itself
	}
	if !r.heat.settling.CompareAndSwap(false, true) {
		end()
		return
	}
	go func() {
		defer end()
		defer r.heat.settling.Store(false)
		// Settling outlives the request that made it due; Close ends it.
		err := r.orGone(r.settle(r.store.life))
		if err == nil || errors.Is(err, ErrRepoNotFound) || errors.Is(err, ErrClosed) {
			return
		}
		r.heat.pauseUntil.Store(time.Now().Add(settlePause).UnixNano())
		r.store.log.Error("settle", "repo", r.id, "err", err)
	}()
}

// Settle moves all hot objects into a pack. Reads go on meanwhile, writes too.
func (r *Repo) Settle(ctx context.Context) error {
	end, err := r.store.begin()
	if err != nil {
		return err
	}
	defer end()
	return r.orGone(r.settleAlone(ctx))
}

// settleAlone waits for a settling under way before it does its own.
func (r *Repo) settleAlone(ctx context.Context) error {
	for !r.heat.settling.CompareAndSwap(false, true) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	defer r.heat.settling.Store(false)
	return r.settle(ctx)
}

func (r *Repo) settleOnClose(ctx context.Context) error {
	if r.heat.objects.Load() == 0 {
		return nil
	}
	return r.settleAlone(ctx)
}

// settle settles once, again if a prune began while it did.
func (r *Repo) settle(ctx context.Context) error {
	for try := 1; ; try++ {
		if err := r.settleOnce(ctx); !genMoved(err) || try == doorTries {
			return err
		}
	}
}

// genMoved reports whether a batch was refused because a prune has begun.
func genMoved(err error) bool {
	var check *ledger.CheckError
	return errors.As(err, &check) && check.Key == genKey && check.Present != nil
}

// settleOnce writes a pack of the hot objects, registers it, and then takes the hot
// keys away in small batches. A reader that looks in between finds an object twice
// or, having looked into the packs too early, looks again.
func (r *Repo) settleOnce(ctx context.Context) error {
	start := time.Now()
	// What is counted now is in the view that is taken next. It is this that is
	// counted off in the end, and not what was deleted: an object that was written
	// twice is counted twice and deleted once.
	counted := struct{ objects, bytes int64 }{r.heat.objects.Load(), r.heat.bytes.Load()}
	taken, gen, info, err := r.packHot(ctx)
	if err != nil {
		return err
	}
	if len(taken) == 0 {
		r.heat.objects.Add(-counted.objects)
		r.heat.bytes.Add(-counted.bytes)
		return nil
	}
	if err := r.register(ctx, info, gen); err != nil {
		r.dropPack(ctx, info.Name, err)
		return fmt.Errorf("settle: %w", err)
	}
	r.addPack(info.Name)
	if err := r.coolDown(ctx, taken); err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	r.heat.objects.Add(-counted.objects)
	r.heat.bytes.Add(-counted.bytes)
	r.hots.drop()
	r.store.observe("settle", time.Since(start))
	return nil
}

// packHot copies what is hot into a pack: everything up to the log number at
// which the view was taken, so that the pack, with the older ones, lacks nothing.
func (r *Repo) packHot(ctx context.Context) (taken []ledger.Item, gen []byte, info packs.Info, err error) {
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return nil, nil, info, fmt.Errorf("settle: %w", err)
	}
	defer v.Close()
	if gen, err = v.Get(ctx, genKey); err != nil {
		return nil, nil, info, fmt.Errorf("settle: %w", err)
	}
	if taken, err = scanAll(ctx, v, hotKeys); err != nil || len(taken) == 0 {
		return nil, nil, info, err
	}
	w, err := r.dir.NewWriter(ctx)
	if err != nil {
		return nil, nil, info, fmt.Errorf("settle: %w", err)
	}
	defer w.Abort()
	w.Expect(len(taken))
	if err := addHot(w, taken); err != nil {
		return nil, nil, info, fmt.Errorf("settle: %w", err)
	}
	info, err = w.Finish()
	return taken, gen, info, err
}

func addHot(w *packs.Writer, items []ledger.Item) error {
	for _, it := range items {
		h, err := decodeHot(it.Value)
		if err != nil {
			return err
		}
		if err := w.AddEntry(hotOID(it.Key), packs.Type(h.typ), h.size, h.zdata); err != nil {
			return err
		}
	}
	return nil
}

func hotOID(key string) (oid refpolicy.OID) {
	copy(oid[:], strings.TrimPrefix(key, hotKeys))
	return oid
}

func (r *Repo) register(ctx context.Context, info packs.Info, gen []byte) error {
	rec := packRecord{Size: info.Size, Objects: info.Objects, Kind: "settled", State: packLive}
	_, err := r.applySure(ctx, ledger.Batch{
		Space:  r.space,
		Checks: []ledger.Check{ledger.Absent(packKey(info.Name)), ledger.Equal(genKey, gen)},
		Sets:   []ledger.Set{{Key: packKey(info.Name), Value: mustJSON(rec)}},
	})
	return err
}

// coolDown deletes settled hot keys, each only while it holds what was copied: a
// key that was written again meanwhile stays.
func (r *Repo) coolDown(ctx context.Context, items []ledger.Item) error {
	for len(items) > 0 {
		n, size := 0, 0
		for n < len(items) && n < ledger.BulkKeys/2 && size < ledger.MaxBatchBytes/4 {
			size += len(items[n].Value) + 64
			n++
		}
		if err := r.coolBatch(ctx, items[:n]); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}

func (r *Repo) coolBatch(ctx context.Context, items []ledger.Item) error {
	for len(items) > 0 {
		b := ledger.Batch{Space: r.space}
		for _, it := range items {
			b.Checks = append(b.Checks, ledger.Equal(it.Key, it.Value))
			b.Deletes = append(b.Deletes, it.Key)
		}
		_, err := r.ledger.Apply(ctx, b)
		var check *ledger.CheckError
		if !errors.As(err, &check) {
			return err
		}
		if items, err = r.unchanged(ctx, items); err != nil {
			return err
		}
	}
	return nil
}

// unchanged are the items that still stand in the ledger as they are.
func (r *Repo) unchanged(ctx context.Context, items []ledger.Item) ([]ledger.Item, error) {
	v, err := r.ledger.Peek(ctx, r.space)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	keys := make([]string, len(items))
	for i, it := range items {
		keys[i] = it.Key
	}
	present, err := v.GetMany(ctx, keys...)
	if err != nil {
		return nil, err
	}
	var same []ledger.Item
	for i, it := range items {
		if present[i] != nil && bytes.Equal(present[i], it.Value) {
			same = append(same, it)
		}
	}
	return same, nil
}
