package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// countingConn counts the writes that reach the connection.
type countingConn struct {
	stream
	writes *atomic.Int64
}

func (c countingConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.stream.Write(p)
}

type countingListener struct {
	net.Listener
	writes atomic.Int64
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &joiningConn{stream: countingConn{c.(*net.TCPConn), &l.writes}}, nil
}

// Whatever the length of an answer: its bytes are right, also on a connection that
// is used again or closed at once, and one of some pages is one write.
func TestShortAnswersAreOneWrite(t *testing.T) {
	g := newGate(t)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &countingListener{Listener: inner}
	server := g.server.HTTPServer()
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, r := g.server.newExchange(w, r)
		g.server.Metrics.begin()
		defer g.server.end(x, r)
		body := []byte(r.URL.Query().Get("body"))
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		x.joined(r, int64(len(body)))
		x.WriteHeader(200)
		_, _ = x.Write(body)
	})
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	for _, closing := range []bool{false, true} {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: closing}}
		for _, n := range []int{0, 1, 100, 2047, 2048, 2049, 3500, 3700, 3800, 3900, 4000, 4095, 4096, 4097, 8192, 12000, 12288, 12289, 16384, 20000, 50000} {
			body := strings.Repeat("b", n)
			before := l.writes.Load()
			resp, err := client.Get("http://" + inner.Addr().String() + "/?body=" + body)
			if err != nil {
				t.Fatalf("GET %d bytes, closing %v: %v", n, closing, err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || string(got) != body {
				t.Errorf("GET %d bytes, closing %v = %d bytes, %v", n, closing, len(got), err)
			}
			if writes := l.writes.Load() - before; n <= 12288 && writes != 1 {
				t.Errorf("GET %d bytes, closing %v took %d writes, want 1", n, closing, writes)
			}
		}
		client.CloseIdleConnections()
	}
}

// pipeStream is a connection that remembers what was written, or fails.
type pipeStream struct {
	stream
	wrote  bytes.Buffer
	fails  error
	closed bool
}

func (p *pipeStream) Write(b []byte) (int, error) {
	if p.fails != nil {
		return 0, p.fails
	}
	return p.wrote.Write(b)
}

func (p *pipeStream) ReadFrom(r io.Reader) (int64, error) { return p.wrote.ReadFrom(r) }
func (p *pipeStream) CloseWrite() error                   { return nil }
func (p *pipeStream) Close() error                        { p.closed = true; return nil }
func (p *pipeStream) SetWriteDeadline(time.Time) error    { return nil }

// What is held back comes before whatever happens next, and is never lost.
func TestHeldWriteGoesFirst(t *testing.T) {
	for name, next := range map[string]func(*joiningConn) error{
		"short write": func(c *joiningConn) error { _, err := c.Write([]byte("next")); return err },
		"long write": func(c *joiningConn) error {
			_, err := c.Write(append([]byte("next"), make([]byte, mostJoined)...))
			return err
		},
		"read from":   func(c *joiningConn) error { _, err := c.ReadFrom(strings.NewReader("next")); return err },
		"close write": func(c *joiningConn) error { return c.CloseWrite() },
		"close":       func(c *joiningConn) error { return c.Close() },
		"idle":        func(c *joiningConn) error { connState(c, http.StateIdle); return nil },
	} {
		p := &pipeStream{}
		c := &joiningConn{stream: p}
		c.joinNext()
		if _, err := c.Write([]byte("held ")); err != nil || p.wrote.Len() != 0 {
			t.Errorf("%s: the first write = %v and %d bytes sent, want it held back", name, err, p.wrote.Len())
		}
		err := next(c)
		got := strings.TrimRight(p.wrote.String(), "\x00")
		if want := strings.HasPrefix("held next", got) && strings.HasPrefix(got, "held "); err != nil || !want {
			t.Errorf("%s: %v, and %q was sent", name, err, got)
		}
		if c.held != nil {
			t.Errorf("%s: the buffer was not given back", name)
		}
	}
}

func TestHeldWriteThatFails(t *testing.T) {
	broken := errors.New("connection is broken")
	p := &pipeStream{fails: broken}
	c := &joiningConn{stream: p}
	c.joinNext()
	if _, err := c.Write([]byte("held")); err != nil {
		t.Fatalf("the held write = %v", err)
	}
	if n, err := c.Write([]byte("next")); n != 0 || !errors.Is(err, broken) {
		t.Errorf("the next write = %d, %v; want %v", n, err, broken)
	}
	if err := c.Close(); err != nil || !p.closed {
		t.Errorf("Close = %v, closed %v", err, p.closed)
	}
}
