package ledgertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/gitstore/ledger"
)

// model is the ledger's contract for one space in the plainest form.
type model struct {
	keys    map[string]string
	log     []string
	trimmed uint64
	ids     map[string]ledger.Result
}

func newModel() *model {
	return &model{keys: map[string]string{}, ids: map[string]ledger.Result{}}
}

// refusal is the key and value a batch must be refused with.
type refusal struct {
	key     string
	present []byte
}

func (m *model) present(key string) []byte {
	v, ok := m.keys[key]
	if !ok {
		return nil
	}
	return []byte(v)
}

func (m *model) number(key string) int64 {
	n, _ := strconv.ParseInt(m.keys[key], 10, 64) // an absent key counts as 0
	return n
}

// refuse returns the first check of b that does not hold, or nil.
func (m *model) refuse(b ledger.Batch) *refusal {
	for _, c := range b.Checks {
		present, ok := m.keys[c.Key]
		switch c.Kind {
		case ledger.CheckEqual:
			if !ok || present != string(c.Value) {
				return &refusal{c.Key, m.present(c.Key)}
			}
		case ledger.CheckAbsent:
			if ok {
				return &refusal{c.Key, m.present(c.Key)}
			}
		case ledger.CheckAbsentPrefix:
			if items := m.scan(c.Key, "", 1); len(items) > 0 {
				return &refusal{items[0], m.present(items[0])}
			}
		case ledger.CheckAtMost:
			n := m.number(c.Key)
			for _, a := range b.Adds {
				if a.Key == c.Key {
					n += a.Delta
				}
			}
			if n > c.Max {
				return &refusal{c.Key, strconv.AppendInt(nil, n, 10)}
			}
		}
	}
	return nil
}

func (m *model) apply(b ledger.Batch) {
	for _, k := range b.Deletes {
		delete(m.keys, k)
	}
	for _, s := range b.Sets {
		m.keys[s.Key] = string(s.Value)
	}
	for _, a := range b.Adds {
		m.keys[a.Key] = strconv.FormatInt(m.number(a.Key)+a.Delta, 10)
	}
	if b.Log != nil {
		m.log = append(m.log, string(b.Log))
	}
}

func (m *model) scan(prefix, start string, limit int) []string {
	var keys []string
	for _, k := range slices.Sorted(maps.Keys(m.keys)) {
		if strings.HasPrefix(k, prefix) && k >= start && len(keys) < limit {
			keys = append(keys, k)
		}
	}
	return keys
}

// The model's keys are few, so that batches meet; counters have names of their own.
var (
	modelKey     = rapid.SampledFrom([]string{"a", "a\x00", "a/", "a/b", "a/b/c", "a0", "b", "\x00", "%", "{}", "{}/x", "\xff", "\xff\xff"})
	modelCounter = rapid.SampledFrom([]string{"n/1", "n/2", "n/\xff"})
	modelValue   = rapid.SampledFrom([]string{"", "1", "x", "\x00\xff", "long value with {braces} and %s"})
)

func drawCheck(t *rapid.T) ledger.Check {
	switch rapid.IntRange(0, 3).Draw(t, "check") {
	case 0:
		return ledger.Equal(modelKey.Draw(t, "key"), []byte(modelValue.Draw(t, "value")))
	case 1:
		return ledger.Absent(modelKey.Draw(t, "key"))
	case 2:
		return ledger.AbsentPrefix(modelKey.Draw(t, "key"))
	}
	return ledger.AtMost(modelCounter.Draw(t, "key"), rapid.Int64Range(-5, 20).Draw(t, "most"))
}

func drawBatch(t *rapid.T, s ledger.Space) ledger.Batch {
	b := ledger.Batch{Space: s}
	for range rapid.IntRange(0, 2).Draw(t, "checks") {
		b.Checks = append(b.Checks, drawCheck(t))
	}
	for i, k := range rapid.SliceOfNDistinct(modelKey, 0, 4, rapid.ID).Draw(t, "keys") {
		if i%3 == 0 {
			b.Deletes = append(b.Deletes, k)
		} else {
			b.Sets = append(b.Sets, ledger.Set{Key: k, Value: []byte(modelValue.Draw(t, "value"))})
		}
	}
	for _, k := range rapid.SliceOfNDistinct(modelCounter, 0, 2, rapid.ID).Draw(t, "counters") {
		b.Adds = append(b.Adds, ledger.Add{Key: k, Delta: rapid.Int64Range(-9, 9).Draw(t, "delta")})
	}
	if rapid.Bool().Draw(t, "logged") {
		b.Log = []byte(modelValue.Draw(t, "log"))
	}
	b.ID = rapid.SampledFrom([]string{"", "", "", "id1", "id2", "id3"}).Draw(t, "id")
	return b
}

// run is one random history of one space beside its model.
type run struct {
	e     *env
	space ledger.Space
	m     *model
}

func (r *run) applyBatch(t *rapid.T) {
	b := drawBatch(t, r.space)
	got, err := r.e.l.Apply(context.Background(), b)
	if first, known := r.m.ids[b.ID]; known && b.ID != "" {
		if err != nil {
			t.Fatalf("Apply of a known id = %v, want %+v", err, first)
		}
		sameResult(t, got, first)
		return
	}
	if no := r.m.refuse(b); no != nil {
		var ce *ledger.CheckError
		if !errors.As(err, &ce) || ce.Key != no.key || !bytes.Equal(ce.Present, no.present) || (ce.Present == nil) != (no.present == nil) {
			t.Fatalf("Apply(%+v) = %v, want a refusal by %q with %q", b, err, no.key, no.present)
		}
		return
	}
	if err != nil {
		t.Fatalf("Apply(%+v) = %v, want it applied", b, err)
	}
	r.m.apply(b)
	if got.Seq != uint64(len(r.m.log)) {
		t.Fatalf("Apply(%+v) has number %d, want %d", b, got.Seq, len(r.m.log))
	}
	if b.ID != "" {
		r.m.ids[b.ID] = got
	}
}

func (r *run) readLog(t *rapid.T) {
	after, limit := rapid.Uint64Range(0, 30).Draw(t, "after"), rapid.IntRange(1, 30).Draw(t, "limit")
	r.e.view(t, r.space, func(v ledger.View) {
		entries, err := v.Log(context.Background(), after, limit)
		if after < r.m.trimmed {
			if !errors.Is(err, ledger.ErrLogTrimmed) {
				t.Fatalf("Log(%d) = %v, want ErrLogTrimmed", after, err)
			}
			return
		}
		if err != nil {
			t.Fatalf("Log(%d) = %v, want entries", after, err)
		}
		want := r.m.log[min(int(after), len(r.m.log)):]
		want = want[:min(len(want), limit)]
		wantGapless(t, entries, after+1)
		for i, en := range entries {
			if i >= len(want) || string(en.Data) != want[i] {
				t.Fatalf("Log(%d, %d)[%d] = %q, want of %q", after, limit, i, en.Data, want)
			}
		}
		if len(entries) != len(want) {
			t.Fatalf("Log(%d, %d) has %d entries, want %d", after, limit, len(entries), len(want))
		}
	})
}

func (r *run) scan(t *rapid.T) {
	keys := rapid.OneOf(modelKey, rapid.SampledFrom([]string{"", "n", "z"}))
	prefix, start, limit := keys.Draw(t, "prefix"), keys.Draw(t, "start"), rapid.IntRange(1, 20).Draw(t, "limit")
	items := r.e.scan(t, r.space, prefix, start, limit)
	want := r.m.scan(prefix, start, limit)
	if len(items) != len(want) {
		t.Fatalf("Scan(%q, %q, %d) has %d items, want %q", prefix, start, limit, len(items), want)
	}
	for i, it := range items {
		if it.Key != want[i] || string(it.Value) != r.m.keys[want[i]] {
			t.Fatalf("Scan(%q, %q, %d)[%d] = %q: %q, want %q: %q", prefix, start, limit, i, it.Key, it.Value, want[i], r.m.keys[want[i]])
		}
	}
}

func (r *run) trim(t *rapid.T) {
	before := rapid.Uint64Range(0, 20).Draw(t, "before")
	if err := r.e.l.TrimLog(context.Background(), r.space, before); err != nil {
		t.Fatalf("TrimLog(%d) = %v", before, err)
	}
	if before > 0 {
		r.m.trimmed = max(r.m.trimmed, min(before-1, uint64(len(r.m.log))))
	}
}

func (r *run) drop(t *rapid.T) {
	if err := r.e.l.Drop(context.Background(), r.space); err != nil {
		t.Fatalf("Drop = %v", err)
	}
	r.m = newModel()
}

// agree wants the whole space to be as the model has it.
func (r *run) agree(t *rapid.T) {
	r.e.view(t, r.space, func(v ledger.View) {
		items, err := v.Scan(context.Background(), "", "", 100)
		if err != nil {
			t.Fatalf("Scan = %v", err)
		}
		got := map[string]string{}
		for _, it := range items {
			got[it.Key] = string(it.Value)
		}
		if !maps.Equal(got, r.m.keys) {
			t.Fatalf("the space holds %q, want %q", got, r.m.keys)
		}
		if n, err := v.LastSeq(context.Background()); err != nil || n != uint64(len(r.m.log)) {
			t.Fatalf("LastSeq() = %d, %v; want %d", n, err, len(r.m.log))
		}
	})
}

// runModel lets random histories, reopened now and then, run beside the model.
func runModel(t *testing.T, e *env) {
	rapid.Check(t, func(rt *rapid.T) {
		r := &run{e: e, space: newSpace(), m: newModel()}
		seldom := func(name string, f func(*rapid.T)) func(*rapid.T) {
			return func(rt *rapid.T) {
				if rapid.IntRange(0, 11).Draw(rt, fmt.Sprint("whether to ", name)) == 0 {
					f(rt)
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"apply":  r.applyBatch,
			"apply2": r.applyBatch,
			"log":    r.readLog,
			"scan":   r.scan,
			"trim":   seldom("trim", r.trim),
			"drop":   seldom("drop", r.drop),
			"reopen": seldom("reopen", func(*rapid.T) { e.reopen(t) }),
			"":       r.agree,
		})
	})
}
