package httpapi

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/tokens"
)

// guest is somebody with a token.
func guest(org, token string) *tokens.Principal {
	return &tokens.Principal{Org: org, TokenHash: token}
}

func fairnessOf(l FairLimits) *fairness {
	return newFairness(Limits{FairLimits: l}.withDefaults(), NewMetrics())
}

// mustEnter lets who in and gives him a turn.
func (f *fairness) mustEnter(t testing.TB, who *tokens.Principal) *pass {
	t.Helper()
	p, err := f.enter(t.Context(), who, places, 0)
	if err == nil {
		err = p.begin()
	}
	if err != nil {
		t.Fatalf("enter(%s/%s) = %v", who.Org, who.TokenHash, err)
	}
	return p
}

// wantLimit fails unless err refuses by the named limit.
func wantLimit(t *testing.T, what string, err error, name string) *limitError {
	t.Helper()
	var limit *limitError
	if !errors.As(err, &limit) || !strings.Contains(limit.text, "("+name+")") {
		t.Fatalf("%s = %v, want a refusal that names %s", what, err, name)
	}
	return limit
}

// G-05, with time that stands still while anybody works: one token has 100 clients
// that never pause. What another org's requests take, 99 times of 100, is at most
// three times what they take alone; and the greedy ones lose nothing that the
// other does not use.
func TestG05_GreedyTokenLeavesAnotherOrgItsPace(t *testing.T) {
	const work = time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		f := fairnessOf(FairLimits{Turns: 16})
		ctx, stop := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		done := 0
		var mu sync.Mutex // guards done
		for range 100 {
			clients.Go(func() {
				for ctx.Err() == nil {
					p := f.mustEnter(t, guest("greedy", "one"))
					time.Sleep(work)
					p.leave()
					mu.Lock()
					done++
					mu.Unlock()
				}
			})
		}
		time.Sleep(10*work + work/2)
		mu.Lock()
		if want := 160; done != want {
			t.Errorf("alone, 100 clients did %d requests in ten turns of 16, want %d", done, want)
		}
		mu.Unlock()
		var took []time.Duration
		for range 200 {
			begun := time.Now()
			p := f.mustEnter(t, guest("modest", "two"))
			time.Sleep(work)
			p.leave()
			took = append(took, time.Since(begun))
			time.Sleep(work / 2)
		}
		slices.Sort(took)
		if p99 := took[len(took)*99/100]; p99 > 3*work {
			t.Errorf("p99 of the other org's requests = %v, want at most %v", p99, 3*work)
		}
		if p50 := took[len(took)/2]; p50 != work {
			t.Errorf("half of the other org's requests take %v, want %v: a turn is free for it", p50, work)
		}
		mu.Lock()
		if got := done; got < 600 {
			t.Errorf("beside it the greedy ones did %d requests in 200 of its own, want twice as many and more", got)
		}
		mu.Unlock()
		stop()
		clients.Wait()
		f.wantEmpty(t)
	})
}

// wantEmpty fails if anything is used or waited for.
func (f *fairness) wantEmpty(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range supplies {
		if m := &f.server.meters[s]; m.used != 0 || m.waiting != 0 {
			t.Errorf("%s: %d used and %d waiting after all have left", supplyNames[s], m.used, m.waiting)
		}
	}
	if f.wanted != 0 || len(f.demanding) != 0 {
		t.Errorf("%d turns are wanted by %d orgs after all have left", f.wanted, len(f.demanding))
	}
}

func TestTokenRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fairnessOf(FairLimits{TokenRate: 10, TokenBurst: 3})
		for range 3 {
			f.mustEnter(t, guest("acme", "a")).leave()
		}
		_, err := f.enter(t.Context(), guest("acme", "a"), places, 0)
		if limit := wantLimit(t, "the fourth request at once", err, "token_rate"); limit.retry != 100*time.Millisecond {
			t.Errorf("retry after %v, want 100ms", limit.retry)
		}
		f.mustEnter(t, guest("acme", "b")).leave() // another token
		f.mustEnter(t, guest("beta", "a")).leave() // another org's
		time.Sleep(100 * time.Millisecond)
		f.mustEnter(t, guest("acme", "a")).leave()
		_, err = f.enter(t.Context(), guest("acme", "a"), places, 0)
		wantLimit(t, "one more", err, "token_rate")
		time.Sleep(time.Hour)
		for range 3 {
			f.mustEnter(t, guest("acme", "a")).leave()
		}
		_, err = f.enter(t.Context(), guest("acme", "a"), places, 0)
		wantLimit(t, "the fourth request after an hour", err, "token_rate")
	})
}

// Each limit is waited for and then named; who waits is bounded; a place that comes
// free in time is taken.
func TestPlacesAreWaitedForAndRefused(t *testing.T) {
	limits := FairLimits{
		TokenRequests: 2, OrgRequests: 3, Requests: 4, TokenGit: 1, OrgGit: 2, Git: 3,
		TokenStreams: 1, OrgStreams: 2, Streams: 3,
		TokenUpload: 10, OrgUpload: 20, Upload: 30, LimitWait: 5 * time.Second,
	}
	for _, tc := range []struct {
		name   string
		kind   supply
		upload int64
		before []string // org/token of those that are in
		who    string
	}{
		{"token_requests", places, 0, []string{"a/1", "a/1"}, "a/1"},
		{"org_requests", places, 0, []string{"a/1", "a/1", "a/2"}, "a/2"},
		{"requests", places, 0, []string{"a/1", "a/1", "b/1", "b/1"}, "c/1"},
		{"token_git_requests", gitPlaces, 0, []string{"a/1"}, "a/1"},
		{"org_git_requests", gitPlaces, 0, []string{"a/1", "a/2"}, "a/3"},
		{"git_requests", gitPlaces, 0, []string{"a/1", "a/2", "b/1"}, "c/1"},
		{"token_streams", streamPlaces, 0, []string{"a/1"}, "a/1"},
		{"org_streams", streamPlaces, 0, []string{"a/1", "a/2"}, "a/3"},
		{"streams", streamPlaces, 0, []string{"a/1", "a/2", "b/1"}, "c/1"},
		{"token_upload_bytes", places, 6, []string{"a/1"}, "a/1"},
		{"org_upload_bytes", places, 8, []string{"a/1", "a/2"}, "a/3"},
		{"upload_bytes", places, 8, []string{"a/1", "a/2", "b/1"}, "c/1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fairnessOf(limits)
				enter := func(name string) (*pass, error) {
					org, token, _ := strings.Cut(name, "/")
					return f.enter(t.Context(), guest(org, token), tc.kind, tc.upload)
				}
				var in []*pass
				for _, name := range tc.before {
					p, err := enter(name)
					if err != nil {
						t.Fatalf("enter(%s) = %v", name, err)
					}
					in = append(in, p)
				}
				begun := time.Now()
				_, err := enter(tc.who)
				wantLimit(t, "one over the limit", err, tc.name)
				if took := time.Since(begun); took != 5*time.Second {
					t.Errorf("it is refused after %v, want the 5s of patience", took)
				}
				time.AfterFunc(time.Second, in[0].leave)
				p, err := enter(tc.who)
				if err != nil && tc.name != "org_upload_bytes" && tc.name != "upload_bytes" {
					t.Fatalf("enter while one leaves = %v", err)
				}
				if err == nil {
					p.leave()
				}
				for _, p := range in[1:] {
					p.leave()
				}
				f.wantEmpty(t)
			})
		})
	}
}

func TestNoMoreWaitThanMayRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fairnessOf(FairLimits{TokenRequests: 2})
		for range 2 {
			f.mustEnter(t, guest("acme", "a"))
		}
		for range 2 {
			go func() { _, _ = f.enter(t.Context(), guest("acme", "a"), places, 0) }()
		}
		synctest.Wait()
		begun := time.Now()
		_, err := f.enter(t.Context(), guest("acme", "a"), places, 0)
		wantLimit(t, "one more behind two that wait", err, "token_requests")
		if took := time.Since(begun); took != 0 {
			t.Errorf("it is refused after %v, want at once", took)
		}
		time.Sleep(time.Minute)
	})
}

// Who goes away while waiting, for a place or for a turn, leaves the queue.
func TestCanceledRequestsLeaveTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fairnessOf(FairLimits{TokenRequests: 2, Turns: 1})
		worker := f.mustEnter(t, guest("acme", "a"))
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 2)
		second, err := f.enter(ctx, guest("acme", "a"), places, 0)
		if err != nil {
			t.Fatalf("enter = %v", err)
		}
		go func() { errs <- second.begin() }()
		go func() {
			_, err := f.enter(ctx, guest("acme", "a"), places, 0)
			errs <- err
		}()
		synctest.Wait()
		if q, w := f.server.meters[places].waiting, f.server.meters[turns].waiting; q != 1 || w != 1 {
			t.Fatalf("%d wait for a place and %d for a turn, want one each", q, w)
		}
		cancel()
		for range 2 {
			if err := <-errs; !errors.Is(err, context.Canceled) {
				t.Errorf("a canceled request waits to %v, want context.Canceled", err)
			}
		}
		second.leave()
		worker.leave()
		f.wantEmpty(t)
	})
}

// Who waits for his client holds no turn, also when he reads and writes at once.
func TestRestGivesTheTurnToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fairnessOf(FairLimits{Turns: 1})
		slow := f.mustEnter(t, guest("acme", "a"))
		slow.rest()
		slow.rest()
		slow.work()
		other := f.mustEnter(t, guest("acme", "a")) // would not come back if slow held it
		resumed := false
		go func() {
			slow.work()
			resumed = true
		}()
		synctest.Wait()
		if resumed {
			t.Error("work goes on without a turn")
		}
		other.leave()
		synctest.Wait()
		if !resumed {
			t.Error("work does not go on although the turn is free")
		}
		slow.leave()
		f.wantEmpty(t)
	})
}

// As long as an org is alone it may take all turns. Beside others, and for a second
// after, it gets twice what they want, and one for each processor anyway.
func TestAnOrgAloneHasAllTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fairnessOf(FairLimits{Turns: 16, LimitWait: time.Millisecond})
		fill := func() (n int) {
			var in []*pass
			for {
				p, err := f.enter(t.Context(), guest("acme", "a"), places, 0)
				if err != nil {
					t.Fatalf("enter = %v", err)
				}
				in = append(in, p)
				if err := p.begin(); err != nil {
					break
				}
				n++
			}
			for _, p := range in {
				p.leave()
			}
			return n
		}
		want := func(when string, want int) {
			t.Helper()
			if n := fill(); n != want {
				t.Errorf("%s an org has %d turns, want %d", when, n, want)
			}
		}
		want("alone", 16)
		f.mustEnter(t, guest("beta", "b")).leave()
		want("after another was here", 2)
		var others []*pass
		for _, org := range []string{"beta", "beta", "gamma"} {
			others = append(others, f.mustEnter(t, guest(org, "b")))
		}
		want("beside three requests of others", 6)
		for _, p := range others {
			p.leave()
		}
		time.Sleep(mixedFor)
		want("alone again", 16)
		for i := range 9 {
			others = append(others, f.mustEnter(t, guest(fmt.Sprint("org", i), "b")))
		}
		want("beside nine others", 7) // what they leave
	})
}

// What is remembered of tokens and orgs is bounded, and forgotten in time.
func TestFairnessForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fairnessOf(FairLimits{})
		stays := f.mustEnter(t, guest("acme", "stays"))
		for i := range tokensMost + 100 {
			f.mustEnter(t, guest(fmt.Sprint("org", i%1000), fmt.Sprint("token", i))).leave()
		}
		if n := len(f.tokens); n > tokensMost+1 {
			t.Errorf("%d tokens are remembered, want at most %d", n, tokensMost+1)
		}
		time.Sleep(idleFor)
		for range tokensMost {
			f.mustEnter(t, guest("acme", "comes back")).leave()
		}
		if n, orgs := len(f.tokens), len(f.orgs); n != 2 || orgs != 1 {
			t.Errorf("after a minute %d tokens of %d orgs are remembered, want the 2 of 1 that are used", n, orgs)
		}
		stays.leave()
		f.wantEmpty(t)
	})
}

// Many at once, with clients that go away, over every limit there is: nobody is
// left behind.
func TestFairnessUnderRace(t *testing.T) {
	f := fairnessOf(FairLimits{
		TokenRequests: 3, OrgRequests: 5, Requests: 8, TokenUpload: 5, OrgUpload: 8, Upload: 12, Turns: 2, LimitWait: 2 * time.Millisecond,
	})
	var clients sync.WaitGroup
	for i := range 24 {
		clients.Go(func() {
			who := guest(fmt.Sprint("org", i%3), fmt.Sprint("token", i%6))
			for n := range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				if n%5 == 0 {
					time.AfterFunc(100*time.Microsecond, cancel)
				}
				p, err := f.enter(ctx, who, places, int64(n%4))
				if err == nil {
					if p.begin() == nil {
						p.rest()
						runtime.Gosched()
						p.work()
					}
					p.leave()
				}
				cancel()
			}
		})
	}
	clients.Wait()
	f.wantEmpty(t)
}

// BenchmarkFairness is what a request that nobody is in the way of pays.
func BenchmarkFairness(b *testing.B) {
	f := fairnessOf(FairLimits{TokenRate: 1_000_000, TokenBurst: 1_000_000_000})
	who := guest("acme", "0123456789abcdef")
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		p, err := f.enter(ctx, who, places, 0)
		if err != nil {
			b.Fatal(err)
		}
		if err := p.begin(); err != nil {
			b.Fatal(err)
		}
		p.leave()
	}
}
