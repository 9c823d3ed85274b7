package wire

import (
	"errors"
	"io"
	"strings"
	"sync"
)

// A SidebandForm is how a pack or a report is interleaved with messages.
type SidebandForm uint8

// The forms a client may ask for.
const (
	NoSideband    SidebandForm = iota // bytes as they are, no messages
	SidebandSmall                     // side-band: pkt-lines of at most 1000 bytes
	Sideband64k                       // side-band-64k: pkt-lines of at most 65520 bytes
)

// The bands of a sideband stream.
const (
	BandData     = 1 // the pack or the report
	BandProgress = 2 // text for the user
	BandError    = 3 // a last text; the stream ends with it
)

// payload is how many bytes one packet carries beside its length and its band.
func (f SidebandForm) payload() int {
	if f == SidebandSmall {
		return 1000 - 5
	}
	return MaxPacket - 5
}

// A Sideband writes the bands of one answer. It is safe for concurrent use;
// a packet is never torn. With NoSideband what is written to it passes as it
// is and messages are dropped, so a caller need not ask which form is spoken.
type Sideband struct {
	form SidebandForm

	mu  sync.Mutex // guards dst and buf
	dst io.Writer
	buf []byte
}

var (
	_ io.Writer     = (*Sideband)(nil)
	_ io.ReaderFrom = (*Sideband)(nil)
)

// NewSideband writes to dst in the given form.
func NewSideband(dst io.Writer, form SidebandForm) *Sideband {
	return &Sideband{form: form, dst: dst}
}

// Write sends p on band 1, in as many packets as it needs.
func (s *Sideband) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.form == NoSideband {
		return s.dst.Write(p)
	}
	return s.send(BandData, p)
}

// ReadFrom sends all of r on band 1, a packet for each read, into which r reads. It
// implements io.ReaderFrom; the error is r's or that of the destination.
func (s *Sideband) ReadFrom(r io.Reader) (sent int64, err error) {
	const head = 5
	buf := make([]byte, head+s.form.payload())
	for {
		n, rerr := r.Read(buf[head:])
		if n > 0 {
			if err := s.sendWhole(buf[:head+n]); err != nil {
				return sent, err
			}
			sent += int64(n)
		}
		if errors.Is(rerr, io.EOF) {
			return sent, nil
		}
		if rerr != nil {
			return sent, rerr
		}
	}
}

// sendWhole sends a packet of band 1, whose first five bytes are for its head.
func (s *Sideband) sendWhole(packet []byte) error {
	if s.form == NoSideband {
		packet = packet[5:]
	} else {
		appendLength(packet[:0], len(packet))
		packet[4] = BandData
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.dst.Write(packet)
	return err
}

// Told sends text of git's own on band 2 as it is: it may end within a line, and
// git's progress moves back to the beginning of one.
func (s *Sideband) Told(text []byte) error {
	if s.form == NoSideband {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.send(BandProgress, text)
	return err
}

// Progress sends text on band 2, where git shows each line with "remote: "
// before it. Control characters are replaced and a missing last LF is added.
func (s *Sideband) Progress(text string) error {
	if s.form == NoSideband || text == "" {
		return nil
	}
	text = cleanText(text, true)
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.send(BandProgress, []byte(text))
	return err
}

// Fatal sends one line on band 3, after which git's client gives up. With
// NoSideband there is no way to say it and nothing is written.
func (s *Sideband) Fatal(text string) error {
	if s.form == NoSideband {
		return nil
	}
	text = clipText(cleanText(text, false), s.form.payload()-1) + "\n"
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.send(BandError, []byte(text))
	return err
}

// KeepAlive sends an empty packet on band 2, which clients and proxies take as a sign of life.
func (s *Sideband) KeepAlive() error {
	if s.form == NoSideband {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := io.WriteString(s.dst, "0005\x02")
	return err
}

// Flush ends the stream with a flush-pkt. With NoSideband it writes nothing.
func (s *Sideband) Flush() error {
	if s.form == NoSideband {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := io.WriteString(s.dst, "0000")
	return err
}

func (s *Sideband) send(band byte, p []byte) (sent int, err error) {
	for len(p) > 0 {
		n := min(len(p), s.form.payload())
		s.buf = appendLength(s.buf[:0], n+5)
		s.buf = append(s.buf, band)
		s.buf = append(s.buf, p[:n]...)
		if _, err := s.dst.Write(s.buf); err != nil {
			return sent, err
		}
		sent, p = sent+n, p[n:]
	}
	return sent, nil
}

// A Demux reads band 1 of a sideband stream, as a client does.
//
//	sideband-packet = pkt-line(%x01 data / %x02 text / %x03 text)
type Demux struct {
	src      *Reader
	progress io.Writer
	rest     []byte
	err      error
}

var _ io.Reader = (*Demux)(nil)

// NewDemux reads from src until its flush-pkt and copies band 2 to progress, which may be nil.
func NewDemux(src *Reader, progress io.Writer) *Demux {
	if progress == nil {
		progress = io.Discard
	}
	return &Demux{src: src, progress: progress}
}

// Read gives the bytes of band 1. After the flush-pkt the error is io.EOF; a
// text on band 3 is a *RemoteError, a stream without an end io.ErrUnexpectedEOF.
func (d *Demux) Read(p []byte) (int, error) {
	for len(d.rest) == 0 && d.err == nil && len(p) > 0 {
		d.rest, d.err = d.next()
	}
	if len(d.rest) == 0 {
		return 0, d.err
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

func (d *Demux) next() ([]byte, error) {
	kind, payload, err := d.src.Next()
	switch {
	case errors.Is(err, io.EOF):
		return nil, io.ErrUnexpectedEOF
	case err != nil:
		return nil, err
	case kind == Flush:
		return nil, io.EOF
	case kind != Data || len(payload) == 0:
		return nil, protocolErrorf("sideband: packet without a band")
	}
	switch band, text := payload[0], payload[1:]; band {
	case BandData:
		return text, nil
	case BandProgress:
		_, err := d.progress.Write(text)
		return nil, err
	case BandError:
		return nil, &RemoteError{Text: strings.TrimSuffix(string(text), "\n")}
	default:
		return nil, protocolErrorf("sideband: band %d", band)
	}
}
