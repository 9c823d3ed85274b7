package redisdb_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
)

// Callers that are bundled get their own answers, and their own errors.
func TestBundledCallsHaveTheirOwnAnswers(t *testing.T) {
	db := open(t, redistest.Start(t).URL())
	const space, callers = ledger.Space("repo/bundled"), 64
	var work sync.WaitGroup
	for i := range callers {
		work.Go(func() {
			key, value := fmt.Sprint("k", i), fmt.Sprint("v", i)
			b := ledger.Batch{Space: space, Checks: []ledger.Check{ledger.Absent(key)}, Sets: []ledger.Set{{Key: key, Value: []byte(value)}}}
			if _, err := db.Apply(t.Context(), b); err != nil {
				t.Errorf("Apply %d = %v, want it applied", i, err)
			}
			var check *ledger.CheckError
			if _, err := db.Apply(t.Context(), b); !errors.As(err, &check) || check.Key != key || string(check.Present) != value {
				t.Errorf("Apply %d again = %v, want a *CheckError with %s", i, err, value)
			}
			got, err := db.ReadKeys(t.Context(), space, key, "none")
			if err != nil || string(got[0]) != value || got[1] != nil {
				t.Errorf("ReadKeys %d = %q, %v; want %s and nothing", i, got, err, value)
			}
		})
	}
	work.Wait()
}

// Callers who leave a server that hangs do not disturb those who stay.
func TestCallersWhoLeaveDisturbNobody(t *testing.T) {
	s := redistest.Start(t)
	db := open(t, s.URL())
	const space = ledger.Space("repo/left")
	add := ledger.Batch{Space: space, Adds: []ledger.Add{{Key: "n", Delta: 1}}, Log: []byte("x")}
	applyN(t, db, 1, add)
	s.Pause()
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var work sync.WaitGroup
	for range 40 {
		work.Go(func() {
			if _, err := db.Apply(short, add); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Apply past its deadline = %v, want the context's error", err)
			}
		})
	}
	work.Wait()
	s.Resume()
	const more = 40
	for range more {
		work.Go(func() { applySoon(t, db, add) })
	}
	work.Wait()
	n, err := strconv.Atoi(get(t, db, space, "n"))
	logged := logOf(t, db, space)["x"]
	if err != nil || n < 1+more || n > 1+more+40 || len(logged) != n {
		t.Errorf("counter = %d, %v with %d log entries; want both the same, %d to %d", n, err, len(logged), 1+more, 1+more+40)
	}
}

// Places of processes that are gone do not gather in a space for ever.
func TestPlacesOfProcessesThatAreGoneAreForgotten(t *testing.T) {
	s := redistest.Start(t)
	applyN(t, open(t, s.URL()), 1, logOne("repo/places"))
	args := []string{"hset", "headgate:{repo/places}:meta"}
	for i := range 400 {
		args = append(args, fmt.Sprintf("own/gone/%d", i), "1:1:1")
	}
	s.Do(args...)
	applyN(t, open(t, s.URL()), 3, logOne("repo/places"))
	if n, err := strconv.Atoi(s.Do("hlen", "headgate:{repo/places}:meta")); err != nil || n > 10 {
		t.Errorf("meta has %d fields, %v; want the space's numbers and two places", n, err)
	}
}
