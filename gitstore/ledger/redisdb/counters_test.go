package redisdb_test

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
)

// edges are integers near which the scripts' arithmetic could go wrong: the halves
// it adds in, the exactness of doubles, and the ends of 64 bits.
var edges = []int64{
	0, 1, -1, 999_999_999, 1_000_000_000, 1_000_000_001, -999_999_999, -1_000_000_000, -1_000_000_001,
	1 << 53, 1<<53 + 1, -(1 << 53) - 1, math.MaxInt64, math.MaxInt64 - 1, math.MinInt64, math.MinInt64 + 1,
}

var anyInt = rapid.OneOf(rapid.SampledFrom(edges), rapid.Int64())

// Counters are exact over all of int64, and a batch that would leave it or break
// its AtMost writes nothing.
func TestCountersAreExact(t *testing.T) {
	s := redistest.Start(t)
	db := open(t, s.URL())
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		key := fmt.Sprint("n", n)
		start, delta, limit := anyInt.Draw(rt, "start"), anyInt.Draw(rt, "delta"), anyInt.Draw(rt, "limit")
		set := ledger.Batch{Space: "repo/n", Sets: []ledger.Set{{Key: key, Value: fmt.Append(nil, start)}}}
		if _, err := db.Apply(t.Context(), set); err != nil {
			rt.Fatalf("Apply = %v, want it applied", err)
		}
		_, err := db.Apply(t.Context(), ledger.Batch{
			Space: "repo/n", Checks: []ledger.Check{ledger.AtMost(key, limit)}, Adds: []ledger.Add{{Key: key, Delta: delta}},
		})
		sum := new(big.Int).Add(big.NewInt(start), big.NewInt(delta))
		want := fmt.Sprint(start)
		var ce *ledger.CheckError
		switch {
		case !sum.IsInt64():
			if !errors.Is(err, ledger.ErrInvalidBatch) {
				rt.Fatalf("%d + %d = %v, want ErrInvalidBatch", start, delta, err)
			}
		case sum.Int64() > limit:
			if !errors.As(err, &ce) || string(ce.Present) != sum.String() {
				rt.Fatalf("%d + %d at most %d = %v, want a *CheckError with %s", start, delta, limit, err, sum)
			}
		case err != nil:
			rt.Fatalf("%d + %d at most %d = %v, want it applied", start, delta, limit, err)
		default:
			want = sum.String()
		}
		if got := get(t, db, "repo/n", key); got != want {
			rt.Fatalf("%d + %d at most %d left %s, want %s", start, delta, limit, got, want)
		}
	})
}
