package sessions

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"
)

// withDefaults gives zero fields their defaults.
func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&l.LeaseDefault, time.Minute},
		{&l.LeaseMax, 24 * time.Hour},
		{&l.LeaseWaitMax, time.Minute},
		{&l.TokenDefault, 15 * time.Minute},
		{&l.TokenMax, 24 * time.Hour},
		{&l.LoserTTL, 10 * time.Minute},
		{&l.StateIdle, 1_800 * time.Second},
		{&l.ReapEvery, 5 * time.Second},
		{&l.EndedMemory, 30 * 24 * time.Hour},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if l.MaxForkN == 0 {
		l.MaxForkN = 8
	}
	if l.MaxLive == 0 {
		l.MaxLive = 2_000_000
	}
	l.LeaseDefault = min(l.LeaseDefault, l.LeaseMax)
	return l
}

// room refuses more live sessions than a repo may have. The batch checks it again.
func (k *Keeper) room(ctx context.Context, by reader, more int64) error {
	got, err := by.get(ctx, liveKey)
	if err != nil {
		return err
	}
	var live int64
	if got[0] != nil {
		if live, err = strconv.ParseInt(string(got[0]), 10, 64); err != nil {
			return fmt.Errorf("decode number of live sessions: %w", err)
		}
	}
	if want := live + more; want > int64(k.Limits.MaxLive) {
		return &LimitError{What: LimitLive, Max: k.Limits.MaxLive, Want: int(min(want, math.MaxInt32))}
	}
	return nil
}
