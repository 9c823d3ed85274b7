package gitstore

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
)

// hookedLedger lets a test stand between the store and its ledger.
type hookedLedger struct {
	ledger.Ledger
	onApply atomic.Pointer[func(ctx context.Context, b ledger.Batch) (ledger.Result, error)]
}

func (h *hookedLedger) Apply(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
	if f := h.onApply.Load(); f != nil {
		return (*f)(ctx, b)
	}
	return h.Ledger.Apply(ctx, b)
}

// hook sets what Apply does for the next batch that want accepts; other batches pass.
func (h *hookedLedger) hook(want func(ledger.Batch) bool, do func(context.Context, ledger.Batch) (ledger.Result, error)) {
	var done atomic.Bool
	f := func(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
		if want(b) && done.CompareAndSwap(false, true) {
			return do(ctx, b)
		}
		return h.Ledger.Apply(ctx, b)
	}
	h.onApply.Store(&f)
}

// registers reports whether a batch makes a pack exist.
func registers(b ledger.Batch) bool {
	for _, s := range b.Sets {
		if strings.HasPrefix(s.Key, packKeys) && strings.Contains(string(s.Value), packLive) {
			return true
		}
	}
	return false
}

// lostAnswers are the ways in which a batch's answer may be lost: the batch is
// applied or not, and the error says neither.
var lostAnswers = []struct {
	name    string
	applied bool
	answer  error
}{
	{"applied-unavailable", true, ledger.ErrUnavailable},
	{"applied-cancelled", true, context.Canceled},
	{"not-applied-unavailable", false, ledger.ErrUnavailable},
	{"not-applied-cancelled", false, context.Canceled},
}

// A large commit whose batch was answered with "unavailable" may have happened. Its
// pack's file must then stay, or the ref that has moved has lost its objects.
func TestG03_LostAnswerOfALargeCommit(t *testing.T) {
	for _, tc := range lostAnswers {
		t.Run(tc.name, func(t *testing.T) {
			h := &hookedLedger{Ledger: openTestLedger(t)}
			s := openTestStore(t, func(o *Options) { o.Ledger, o.Limits.HotPackBytes = h, 1000 })
			r := newTestRepo(t, s, "site")
			first := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1\n"}})
			var late ledger.Batch
			h.hook(registers, func(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
				late = b
				if tc.applied {
					if _, err := h.Ledger.Apply(ctx, b); err != nil {
						t.Errorf("Apply: %v", err)
					}
				}
				return ledger.Result{}, tc.answer
			})
			big := strings.Repeat("0123456789", 1000)
			_, err := testCommit{target: mainRef, files: map[string]string{"big": big}}.make(t.Context(), r, someone)
			if !errors.Is(err, tc.answer) {
				t.Fatalf("commit: %v, want %v", err, tc.answer)
			}
			ref, err := r.Ref(t.Context(), someone, mainRef)
			if err != nil {
				t.Fatalf("Ref: %v", err)
			}
			if moved := ref.OID != first.Commit; moved != tc.applied {
				t.Fatalf("main moved: %v, want %v", moved, tc.applied)
			}
			if tc.applied {
				wantFile(t, r, ref.OID, "big", big)
				return
			}
			if _, err := h.Ledger.Apply(t.Context(), late); err == nil {
				t.Errorf("the batch, arriving late, was applied although its pack's file has been removed")
			}
			if files, err := r.dir.Files(); err != nil || len(files) != 0 {
				t.Errorf("pack files after a commit that did not happen: %v, %v; want none", files, err)
			}
		})
	}
}

// The same for the batch that registers a settled pack: whatever it was answered,
// no object is lost and reading goes on.
func TestG03_LostAnswerOfSettling(t *testing.T) {
	for _, tc := range lostAnswers {
		t.Run(tc.name, func(t *testing.T) {
			h := &hookedLedger{Ledger: openTestLedger(t)}
			s := openTestStore(t, func(o *Options) { o.Ledger = h })
			r := newTestRepo(t, s, "site")
			head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1\n"}})
			h.hook(registers, func(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
				if tc.applied {
					if _, err := h.Ledger.Apply(ctx, b); err != nil {
						t.Errorf("Apply: %v", err)
					}
				}
				return ledger.Result{}, tc.answer
			})
			if err := r.Settle(t.Context()); !errors.Is(err, tc.answer) {
				t.Fatalf("Settle: %v, want %v", err, tc.answer)
			}
			if err := r.loadPacks(t.Context()); err != nil {
				t.Fatalf("loadPacks: %v", err)
			}
			wantFile(t, r, head.Commit, "a", "1\n")
			if err := r.Settle(t.Context()); err != nil {
				t.Errorf("Settle again: %v", err)
			}
			wantFile(t, r, head.Commit, "a", "1\n")
		})
	}
}

// Writing the same object again counts it again, but it is deleted once. A count
// that kept the difference would in the end start settling at every commit.
func TestSettlingCountsNothingThatIsNotHot(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "site")
	for i := range 6 {
		text := []string{"1\n", "2\n"}[i%2] // the same blobs and trees come again and again
		mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": text}})
	}
	if n := r.heat.objects.Load(); n != 18 {
		t.Errorf("%d objects counted hot, want 18: the test wants some counted twice", n)
	}
	if err := r.Settle(t.Context()); err != nil {
		t.Fatalf("Settle: %v", err)
	}
	if n, size := r.heat.objects.Load(), r.heat.bytes.Load(); n != 0 || size != 0 {
		t.Errorf("%d objects and %d bytes counted hot after settling, want none", n, size)
	}
}
