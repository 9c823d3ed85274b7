package gitstore

import (
	"context"
	"sync"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// Pins of others, and pruning and merging all the while, change nothing of what a
// confined token is told; also when pins are all that keeps what it may not read.
func TestA13_WithPinsAndUpkeep(t *testing.T) {
	for _, alone := range []bool{false, true} {
		t.Run(map[bool]string{false: "beside-refs", true: "pins-alone"}[alone], func(t *testing.T) {
			x := newA13(t, Limits{})
			for _, s := range x.secrets[:2] {
				oid, err := refpolicy.ParseOID(s.id)
				if err == nil {
					_, err = x.r.Pin(t.Context(), someone, PinSpec{OID: oid, Holder: "reader"})
				}
				if err != nil {
					t.Fatalf("Pin(%s): %v", s.name, err)
				}
			}
			if alone {
				for _, ref := range []refpolicy.RefName{branchB13, refpolicy.EphemeralPrefix + "refs/tags/hidden"} {
					if err := x.r.DeleteBranch(t.Context(), someone, ref, nil); err != nil {
						t.Fatalf("delete %s: %v", ref, err)
					}
				}
			}
			stop := inBackground(t, func(ctx context.Context) error { return upkeepHard(ctx, x.r) })
			x.tellsNothing(t)
			stop()
			for _, s := range x.secrets[:2] {
				oid, _ := refpolicy.ParseOID(s.id)
				if _, err := x.r.Resolve(t.Context(), x.c, s.id, false); err == nil {
					t.Errorf("Resolve(%s) by the confined token went through", s.name)
				}
				if _, err := x.r.Pin(t.Context(), x.c, PinSpec{OID: oid, Holder: "thief"}); err == nil {
					t.Errorf("Pin(%s) by the confined token went through", s.name)
				}
				if _, err := x.r.Resolve(t.Context(), someone, s.id, false); err != nil {
					t.Errorf("Resolve(%s) by a backend = %v", s.name, err)
				}
			}
			if page, err := x.r.Pins(t.Context(), x.c, "", 10); err != nil || len(page.Pins) != 0 {
				t.Errorf("Pins for the confined token = %+v, %v; want none", page, err)
			}
			if ref, err := x.r.Ref(t.Context(), someone, branchA13); err != nil || ref.OID.String() != x.a {
				t.Errorf("s/a is at %v, %v; want %s", ref.OID, err, x.a)
			}
			if err := checkWhole(t.Context(), x.r); err != nil {
				t.Error(err)
			}
		})
	}
}

// inBackground repeats work until the function it gives is called.
func inBackground(t *testing.T, work func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			if err := work(t.Context()); err != nil {
				t.Errorf("in the background, round %d: %v", n, err)
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}
