package pebbledb

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
)

// history is a load on a ledger that remembers all it was ever told. In each
// space batch n moves "head" from n-1 to n, sets "k/<n>" and logs "<n>" as entry n,
// so that whoever was told of n, by whatever road, was told of 1 to n.
type history struct {
	spaces []ledger.Space
	told   []atomic.Uint64 // per space: the greatest n that anybody was told of

	// by counts what was told by each road, so that a test knows it has used them all.
	acked, read, looked, refused, watched, repeated atomic.Uint64
}

func newHistory(spaces int) *history {
	h := &history{told: make([]atomic.Uint64, spaces)}
	for i := range spaces {
		h.spaces = append(h.spaces, ledger.RepoSpace(fmt.Sprint("h", i)))
	}
	return h
}

func (h *history) tell(i int, n uint64, road *atomic.Uint64) {
	for {
		old := h.told[i].Load()
		if n <= old || h.told[i].CompareAndSwap(old, n) {
			break
		}
	}
	road.Add(1)
}

// snapshot is what has been told so far.
func (h *history) snapshot() []uint64 {
	told := make([]uint64, len(h.told))
	for i := range h.told {
		told[i] = h.told[i].Load()
	}
	return told
}

func number(n uint64) []byte { return strconv.AppendUint(nil, n, 10) }

func move(s ledger.Space, n uint64) ledger.Batch {
	check := ledger.Absent("head")
	if n > 1 {
		check = ledger.Equal("head", number(n-1))
	}
	return ledger.Batch{
		ID: fmt.Sprint("id", n), Space: s, Checks: []ledger.Check{check},
		Sets: []ledger.Set{{Key: "head", Value: number(n)}, {Key: fmt.Sprintf("k/%d", n), Value: make([]byte, 100)}},
		Log:  number(n),
	}
}

// run loads l until ctx ends; errors that a failing disk may give are borne.
func (h *history) run(ctx context.Context, t *testing.T, l ledger.Ledger, writers int) *sync.WaitGroup {
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() { h.write(ctx, t, l, w%len(h.spaces)) })
	}
	for i := range h.spaces {
		wg.Go(func() { h.reader(ctx, t, l, i) })
		wg.Go(func() { h.keyReader(ctx, t, l, i) })
		wg.Go(func() { h.watcher(ctx, t, l, i) })
	}
	return &wg
}

// bearable says whether err may come from a ledger whose disk fails.
func bearable(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, ledger.ErrNoSpace) || errors.Is(err, ledger.ErrClosed)
}

func (h *history) write(ctx context.Context, t *testing.T, l ledger.Ledger, i int) {
	for n := uint64(1); ctx.Err() == nil; {
		b := move(h.spaces[i], n)
		if rand.IntN(2) == 0 {
			b.ID = "" // a rival's move then is a refusal and not a repetition
		}
		r, err := l.Apply(ctx, b)
		var ce *ledger.CheckError
		switch {
		case err == nil:
			if r.Seq != n {
				t.Errorf("Apply of move %d has number %d", n, r.Seq)
				return
			}
			h.tell(i, n, &h.acked)
			if rand.IntN(4) == 0 {
				h.again(ctx, t, l, i, n)
			}
			n++
		case errors.As(err, &ce):
			present, _ := strconv.ParseUint(string(ce.Present), 10, 64) // nothing there is 0
			h.tell(i, present, &h.refused)
			n = present + 1
		case !bearable(ctx, err):
			t.Errorf("Apply of move %d = %v", n, err)
			return
		}
	}
}

// again sends a batch once more, as a client does that lost the answer.
func (h *history) again(ctx context.Context, t *testing.T, l ledger.Ledger, i int, n uint64) {
	n += uint64(rand.IntN(2)) // perhaps one that another writer has in flight
	r, err := l.Apply(ctx, move(h.spaces[i], n))
	var ce *ledger.CheckError
	if err == nil {
		h.tell(i, r.Seq, &h.repeated)
	} else if !errors.As(err, &ce) && !bearable(ctx, err) {
		t.Errorf("Apply of move %d again = %v", n, err)
	}
}

func (h *history) reader(ctx context.Context, t *testing.T, l ledger.Ledger, i int) {
	for ctx.Err() == nil {
		v, err := l.Read(ctx, h.spaces[i])
		if err != nil {
			if !bearable(ctx, err) {
				t.Errorf("Read = %v", err)
				return
			}
			continue
		}
		head, err := v.Get(ctx, "head")
		if err == nil {
			n, _ := strconv.ParseUint(string(head), 10, 64)
			h.tell(i, n, &h.read)
		} else if !errors.Is(err, ledger.ErrNotFound) && !bearable(ctx, err) {
			t.Errorf("Get = %v", err)
		}
		_ = v.Close()
	}
}

// keyReader is reader without a view.
func (h *history) keyReader(ctx context.Context, t *testing.T, l ledger.Ledger, i int) {
	for ctx.Err() == nil {
		got, err := l.ReadKeys(ctx, h.spaces[i], "head")
		switch {
		case err == nil && got[0] != nil:
			n, _ := strconv.ParseUint(string(got[0]), 10, 64)
			h.tell(i, n, &h.looked)
		case err != nil && !bearable(ctx, err):
			t.Errorf("ReadKeys = %v", err)
			return
		}
	}
}

func (h *history) watcher(ctx context.Context, t *testing.T, l ledger.Ledger, i int) {
	ch, err := l.Watch(ctx, h.spaces[i])
	if err != nil {
		t.Errorf("Watch = %v", err)
		return
	}
	var last uint64
	for range ch {
		v, err := l.Read(ctx, h.spaces[i])
		if err != nil {
			continue
		}
		if entries, err := v.Log(ctx, last, 1000); err == nil && len(entries) > 0 {
			if entries[0].Seq != last+1 {
				t.Errorf("the log goes on with number %d after %d", entries[0].Seq, last)
			}
			last = entries[len(entries)-1].Seq
			h.tell(i, last, &h.watched)
		}
		_ = v.Close()
	}
}

func (h *history) allRoads(t *testing.T) {
	t.Helper()
	for name, n := range map[string]uint64{
		"acknowledged": h.acked.Load(), "read": h.read.Load(), "read without a view": h.looked.Load(), "refused": h.refused.Load(), "watched": h.watched.Load(), "repeated": h.repeated.Load(),
	} {
		if n == 0 {
			t.Errorf("nothing was told by the road %q: the test proves nothing of it", name)
		}
	}
}

// holds wants everything told to be in l, and l to be whole.
func (h *history) holds(t *testing.T, l ledger.Ledger, told []uint64) {
	t.Helper()
	ctx := context.Background()
	for i, s := range h.spaces {
		v, err := l.Read(ctx, s)
		if err != nil {
			t.Fatalf("Read(%q) = %v, want a view", s, err)
		}
		var head uint64
		if value, err := v.Get(ctx, "head"); err == nil {
			head, _ = strconv.ParseUint(string(value), 10, 64)
		}
		if head < told[i] {
			t.Fatalf("space %q is at %d, but somebody was told of %d", s, head, told[i])
		}
		entries, err := v.Log(ctx, 0, int(head)+10)
		if err != nil || len(entries) != int(head) {
			t.Fatalf("space %q at %d has %d log entries, %v", s, head, len(entries), err)
		}
		for j, en := range entries {
			if en.Seq != uint64(j+1) || string(en.Data) != string(number(en.Seq)) {
				t.Fatalf("space %q: log entry %d is number %d with %q", s, j+1, en.Seq, en.Data)
			}
		}
		keys, err := v.Scan(ctx, "k/", "", int(head)+10)
		if err != nil || len(keys) != int(head) {
			t.Fatalf("space %q at %d has %d keys, %v: a batch is not whole", s, head, len(keys), err)
		}
		if err := v.Close(); err != nil {
			t.Fatalf("View.Close = %v", err)
		}
	}
}
