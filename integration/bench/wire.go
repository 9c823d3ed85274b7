package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// A conn is one kept-alive HTTP/1.1 connection that writes finished requests and
// reads just enough of the answers: the load must not cost what is measured. It
// connects when it is first used, and again after a pause that a server may have
// taken for the end.
type conn struct {
	address string
	net     net.Conn
	used    time.Time
	in      *bufio.Reader
	body    []byte // of the last answer
	buf     []byte // what was read last
}

// pause is less than servers wait for a next request.
const pause = 5 * time.Second

// connect gives a connection to address, closed with the group.
func (w *workshop) connect(address string) *conn {
	c := newConn(address)
	w.onStop(c.close)
	return c
}

func newConn(address string) *conn {
	return &conn{address: address, in: bufio.NewReaderSize(nil, 16<<10)}
}

// connectAll gives n of them.
func (w *workshop) connectAll(address string, n int) []*conn {
	conns := make([]*conn, n)
	for i := range conns {
		conns[i] = w.connect(address)
	}
	return conns
}

func (c *conn) close() {
	if c.net != nil {
		c.net.Close()
	}
}

func (c *conn) wake() (err error) {
	now := time.Now()
	if c.net == nil || now.Sub(c.used) > pause {
		c.close()
		if c.net, err = net.Dial("tcp", c.address); err != nil {
			return err
		}
		c.in.Reset(c.net)
	}
	c.used = now
	return nil
}

// message is a whole request; more are header lines. Its body, if any, stands at its end.
func message(method, target, authorization, contentType string, body []byte, more ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: bench\r\n", method, target)
	if authorization != "" {
		fmt.Fprintf(&b, "Authorization: %s\r\n", authorization)
	}
	if method != "GET" {
		fmt.Fprintf(&b, "Content-Type: %s\r\nContent-Length: %d\r\n", contentType, len(body))
	}
	for _, line := range more {
		b.WriteString(line + "\r\n")
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}

// do sends a request and reads the answer, whose status must be want. The body is
// good until the next call.
func (c *conn) do(request []byte, want int) ([]byte, error) {
	c.body = c.body[:0]
	err := c.exchange(request, want, func(p []byte) { c.body = append(c.body, p...) })
	return c.body, err
}

// skim is do for an answer whose body is only counted.
func (c *conn) skim(request []byte, want int) (n int64, err error) {
	err = c.exchange(request, want, func(p []byte) { n += int64(len(p)) })
	return n, err
}

func (c *conn) exchange(request []byte, want int, take func([]byte)) error {
	if err := c.wake(); err != nil {
		return err
	}
	if _, err := c.net.Write(request); err != nil {
		return err
	}
	status, length, err := c.head()
	if err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if status != want {
		take = func(p []byte) { c.body = append(c.body, p...) }
		c.body = c.body[:0]
	}
	if length >= 0 {
		err = c.read(length, take)
	} else {
		err = c.chunks(take)
	}
	if err == nil && status != want {
		err = fmt.Errorf("status %d, want %d: %.300s", status, want, c.body)
	}
	return err
}

// head reads status line and headers; length is -1 for a body in chunks.
func (c *conn) head() (status int, length int64, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	if len(line) < 12 {
		return 0, 0, fmt.Errorf("status line %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, 0, err
	}
	for {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return 0, 0, err
		}
		if len(line) <= 2 {
			return status, length, nil
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			length, err = strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			length = -1
		}
		if err != nil {
			return 0, 0, err
		}
	}
}

// read takes n bytes; large ones come straight from the connection.
func (c *conn) read(n int64, take func([]byte)) error {
	if size := min(n, 256<<10); int64(len(c.buf)) < size {
		c.buf = make([]byte, size)
	}
	for n > 0 {
		k, err := c.in.Read(c.buf[:min(int64(len(c.buf)), n)])
		take(c.buf[:k])
		n -= int64(k)
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) chunks(take func([]byte)) error {
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		size, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 64)
		if err != nil {
			return err
		}
		if size > 0 {
			if err := c.read(size, take); err != nil {
				return err
			}
		}
		if _, err := io.CopyN(io.Discard, c.in, int64(len("\r\n"))); err != nil || size == 0 {
			return err
		}
	}
}
