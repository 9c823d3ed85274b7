package httpapi

import (
	"io"
	"sync"
)

// heldBytes is how much of an answer is gathered before it is sent: all of a short one,
// so that what fails has a status; and enough of a long one that sending costs little.
const heldBytes = 256 << 10

var heldBuffers = sync.Pool{New: func() any { return new([heldBytes]byte) }}

// A heldWriter writes an answer whose status is sent with its first bytes. It is ended by
// release.
type heldWriter struct {
	x      *exchange
	begin  func() error
	buf    *[heldBytes]byte // nil until something is held
	n      int              // bytes of it
	broken bool             // the connection is
}

func (w *heldWriter) Write(p []byte) (int, error) {
	if w.n+len(p) > heldBytes {
		if err := w.flush(); err != nil {
			return 0, err
		}
	}
	if len(p) > heldBytes {
		return w.send(p)
	}
	if w.buf == nil {
		w.buf = heldBuffers.Get().(*[heldBytes]byte)
	}
	w.n += copy(w.buf[w.n:], p)
	return len(p), nil
}

// flush sends what is held, after the status.
func (w *heldWriter) flush() error {
	if !w.x.started() {
		if err := w.begin(); err != nil {
			return err
		}
	}
	if w.n == 0 {
		return nil
	}
	held := w.buf[:w.n]
	w.n = 0
	_, err := w.send(held)
	return err
}

func (w *heldWriter) send(p []byte) (int, error) {
	n, err := w.x.Write(p)
	w.broken = w.broken || err != nil
	return n, err
}

func (w *heldWriter) release() {
	if w.buf != nil {
		heldBuffers.Put(w.buf)
		w.buf = nil
	}
}

var _ io.Writer = (*heldWriter)(nil)
