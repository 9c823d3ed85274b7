package redisdb

import (
	"context"
	"testing"
	"time"
)

// The place of a batch that was not answered is not given to another one: the batch may
// still come to the server.
func TestPlaceOfAnUnansweredBatchIsNotGivenAgain(t *testing.T) {
	p := newPlaces()
	first := p.take()
	if second := p.take(); second.field == first.field || second.name == first.name {
		t.Errorf("two batches under way have %v and %v, want a place and a name each", first, second)
	}
	p.put(first, replied("ERR x"))
	again := p.take()
	if again.field != first.field || again.name == first.name {
		t.Errorf("after an answer the place is %v, want that of %v under another name", again, first)
	}
	p.put(again, context.DeadlineExceeded)
	if next := p.take(); next.field == first.field {
		t.Errorf("a batch that was not answered had %v, the next one has it too", next)
	}
}

func TestReckonedClock(t *testing.T) {
	told := time.UnixMicro(1_000_000)
	heard := time.Now()
	a := anchor{told: told, heard: heard}
	for _, tc := range []struct {
		gone, want time.Duration
		ok         bool
	}{
		{0, 0, true},
		{100 * time.Millisecond, 100*time.Millisecond - 100*time.Microsecond, true}, // never ahead of the server's
		{anchorAge, 0, false}, // ask again
	} {
		got, ok := a.reckon(heard.Add(tc.gone))
		if ok != tc.ok || ok && got.Sub(told) != tc.want {
			t.Errorf("reckon %s later = %s later, %t; want %s, %t", tc.gone, got.Sub(told), ok, tc.want, tc.ok)
		}
	}
}
