package redisdb_test

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
)

// cutter is a TCP proxy that can lose a reply: while it is armed, the next bytes
// from the server are thrown away and the connection is cut.
type cutter struct {
	listener net.Listener
	server   string
	armed    atomic.Bool
	cuts     atomic.Int64

	mu    sync.Mutex // guards conns
	conns []net.Conn
	work  sync.WaitGroup
}

func newCutter(t *testing.T, server string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	c := &cutter{listener: l, server: server}
	c.work.Go(c.serve)
	t.Cleanup(func() {
		_ = l.Close()
		c.mu.Lock()
		for _, conn := range c.conns {
			_ = conn.Close()
		}
		c.mu.Unlock()
		c.work.Wait()
	})
	return c
}

func (c *cutter) url() string { return "redis://" + c.listener.Addr().String() }

func (c *cutter) serve() {
	for {
		client, err := c.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", c.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		c.mu.Lock()
		c.conns = append(c.conns, client, server)
		c.mu.Unlock()
		c.work.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
		c.work.Go(func() { c.replies(client, server); _ = client.Close(); _ = server.Close() })
	}
}

func (c *cutter) replies(client, server net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if n > 0 && c.armed.CompareAndSwap(true, false) {
			c.cuts.Add(1)
			return
		}
		if _, werr := client.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// The client sends a script again when its reply was lost. The batch has an ID even
// if the caller gave none, so it is applied once.
func TestLostReplyIsNotAppliedTwice(t *testing.T) {
	s := redistest.Start(t)
	cut := newCutter(t, s.Addr())
	db := open(t, cut.url())
	const space, rounds = ledger.Space("repo/resend"), 20
	for i := range rounds {
		b := ledger.Batch{Space: space, Adds: []ledger.Add{{Key: "n", Delta: 1}}, Log: []byte("x")}
		if i%2 == 0 {
			b.ID = fmt.Sprint("named-", i)
		}
		cut.armed.Store(true)
		r, err := db.Apply(t.Context(), b)
		if err != nil {
			t.Fatalf("Apply with its reply lost = %v, want the client to ask again", err)
		}
		if want := uint64(i + 1); r.Seq != want {
			t.Fatalf("Apply with its reply lost gave number %d, want %d", r.Seq, want)
		}
	}
	if got := get(t, db, space, "n"); got != fmt.Sprint(rounds) {
		t.Errorf("counter = %s after %d batches, want each applied once", got, rounds)
	}
	if got := cut.cuts.Load(); got != rounds {
		t.Errorf("%d replies were lost, want %d: the test did not test", got, rounds)
	}
}

func TestSameIDAtOnceOnTwoNodes(t *testing.T) {
	s := redistest.Start(t)
	one, two := open(t, s.URL()), open(t, s.URL())
	const space = ledger.Space("repo/at-once")
	b := ledger.Batch{ID: "same", Space: space, Adds: []ledger.Add{{Key: "n", Delta: 1}}, Log: []byte("x")}
	results := make([]ledger.Result, 32)
	var work sync.WaitGroup
	for i := range results {
		work.Go(func() {
			db := one
			if i%2 == 1 {
				db = two
			}
			var err error
			if results[i], err = db.Apply(t.Context(), b); err != nil {
				t.Errorf("Apply %d = %v, want an answer", i, err)
			}
		})
	}
	work.Wait()
	for i, r := range results {
		if r != results[0] {
			t.Errorf("Apply %d answered %v, want %v as the first", i, r, results[0])
		}
	}
	if got := get(t, one, space, "n"); got != "1" {
		t.Errorf("counter = %s after one batch sent 32 times, want 1", got)
	}
}

func TestAnswersAreKeptTenMinutes(t *testing.T) {
	s := redistest.Start(t)
	db := open(t, s.URL())
	if _, err := db.Apply(t.Context(), ledger.Batch{ID: "x", Space: "repo/ttl", Log: []byte("1")}); err != nil {
		t.Fatalf("Apply = %v, want it applied", err)
	}
	var ms int64
	if _, err := fmt.Sscan(s.Do("pttl", "headgate:{repo/ttl}:answer:named/x"), &ms); err != nil {
		t.Fatalf("time to live of the answer: %v", err)
	}
	if left := time.Duration(ms) * time.Millisecond; left > ledger.BatchIDMemory || left < ledger.BatchIDMemory-time.Minute {
		t.Errorf("the answer is kept another %s, want a little below %s", left, ledger.BatchIDMemory)
	}
}

// A script the server has forgotten (restart, SCRIPT FLUSH) is sent again in full.
func TestForgottenScript(t *testing.T) {
	s := redistest.Start(t)
	db := open(t, s.URL())
	for i := range 3 {
		if _, err := db.Apply(t.Context(), ledger.Batch{Space: "repo/f", Adds: []ledger.Add{{Key: "n", Delta: 1}}}); err != nil {
			t.Fatalf("Apply %d = %v, want it applied", i, err)
		}
		if got := s.Do("script", "flush"); !strings.Contains(got, "OK") {
			t.Fatalf("script flush = %q, want OK", got)
		}
	}
	if got := get(t, db, "repo/f", "n"); got != "3" {
		t.Errorf("counter = %s, want 3", got)
	}
}
