package tokens

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func sumOf(i int) (s tokenSum) {
	binary.BigEndian.PutUint64(s[:], uint64(i))
	return s
}

func TestCacheGivesTheSamePrincipalAgain(t *testing.T) {
	v, _, _ := acme(t, ecOne())
	raw := sign(t, ecOne(), goodClaims())
	first, err := v.Verify(t.Context(), raw)
	if err != nil {
		t.Fatalf("Verify = %v", err)
	}
	if second, err := v.Verify(t.Context(), raw); err != nil || second != first {
		t.Errorf("second Verify = %p, %v, want the principal %p of the first", second, err, first)
	}
}

// Whatever is put in: never more than two halves' worth is kept, nothing is given
// for another token, and what was used last is still there.
func TestCacheIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 20 * entryBytes
		c := newCache(limit)
		owner := make(map[int]*Principal)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			i := rapid.IntRange(0, 60).Draw(t, "token")
			p := c.get(sumOf(i))
			if p != nil && p != owner[i] {
				t.Fatalf("get(%d) gave another token's principal", i)
			}
			if p == nil {
				owner[i] = &Principal{tokenBytes: rapid.IntRange(0, 3*entryBytes).Draw(t, "size")}
				c.add(sumOf(i), owner[i])
			}
			if c.get(sumOf(i)) != owner[i] {
				t.Fatalf("get(%d) right after its use gave nothing", i)
			}
			kept := 0
			for _, half := range []map[tokenSum]*Principal{c.young, c.old} {
				for _, p := range half {
					kept += p.tokenBytes + entryBytes
				}
			}
			if kept > 2*limit {
				t.Fatalf("%d bytes kept, the bound is %d", kept, 2*limit)
			}
		}
	})
}

func TestCacheKeepsWhatIsInUse(t *testing.T) {
	c := newCache(10 * entryBytes)
	hot := &Principal{}
	c.add(sumOf(0), hot)
	for i := 1; i < 1000; i++ {
		c.add(sumOf(i), &Principal{})
		if c.get(sumOf(0)) != hot {
			t.Fatalf("a token asked for at every step was forgotten after %d others", i)
		}
	}
}

func TestRaceOnCache(t *testing.T) {
	v, _, _ := acme(t, ecOne())
	raws := make([]string, 20)
	for i := range raws {
		c := goodClaims()
		c.Subject = fmt.Sprint(i)
		raws[i] = sign(t, ecOne(), c)
	}
	v.keys.set.Load().verified.limit = 5 * entryBytes // so that the halves turn all the time
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for n := range 400 {
				i := (n*7 + g) % len(raws)
				if p, err := v.Verify(t.Context(), raws[i]); err != nil || p.Subject != fmt.Sprint(i) {
					t.Errorf("Verify of token %d = %+v, %v", i, p, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
