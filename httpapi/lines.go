package httpapi

import (
	"bytes"
	"io"
	"sync"
)

// A lineReader takes a body apart into lines with bounded memory: one buffer that
// grows in few steps up to a line's limit. A line that next gives is valid until
// the following call and may be written to.
type lineReader struct {
	r     io.Reader
	buf   []byte
	start int // of the line that is being read
	seen  int // up to here there is no line end
	end   int // of what was read
	limit int // bytes of a line
	blank int // bytes of blank lines so far
	err   error
}

// The sizes of a line buffer. The first takes the lines of small commits, the
// third a full chunk with its JSON. With the one it grows from, the last is under
// the 24 MiB that a stream may use.
const (
	smallLine = 32 << 10
	midLine   = 512 << 10
	chunkLine = 6 << 20
)

// maxBlank bounds the blank lines of one body, in bytes.
const maxBlank = 64 << 10

var smallLines, chunkLines = linePool(smallLine), linePool(chunkLine)

func linePool(size int) *sync.Pool {
	return &sync.Pool{New: func() any { b := make([]byte, size); return &b }}
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: r, buf: *smallLines.Get().(*[]byte), limit: limit}
}

// release lets go of the buffer; lines it gave are no longer valid.
func (l *lineReader) release() {
	recycle(l.buf)
	l.buf = nil
}

func recycle(b []byte) {
	switch len(b) {
	case smallLine:
		smallLines.Put(&b)
	case chunkLine:
		chunkLines.Put(&b)
	}
}

// next gives the next line that is not blank, without its LF or CRLF; the last LF
// may be missing. It is io.EOF after the last one.
func (l *lineReader) next() ([]byte, error) {
	for {
		line, err := l.line()
		if err != nil {
			return nil, err
		}
		if line = bytes.TrimSuffix(line, []byte("\r")); len(bytes.TrimSpace(line)) > 0 {
			return line, nil
		}
		if l.blank += len(line) + 1; l.blank > maxBlank {
			return nil, invalid("blank lines are over %d bytes", maxBlank)
		}
	}
}

func (l *lineReader) line() ([]byte, error) {
	for {
		if i := bytes.IndexByte(l.buf[l.seen:l.end], '\n'); i >= 0 {
			line := l.buf[l.start : l.seen+i]
			l.start = l.seen + i + 1
			l.seen = l.start
			return line, nil
		}
		l.seen = l.end
		if l.end-l.start > l.limit {
			return nil, tooLarge("a line is over %d bytes", l.limit)
		}
		if l.err != nil {
			if l.err != io.EOF || l.start == l.end {
				return nil, l.err
			}
			line := l.buf[l.start:l.end]
			l.start = l.end
			return line, nil
		}
		l.fill()
	}
}

// fill reads once, making room first.
func (l *lineReader) fill() {
	if l.end == len(l.buf) {
		if l.start == 0 {
			l.grow()
		} else {
			l.end = copy(l.buf, l.buf[l.start:l.end])
			l.seen -= l.start
			l.start = 0
		}
	}
	n, err := l.r.Read(l.buf[l.end:])
	l.end += n
	l.err = bodyError(err)
}

func (l *lineReader) grow() {
	var bigger []byte
	switch n := len(l.buf); {
	case n < midLine:
		bigger = make([]byte, midLine)
	case n < chunkLine:
		bigger = *chunkLines.Get().(*[]byte)
	default:
		bigger = make([]byte, max(n, l.limit)+64)
	}
	copy(bigger, l.buf[:l.end])
	recycle(l.buf)
	l.buf = bigger
}
