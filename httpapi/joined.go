package httpapi

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// A Listener accepts connections whose short answers leave in one write. net/http
// gathers headers and body in 4 KiB, so that an answer a little longer than that, as
// a file of one page, would be two packets, two system calls and two wake-ups of the
// client. It is for plain connections; others pass through it unchanged.
func Listener(l net.Listener) net.Listener { return joiningListener{l} }

type joiningListener struct{ net.Listener }

func (l joiningListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		return &joiningConn{stream: tcp}, nil
	}
	return c, err
}

// stream is what net/http looks for in a connection.
type stream interface {
	net.Conn
	io.ReaderFrom
	CloseWrite() error
}

var _ stream = (*net.TCPConn)(nil)

const (
	httpBuffer = 4 << 10  // what net/http gathers
	mostJoined = 16 << 10 // up to which copying costs less than another write
)

var joinBuffers = sync.Pool{New: func() any { return new([mostJoined]byte) }}

// joiningConn can hold one write back until the next one, or until the answer is over.
type joiningConn struct {
	stream

	mu    sync.Mutex // held while writing; guards what follows
	join  bool       // the next write is to be held back
	held  *[mostJoined]byte
	bytes int // of held
}

// joinNext has the next write held back.
func (c *joiningConn) joinNext() {
	c.mu.Lock()
	c.join = true
	c.mu.Unlock()
}

func (c *joiningConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch before := c.bytes; {
	case c.join && before == 0 && len(p) <= httpBuffer:
		c.join, c.held = false, joinBuffers.Get().(*[mostJoined]byte)
		c.bytes = copy(c.held[:], p)
		return len(p), nil
	case before > 0 && before+len(p) <= mostJoined:
		c.bytes += copy(c.held[before:], p)
		if err := c.release(); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	c.join = false
	if err := c.release(); err != nil {
		return 0, err
	}
	return c.stream.Write(p)
}

// release writes what is held back. The caller holds c.mu.
func (c *joiningConn) release() error {
	if c.bytes == 0 {
		return nil
	}
	_, err := c.stream.Write(c.held[:c.bytes])
	joinBuffers.Put(c.held)
	c.held, c.bytes = nil, 0
	return err
}

// settle writes what no other write has followed.
func (c *joiningConn) settle() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.join = false
	return c.release()
}

func (c *joiningConn) ReadFrom(r io.Reader) (int64, error) {
	if err := c.settle(); err != nil {
		return 0, err
	}
	return c.stream.ReadFrom(r)
}

func (c *joiningConn) CloseWrite() error {
	if err := c.settle(); err != nil {
		return err
	}
	return c.stream.CloseWrite()
}

// Close does not wait for a write that blocks: then nothing is held back.
func (c *joiningConn) Close() error {
	if c.mu.TryLock() {
		if c.bytes > 0 {
			_ = c.stream.SetWriteDeadline(time.Now().Add(time.Second))
			_ = c.release()
		}
		c.mu.Unlock()
	}
	return c.stream.Close()
}

type connKey struct{}

// withConn lets joined find the connection.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if j, ok := c.(*joiningConn); ok {
		return context.WithValue(ctx, connKey{}, j)
	}
	return ctx
}

// connState settles a connection whose answer is over.
func connState(c net.Conn, state http.ConnState) {
	if j, ok := c.(*joiningConn); ok && state == http.StateIdle {
		_ = j.settle() // the next read tells of what has gone wrong
	}
}

// joined has headers and a body of n bytes leave in one write, where they would need
// two. It is called before the headers are written, by who writes the body at once.
func (x *exchange) joined(r *http.Request, n int64) {
	if n <= httpBuffer/2 || n > mostJoined-httpBuffer {
		return
	}
	if c, ok := r.Context().Value(connKey{}).(*joiningConn); ok {
		c.joinNext()
	}
}
