package gitstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/wire"
	"github.com/headgate/headgate/refpolicy"
)

// guardFunc is a Guard that only refuses.
type guardFunc func(changes []Change) error

func (f guardFunc) Guard(_ context.Context, q GuardRequest) (GuardAnswer, error) {
	return GuardAnswer{}, f(q.Changes)
}

func TestPushRefusedByTheGuard(t *testing.T) {
	guard := guardFunc(func([]Change) error { return errors.New("stale epoch 3, session is at 4") })
	r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Guard = guard }), "repo")
	s := newGitServer(t, r)
	w := newWorkTree(t)
	w.git("init", "-q")
	w.commit("a", "a")
	contains(t, w.refused("push", s.url(someone, EphemeralRemote), "main:refs/heads/s/1"), "[remote rejected] main -> s/1 (stale epoch 3, session is at 4)")
	s.noErrors()
}

// failingLedger answers Apply with an error while it has one.
type failingLedger struct {
	ledger.Ledger
	err atomic.Pointer[error]
}

func (f *failingLedger) Apply(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
	if err := f.err.Load(); err != nil {
		return ledger.Result{}, *err
	}
	return f.Ledger.Apply(ctx, b)
}

// A store that cannot take a push says so in the report: there is no status any more.
func TestPushToAFailingStore(t *testing.T) {
	l := &failingLedger{Ledger: openTestLedger(t)}
	r := newTestRepo(t, openTestStore(t, func(o *Options) { o.Ledger = l; o.Limits.HotPackBytes = 1000 }), "repo")
	s := newGitServer(t, r)
	w := newWorkTree(t)
	w.git("init", "-q")
	w.commit("a", "a")
	for _, tc := range []struct {
		err  error
		want string
	}{
		{ledger.ErrNoSpace, "no space left on the server, try again later"},
		{ledger.ErrUnavailable, "the server cannot answer now, try again"},
		{errors.New("secret detail"), "internal error"},
	} {
		l.err.Store(&tc.err)
		out := w.refused("push", s.url(someone, MainRemote), "main")
		contains(t, out, "[remote rejected] main -> main ("+tc.want+")")
		if strings.Contains(out, "secret detail") {
			t.Errorf("the user was told\n%s", out)
		}
	}
	l.err.Store(nil)
	w.git("push", "-q", s.url(someone, MainRemote), "main")
	s.noErrors()
}

// Of pushes to one ref that all build on the same value one wins.
func TestPushesToOneRefAtOnce(t *testing.T) {
	eachRoad(t, func(t *testing.T, p *pushTarget) {
		p.w.git("push", "-q", "origin", "main")
		first := p.w.git("rev-parse", "HEAD")
		tree := p.w.git("rev-parse", "HEAD^{tree}")
		const writers = 8
		var wg sync.WaitGroup
		answers := make([]string, writers)
		for n := range writers {
			var pack rawPack
			id := pack.add(CommitObject, fmt.Sprintf("tree %s\nparent %s\n%s%d\n", tree, first, author13, n))
			body := pkts(first+" "+id.String()+" refs/heads/main\x00report-status", "") + pack.pack()
			wg.Go(func() { answers[n] = p.s.post(t, someone, MainRemote, "git-receive-pack", "", body) })
		}
		wg.Wait()
		won := 0
		for _, a := range answers {
			switch {
			case strings.Contains(a, "ok refs/heads/main\n"):
				won++
			case !strings.Contains(a, "ng refs/heads/main failed to update ref"):
				t.Errorf("a push was answered with %q", a)
			}
		}
		if won != 1 {
			t.Errorf("%d of %d pushes won, want 1", won, writers)
		}
	})
}

func TestPushKeepsItsClientWaiting(t *testing.T) {
	heard := make(chan string, 1000)
	out := writerFunc(func(b []byte) (int, error) {
		select {
		case heard <- string(b):
		default:
		}
		return len(b), nil
	})
	p := &push{req: &wire.ReceiveRequest{Capabilities: wire.Capabilities{"side-band-64k"}}, band: wire.NewSideband(out, wire.Sideband64k), every: time.Millisecond}
	p.keepAlive(t.Context())
	for range 3 {
		if got := <-heard; got != "0005\x02" {
			t.Errorf("a waiting client heard %q, want an empty packet on band 2", got)
		}
	}
	p.quieten()
	for len(heard) > 0 {
		<-heard
	}
	if err := p.band.Flush(); err != nil || <-heard != "0000" {
		t.Errorf("something was written after quieten: %v", err)
	}
}

// A listing jumps over what the main remote hides, however much that is.
func TestF02_ManyHiddenRefs(t *testing.T) {
	p := newPushTarget(t, Limits{})
	p.w.git("push", "-q", "origin", "main", "main:refs/zzz/last", "main:refs/tags/t")
	tip := mustOID(t, p.w.git("rev-parse", "HEAD"))
	u := Update{Caller: someone}
	for n := range 2500 {
		u.Changes = append(u.Changes, Change{Ref: refpolicy.RefName(fmt.Sprintf("%ss/%04d", refpolicy.EphemeralBranchPrefix, n)), New: tip})
	}
	if _, err := p.r.Update(t.Context(), u); err != nil {
		t.Fatalf("Update: %v", err)
	}
	want := fmt.Sprintf("%[1]s\tHEAD\n%[1]s\trefs/heads/main\n%[1]s\trefs/tags/t\n%[1]s\trefs/zzz/last", tip)
	if got := p.w.git("ls-remote", "origin"); got != want {
		t.Errorf("main remote shows\n%.300s\nwant\n%s", got, want)
	}
	eph := p.s.url(someone, EphemeralRemote)
	if got := strings.Count(p.w.git("ls-remote", eph), "\n"); got != 2499 {
		t.Errorf("ephemeral remote shows %d refs, want 2500", got+1)
	}
	own := p.s.url(confined(t, refpolicy.EphemeralBranchPrefix+"s/1234"), EphemeralRemote)
	if got, want := p.w.git("ls-remote", own, "refs/*"), tip.String()+"\trefs/heads/s/1234"; got != want {
		t.Errorf("ephemeral remote shows a confined token\n%.300s\nwant\n%s", got, want)
	}
}
