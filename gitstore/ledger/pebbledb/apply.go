package pebbledb

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/headgate/headgate/gitstore/ledger"
)

// Apply implements ledger.Ledger. After ErrNoSpace nothing was written. A batch that
// is under way when the disk fills up waits until the ledger has been opened anew and
// says whether it was written.
func (db *DB) Apply(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
	start := time.Now()
	if err := b.Validate(); err != nil {
		return ledger.Result{}, err
	}
	if err := ctx.Err(); err != nil {
		return ledger.Result{}, err
	}
	r, f, did, err := db.step(ctx, &b)
	// A refusal tells what stands there, so it waits like a success.
	if werr := f.wait(ctx); werr != nil {
		if werr = db.outcome(ctx, f, did, werr); werr != nil {
			return ledger.Result{}, werr
		}
	}
	if err != nil {
		return ledger.Result{}, err
	}
	db.batches.Add(1)
	db.opt.OnBatch(time.Since(start), len(b.Deletes)+len(b.Sets)+len(b.Adds))
	return r, nil
}

// wait waits until f is durable. A nil flight is.
func (f *flight) wait(ctx context.Context) error {
	if over, err := f.landed(); over {
		return err
	}
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// step is the atomic step: it checks b and applies it. The answer, be it an
// error, may be given when the returned flight is durable.
func (db *DB) step(ctx context.Context, b *ledger.Batch) (ledger.Result, *flight, doing, error) {
	e, err := db.enterSoon(ctx)
	if err != nil {
		return ledger.Result{}, nil, wroteNothing, err
	}
	defer db.mu.RUnlock()
	if err := db.writable(e); err != nil {
		return ledger.Result{}, nil, wroteNothing, err
	}
	s := e.spaces.acquire(b.Space)
	defer e.spaces.release(s)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := e.load(s); err != nil {
		return ledger.Result{}, nil, wroteNothing, err
	}
	st := step{engine: e, space: s, batch: b, at: db.clock.now()}
	if b.ID != "" {
		if r, known, err := st.remembered(); known || err != nil {
			return r, s.pending, knewAnswer, err
		}
	}
	if err := st.check(); err != nil {
		return ledger.Result{}, s.pending, wroteNothing, err
	}
	r := ledger.Result{Seq: s.meta.last, At: timeOf(st.at)}
	if b.Log != nil {
		r.Seq++
	}
	if b.ID == "" && b.Log == nil && len(b.Deletes)+len(b.Sets)+len(b.Adds) == 0 {
		return r, s.pending, wroteNothing, nil
	}
	f, err := st.write(r)
	return r, f, wrote, err
}

// step is one batch at its atomic step, under its space's lock.
type step struct {
	engine *engine
	space  *space
	batch  *ledger.Batch
	at     int64   // the ledger's clock
	sums   []int64 // what the batch's Adds come to, filled when first needed
	finder *finder // while many checks are evaluated
}

// remembered finds the first answer to a batch id.
func (st *step) remembered() (ledger.Result, bool, error) {
	slot := slotOf(st.at)
	st.space.key = appendIDKey(st.space.key[:0], slot, st.space.name, st.batch.ID)
	if !st.engine.ids.mayHave(slot, st.engine.ids.idHash(st.space.key)) {
		return ledger.Result{}, false, nil
	}
	for _, sl := range [2]uint32{slot, slot - 1} {
		st.space.key = appendIDKey(st.space.key[:0], sl, st.space.name, st.batch.ID)
		v, err := get(st.engine.pdb, st.space.key)
		if err != nil {
			return ledger.Result{}, false, err
		}
		if v == nil {
			continue
		}
		seq, at, err := parseResult(v)
		if err != nil {
			return ledger.Result{}, false, err
		}
		if st.at-at <= ledger.BatchIDMemory.Microseconds() {
			return ledger.Result{Seq: seq, At: timeOf(at)}, true, nil
		}
	}
	return ledger.Result{}, false, nil
}

// addUp computes the counters after the batch's Adds.
func (st *step) addUp() error {
	if st.sums != nil {
		return nil
	}
	sums := make([]int64, len(st.batch.Adds))
	for i, a := range st.batch.Adds {
		n, err := st.counter(a.Key)
		if err != nil {
			return err
		}
		sums[i] = n + a.Delta
		if (a.Delta > 0) != (sums[i] > n) && a.Delta != 0 {
			return fmt.Errorf("%w: counter %q leaves 64 bits", ledger.ErrInvalidBatch, a.Key)
		}
	}
	st.sums = sums
	return nil
}

// counter reads the number under key; nothing there is 0.
func (st *step) counter(key string) (int64, error) {
	v, err := st.get(key)
	if err != nil || v == nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != string(v) {
		return 0, fmt.Errorf("%w: what stands under %q is no counter", ledger.ErrInvalidBatch, key)
	}
	return n, nil
}

// get reads a key among everything applied.
func (st *step) get(key string) ([]byte, error) {
	if st.finder != nil {
		return st.finder.value(key)
	}
	return st.engine.value(st.space, key)
}

// write applies the batch, which has passed its checks, and sends it on its flight.
func (st *step) write(r ledger.Result) (*flight, error) {
	if err := st.addUp(); err != nil {
		return nil, err
	}
	pb := st.engine.pdb.NewBatch()
	if err := st.fill(pb, r); err != nil {
		return nil, fmt.Errorf("build batch: %w", err)
	}
	m := meta{last: r.Seq, trimmed: st.space.meta.trimmed, at: st.at}
	f, err := st.engine.launch(st.space, pb, m, st.batch.Log != nil)
	st.renew(err == nil)
	return f, err
}

// renew brings what is remembered of the batch's keys up to date; what is not
// certain to have been written is forgotten.
func (st *step) renew(written bool) {
	known, key := st.engine.recent, st.space.key
	at := func(k string) []byte {
		key = appendKey(key[:0], st.space.base, k)
		return key
	}
	for _, k := range st.batch.Deletes {
		known.forget(at(k))
	}
	for i := range st.batch.Sets {
		if s := &st.batch.Sets[i]; written {
			known.put(at(s.Key), s.Value)
		} else {
			known.forget(at(s.Key))
		}
	}
	for i := range st.batch.Adds {
		known.forget(at(st.batch.Adds[i].Key))
	}
	st.space.key = key
}

func (st *step) fill(pb *pebble.Batch, r ledger.Result) error {
	b, base := st.batch, st.space.base
	key := st.space.key
	for _, k := range b.Deletes {
		key = appendKey(key[:0], base, k)
		if err := pb.Delete(key, nil); err != nil {
			return err
		}
	}
	for _, set := range inOrder(b.Sets) {
		key = appendKey(key[:0], base, set.Key)
		if err := pb.Set(key, set.Value, nil); err != nil {
			return err
		}
	}
	var text [20]byte
	for i := range b.Adds {
		key = appendKey(key[:0], base, b.Adds[i].Key)
		if err := pb.Set(key, strconv.AppendInt(text[:0], st.sums[i], 10), nil); err != nil {
			return err
		}
	}
	if b.Log != nil {
		key = appendLogKey(key[:0], base, r.Seq)
		op := pb.SetDeferred(len(key), entryHead+len(b.Log))
		copy(op.Key, key)
		binary.BigEndian.PutUint64(op.Value, uint64(st.at))
		copy(op.Value[entryHead:], b.Log)
		if err := op.Finish(); err != nil {
			return err
		}
	}
	st.space.key = key
	return st.remember(pb, r)
}

// remember notes the batch's id, and drops the ids of slots whose time is over
// when it is the first to come to a new slot.
func (st *step) remember(pb *pebble.Batch, r ledger.Result) error {
	if st.batch.ID == "" {
		return nil
	}
	slot := slotOf(st.at)
	if swept := st.engine.swept.Load(); swept < slot && st.engine.swept.CompareAndSwap(swept, slot) {
		if err := pb.DeleteRange(appendSlot(nil, 0), appendSlot(nil, slot-1), nil); err != nil {
			return err
		}
	}
	st.space.key = appendIDKey(st.space.key[:0], slot, st.space.name, st.batch.ID)
	st.engine.ids.add(slot, st.engine.ids.idHash(st.space.key))
	var v [resultBytes]byte
	putResult(v[:], r.Seq, st.at)
	return pb.Set(st.space.key, v[:], nil)
}

// launch applies pb together with m, the space's new meta, without waiting for the
// sync. The space's lock is held.
func (e *engine) launch(s *space, pb *pebble.Batch, m meta, logged bool) (*flight, error) {
	key := append(append(s.key[:0], metaPrefix), s.name...)
	s.key = key
	op := pb.SetDeferred(len(key), metaBytes)
	copy(op.Key, key)
	m.put(op.Value)
	if err := op.Finish(); err != nil {
		return nil, fmt.Errorf("build batch: %w", err)
	}
	return e.launchBare(s, pb, m, logged)
}

// launchBare is launch for a batch that leaves the space without a meta key.
func (e *engine) launchBare(s *space, pb *pebble.Batch, m meta, logged bool) (*flight, error) {
	if err := e.pdb.ApplyNoSyncWait(pb, pebble.Sync); err != nil {
		return nil, fmt.Errorf("%w: apply batch: %w", ledger.ErrUnavailable, err)
	}
	f := &flight{batch: pb, engine: e, space: s, logged: logged, before: s.meta, meta: m, done: make(chan struct{})}
	s.meta, s.pending = m, f
	e.spaces.hold(s)
	e.flights <- f
	return f, nil
}
