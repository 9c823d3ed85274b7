package gitstore

import (
	"errors"
	"io"
)

const (
	aheadPiece  = 128 << 10 // bytes inflated at a time
	aheadPieces = 4
)

// errNotRead is what a source is left with when nobody reads on.
var errNotRead = errors.New("reader was closed")

// aheadReader reads its source in a goroutine of its own, at most aheadPieces
// pieces ahead, so that inflating goes on while a client is being written to.
// Close ends the goroutine and closes the source.
type aheadReader struct {
	src  io.ReadCloser
	full chan []byte   // pieces read; closed after the last
	free chan []byte   // pieces to fill
	stop chan struct{} // closed by Close
	err  error         // how the source ended; valid once full is closed

	piece []byte // being read from, with its unread rest
	rest  []byte
}

func readAhead(src io.ReadCloser) *aheadReader {
	a := &aheadReader{
		src: src, full: make(chan []byte, aheadPieces), free: make(chan []byte, aheadPieces), stop: make(chan struct{}),
	}
	for range aheadPieces {
		a.free <- make([]byte, aheadPiece)
	}
	go a.run()
	return a
}

func (a *aheadReader) run() {
	defer close(a.full)
	for a.err == nil {
		select {
		case <-a.stop:
			a.err = errNotRead
		case piece := <-a.free:
			var n int
			n, a.err = readPiece(a.src, piece[:aheadPiece])
			a.full <- piece[:n] // has room for all pieces there are
		}
	}
}

// readPiece fills p unless the source ends; unlike io.ReadFull it keeps the source's own error.
func readPiece(src io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = src.Read(p[n:])
		n += m
	}
	return n, err
}

func (a *aheadReader) Read(p []byte) (int, error) {
	for len(a.rest) == 0 {
		if a.piece != nil {
			a.free <- a.piece // has room for all pieces there are
			a.piece = nil
		}
		piece, ok := <-a.full
		if !ok {
			return 0, a.err
		}
		a.piece, a.rest = piece, piece
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

func (a *aheadReader) Close() error {
	close(a.stop)
	for range a.full { // until the goroutine has let go of the source
	}
	return a.src.Close()
}
