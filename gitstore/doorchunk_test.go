package gitstore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// A generousGuard writes so many keys with each change.
type generousGuard int

func (g generousGuard) Guard(_ context.Context, q GuardRequest) (GuardAnswer, error) {
	var a GuardAnswer
	for _, c := range q.Changes {
		for n := range int(g) {
			a.Sets = append(a.Sets, ledger.Set{Key: fmt.Sprintf("x/%s/%d", c.Ref, n)})
		}
	}
	return a, nil
}

// What the guard adds may make a batch too large: refs that are not atomic go in
// several, atomic ones are refused whole.
func TestDoor_SplitsWhatTheGuardMakesTooLarge(t *testing.T) {
	s := openTestStore(t, func(o *Options) { o.Guard = generousGuard(30) })
	r := newTestRepo(t, s, "site")
	head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}}).Commit
	changes := make([]Change, 900)
	for i := range changes {
		changes[i] = Change{Ref: refpolicy.RefName(fmt.Sprintf("refs/heads/s/%d", i)), New: head}
	}
	_, err := r.Update(t.Context(), Update{Caller: someone, Atomic: true, Changes: changes})
	if !errors.Is(err, ErrTooLarge) && !errors.Is(err, ledger.ErrTooLarge) {
		t.Errorf("an atomic update of 900 refs with 30 keys each: %v, want ErrTooLarge", err)
	}
	if refs, err := r.Refs(t.Context(), someone, "refs/heads/s/", "", 0); err != nil || len(refs) != 0 {
		t.Fatalf("the refused update left %d refs, %v", len(refs), err)
	}
	res, err := r.Update(t.Context(), Update{Caller: someone, Changes: changes})
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	for _, ref := range res.Refs {
		if ref.Err != nil {
			t.Fatalf("%s: %v", ref.Ref, ref.Err)
		}
	}
	if refs, err := r.Refs(t.Context(), someone, "refs/heads/s/", "", 0); err != nil || len(refs) != len(changes) {
		t.Errorf("%d refs were made, %v, want %d", len(refs), err, len(changes))
	}
}
