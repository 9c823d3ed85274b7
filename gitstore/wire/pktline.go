package wire

import (
	"errors"
	"fmt"
	"io"
)

const (
	// MaxPacket is the length of the longest pkt-line, its four digits included.
	MaxPacket = 65520
	// MaxPayload is the length of the longest payload of a pkt-line.
	MaxPayload = MaxPacket - 4
)

// A PacketKind tells a pkt-line with a payload from the three special packets.
type PacketKind uint8

// The kinds of packet.
const (
	Data        PacketKind = iota + 1
	Flush                  // 0000, the end of a message or of a list in it
	Delim                  // 0001, between the sections of a v2 message
	ResponseEnd            // 0002, the end of an answer in stateless v2
)

func (k PacketKind) String() string {
	switch k {
	case Data:
		return "data"
	case Flush:
		return "flush"
	case Delim:
		return "delim"
	case ResponseEnd:
		return "response-end"
	}
	return "unknown"
}

// A Reader reads pkt-lines. It takes exactly the bytes of each packet from its
// source and none after it, so the source should be buffered, and whoever holds
// the source can read on where the Reader stopped. It holds one packet at a time.
//
//	pkt-line = 4*HEXDIG payload      ; the number counts its own four digits
//	flush = "0000"   delim = "0001"   response-end = "0002"
type Reader struct {
	src  io.Reader
	left int64 // bytes that may still be read; negative: any number
	most int64
	head [4]byte
	buf  []byte
}

// NewReader reads packets from src, at most maxBytes bytes of them; 0 sets no bound.
func NewReader(src io.Reader, maxBytes int64) *Reader {
	if maxBytes <= 0 {
		return &Reader{src: src, left: -1}
	}
	return &Reader{src: src, left: maxBytes, most: maxBytes}
}

// Next reads one packet. The payload is valid until the next call and is nil
// unless the kind is Data. At the end of the source between two packets the
// error is io.EOF, inside a packet io.ErrUnexpectedEOF; other errors are
// ErrBadLength, ErrTooLarge and what the source gave.
func (r *Reader) Next() (PacketKind, []byte, error) {
	if err := r.spend(len(r.head)); err != nil {
		return 0, nil, err
	}
	if _, err := io.ReadFull(r.src, r.head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return 0, nil, io.EOF
		}
		return 0, nil, fmt.Errorf("read pkt-line length: %w", err)
	}
	n, err := parseLength(r.head)
	if err != nil {
		return 0, nil, err
	}
	if n < 4 {
		return [...]PacketKind{Flush, Delim, ResponseEnd}[n], nil, nil
	}
	return r.payload(n - 4)
}

func (r *Reader) payload(n int) (PacketKind, []byte, error) {
	if err := r.spend(n); err != nil {
		return 0, nil, err
	}
	if cap(r.buf) < n {
		r.buf = make([]byte, n, max(n, 1024))
	}
	r.buf = r.buf[:n]
	if _, err := io.ReadFull(r.src, r.buf); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, fmt.Errorf("read pkt-line: %w", err)
	}
	return Data, r.buf, nil
}

func (r *Reader) spend(n int) error {
	if r.left < 0 {
		return nil
	}
	if int64(n) > r.left {
		return &LimitError{What: "bytes", Limit: r.most}
	}
	r.left -= int64(n)
	return nil
}

// parseLength gives 0, 1, 2 for the special packets and 4..MaxPacket for others.
func parseLength(head [4]byte) (int, error) {
	n := 0
	for _, c := range head {
		digit := hexDigit(c)
		if digit < 0 {
			return 0, fmt.Errorf("%w: %q", ErrBadLength, head[:])
		}
		n = n<<4 | digit
	}
	if n == 3 || n > MaxPacket {
		return 0, fmt.Errorf("%w: %q", ErrBadLength, head[:])
	}
	return n, nil
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// line reads a packet of a request and cuts one LF from its end.
func (r *Reader) line() (PacketKind, []byte, error) {
	kind, payload, err := r.Next()
	if n := len(payload); n > 0 && payload[n-1] == '\n' {
		payload = payload[:n-1]
	}
	return kind, payload, err
}

// A Writer writes pkt-lines, each with one call of its destination's Write.
// It is not safe for concurrent use.
type Writer struct {
	dst io.Writer
	buf []byte
}

// NewWriter writes packets to dst, which should be buffered if they are many and small.
func NewWriter(dst io.Writer) *Writer { return &Writer{dst: dst} }

// WriteData writes p as one packet; more than MaxPayload bytes are ErrPacketTooLong.
func (w *Writer) WriteData(p []byte) error { return writePacket(w, p) }

// WriteString is WriteData for a string. No LF is added.
func (w *Writer) WriteString(s string) error { return writePacket(w, s) }

func writePacket[T []byte | string](w *Writer, payload T) error {
	if len(payload) > MaxPayload {
		return fmt.Errorf("%w: %d bytes", ErrPacketTooLong, len(payload))
	}
	w.buf = appendLength(w.buf[:0], len(payload)+4)
	w.buf = append(w.buf, payload...)
	_, err := w.dst.Write(w.buf)
	return err
}

// WriteSplit writes p in as many packets as it needs, none if it is empty.
func (w *Writer) WriteSplit(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), MaxPayload)
		if err := w.WriteData(p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// Flush writes a flush-pkt. It does not flush the destination.
func (w *Writer) Flush() error { return w.special("0000") }

// Delim writes a delim-pkt.
func (w *Writer) Delim() error { return w.special("0001") }

// ResponseEnd writes a response-end-pkt.
func (w *Writer) ResponseEnd() error { return w.special("0002") }

func (w *Writer) special(digits string) error {
	_, err := io.WriteString(w.dst, digits)
	return err
}

const hexDigits = "0123456789abcdef"

func appendLength(b []byte, n int) []byte {
	return append(b, hexDigits[n>>12&15], hexDigits[n>>8&15], hexDigits[n>>4&15], hexDigits[n&15])
}
