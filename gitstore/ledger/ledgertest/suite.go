// Package ledgertest holds every ledger engine to the contract on the page of
// package ledger. An engine's own test opens it and calls Run; what only one
// engine can show (power cuts, server restarts) is tested beside that engine.
package ledgertest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// An Engine is what Run needs to know about the engine under test.
type Engine struct {
	// Open opens a ledger for one test and has it closed by t.Cleanup. The data
	// below may be shared between tests: the suite names every space afresh.
	Open func(t *testing.T) Instance
	// Snapshots says that a view shows one moment however long it is open.
	Snapshots bool
}

// An Instance is one open ledger over data that outlives it.
type Instance struct {
	Ledger ledger.Ledger
	// Reopen closes the ledger opened last, opens the same data again and returns that.
	Reopen func(t *testing.T) ledger.Ledger
	// SetClock sets the clock under the ledger, also for later Reopens; nil if the
	// engine takes its time from elsewhere.
	SetClock func(time.Time)
}

// Run runs the whole contract against e.
func Run(t *testing.T, e Engine) {
	for _, group := range [][]testCase{applyCases, checkCases, raceCases, viewCases, logCases, watchCases, idCases, lifeCases, bulkCases} {
		for _, tc := range group {
			t.Run(tc.name, func(t *testing.T) {
				in := e.Open(t)
				tc.run(t, &env{in: in, l: in.Ledger, snapshots: e.Snapshots})
			})
		}
	}
	t.Run("Model", func(t *testing.T) {
		in := e.Open(t)
		runModel(t, &env{in: in, l: in.Ledger, snapshots: e.Snapshots})
	})
}

type testCase struct {
	name string
	run  func(t *testing.T, e *env)
}

// env is one test's ledger with short words for what every test does.
type env struct {
	in        Instance
	l         ledger.Ledger
	snapshots bool
}

// fataler is what *testing.T and *rapid.T have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func (e *env) reopen(t *testing.T) {
	t.Helper()
	e.l = e.in.Reopen(t)
}

// newSpace names a space that nobody has used.
func newSpace() ledger.Space { return ledger.RepoSpace("t-" + rand.Text()) }

func (e *env) apply(t fataler, b ledger.Batch) ledger.Result {
	t.Helper()
	r, err := e.l.Apply(context.Background(), b)
	if err != nil {
		t.Fatalf("Apply(%s) = %v, want it applied", describe(b), err)
	}
	return r
}

// refused applies b and wants a CheckError on key with present under it.
func (e *env) refused(t fataler, b ledger.Batch, key string, present []byte) *ledger.CheckError {
	t.Helper()
	_, err := e.l.Apply(context.Background(), b)
	var ce *ledger.CheckError
	if !errors.As(err, &ce) {
		t.Fatalf("Apply(%s) = %v, want a *CheckError on %q", describe(b), err, key)
	}
	if ce.Key != key || !bytes.Equal(ce.Present, present) || (ce.Present == nil) != (present == nil) {
		t.Fatalf("Apply(%s) refused by key %q, present %q (nil %t); want key %q, present %q (nil %t)",
			describe(b), ce.Key, ce.Present, ce.Present == nil, key, present, present == nil)
	}
	return ce
}

// fails applies b and wants an error that is want.
func (e *env) fails(t fataler, b ledger.Batch, want error) {
	t.Helper()
	if _, err := e.l.Apply(context.Background(), b); !errors.Is(err, want) {
		t.Fatalf("Apply(%s) = %v, want %v", describe(b), err, want)
	}
}

func describe(b ledger.Batch) string {
	return fmt.Sprintf("id %q: %d checks, %d deletes, %d sets, %d adds, log of %d bytes",
		b.ID, len(b.Checks), len(b.Deletes), len(b.Sets), len(b.Adds), len(b.Log))
}

func (e *env) set(t fataler, s ledger.Space, pairs ...string) {
	t.Helper()
	b := ledger.Batch{Space: s}
	for i := 0; i < len(pairs); i += 2 {
		b.Sets = append(b.Sets, ledger.Set{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	e.apply(t, b)
}

// view runs f on a published view of s.
func (e *env) view(t fataler, s ledger.Space, f func(v ledger.View)) {
	t.Helper()
	v, err := e.l.Read(context.Background(), s)
	if err != nil {
		t.Fatalf("Read(%q) = %v, want a view", s, err)
	}
	f(v)
	if err := v.Close(); err != nil {
		t.Fatalf("View.Close() = %v, want nil", err)
	}
}

// want wants value under key; a nil value wants the key absent.
func (e *env) want(t fataler, s ledger.Space, key string, value []byte) {
	t.Helper()
	e.view(t, s, func(v ledger.View) {
		got, err := v.Get(context.Background(), key)
		if value == nil {
			if !errors.Is(err, ledger.ErrNotFound) {
				t.Fatalf("Get(%q) = %q, %v; want ErrNotFound", key, got, err)
			}
			return
		}
		if err != nil || !bytes.Equal(got, value) {
			t.Fatalf("Get(%q) = %q, %v; want %q", key, got, err, value)
		}
	})
}

func (e *env) scan(t fataler, s ledger.Space, prefix, start string, limit int) []ledger.Item {
	t.Helper()
	var items []ledger.Item
	e.view(t, s, func(v ledger.View) {
		var err error
		if items, err = v.Scan(context.Background(), prefix, start, limit); err != nil {
			t.Fatalf("Scan(%q, %q, %d) = %v, want items", prefix, start, limit, err)
		}
	})
	return items
}

func (e *env) log(t fataler, s ledger.Space, after uint64, limit int) []ledger.Entry {
	t.Helper()
	var entries []ledger.Entry
	e.view(t, s, func(v ledger.View) {
		var err error
		if entries, err = v.Log(context.Background(), after, limit); err != nil {
			t.Fatalf("Log(%d, %d) = %v, want entries", after, limit, err)
		}
	})
	return entries
}

func (e *env) lastSeq(t fataler, s ledger.Space) uint64 {
	t.Helper()
	var n uint64
	e.view(t, s, func(v ledger.View) {
		var err error
		if n, err = v.LastSeq(context.Background()); err != nil {
			t.Fatalf("LastSeq() = %v, want a number", err)
		}
	})
	return n
}

// wantGapless wants entries numbered first, first+1, ... with times that never run back.
func wantGapless(t fataler, entries []ledger.Entry, first uint64) {
	t.Helper()
	for i, en := range entries {
		if en.Seq != first+uint64(i) {
			t.Fatalf("log entry %d has number %d, want %d", i, en.Seq, first+uint64(i))
		}
		if i > 0 && en.At.Before(entries[i-1].At) {
			t.Fatalf("log entry %d is of %s, before its forerunner's %s", en.Seq, en.At, entries[i-1].At)
		}
	}
}

// together runs f n times at once and waits for all.
func together(n int, f func(i int)) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		ready.Add(1)
		done.Add(1)
		go func() {
			defer done.Done()
			ready.Done()
			<-start
			f(i)
		}()
	}
	ready.Wait()
	close(start)
	done.Wait()
}
