package client

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
)

// event is a line of an answer, as httpapi writes it.
type event struct {
	Type string
	Org  string
	Repo string
	GC   *struct {
		Dead, Condemned, Merged, Removed int
		Indexed                          bool
	}
	Findings []Finding
	File     *file
	Bytes    int64
	SHA256   string
	Pack     string
	Space    []byte
	ID       string
	Code     string
	Error    string
}

type file struct {
	Name  string
	Kind  string
	Space []byte
	Repo  string
	Pack  string
	Size  int64
}

// Limits of what is read from a server.
const (
	maxLine = 64 << 20 // the findings of one repo
	maxData = 16 << 20 // the bytes behind one line
)

// events reads an answer.
type events struct {
	r *bufio.Reader
}

func newEvents(r io.Reader) *events { return &events{bufio.NewReaderSize(r, 64<<10)} }

// each calls see with the events that tell something, until the result. A server's
// error is a *ServerError.
func (s *events) each(see func(*events, event) error) error {
	for {
		e, err := s.next()
		switch {
		case err != nil:
			return err
		case e.Type == "result":
			if _, err := s.r.ReadByte(); err != io.EOF {
				return fmt.Errorf("%w: more behind its end", ErrBadAnswer)
			}
			return nil
		}
		if err := see(s, e); err != nil {
			return err
		}
	}
}

// next reads the next event but for those of progress.
func (s *events) next() (e event, err error) {
	for {
		line, err := s.line()
		if err != nil {
			return e, err
		}
		e = event{}
		if err := json.Unmarshal(line, &e); err != nil {
			return e, fmt.Errorf("%w: a line is no event", ErrBadAnswer)
		}
		e.printable()
		switch {
		case e.Type == "progress":
			continue
		case e.Type == "error":
			return e, &ServerError{Code: e.Code, Text: e.Error}
		case e.Type == "file" && e.File == nil, e.Type == "data" && (e.Bytes <= 0 || e.Bytes > maxData), e.Type != "data" && e.Bytes != 0:
			return e, fmt.Errorf("%w: an event of kind %.20q", ErrBadAnswer, e.Type)
		}
		return e, nil
	}
}

func (s *events) line() ([]byte, error) {
	var line []byte
	for {
		part, err := s.r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return bytes.TrimSpace(line), nil
		case err != bufio.ErrBufferFull:
			return nil, cut(err)
		case len(line) > maxLine:
			return nil, fmt.Errorf("%w: a line without an end", ErrBadAnswer)
		}
	}
}

// cut says that an answer ended too early, unless it was for another reason.
func cut(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return ErrCut
	}
	return fmt.Errorf("%w: %w", ErrCut, err)
}

// file writes the bytes of the file that has begun to w, and checks their sum.
func (s *events) file(w io.Writer) error {
	sum := sha256.New()
	for {
		e, err := s.next()
		if err != nil {
			return err
		}
		switch e.Type {
		case "data":
			if err := s.data(e.Bytes, io.MultiWriter(w, sum)); err != nil {
				return err
			}
		case "end":
			if e.SHA256 != hex.EncodeToString(sum.Sum(nil)) {
				return fmt.Errorf("%w: a file does not have its checksum", ErrBadAnswer)
			}
			return nil
		default:
			return errOutOfPlace
		}
	}
}

// data passes on the bytes behind a data event.
func (s *events) data(n int64, w io.Writer) error {
	body := &source{r: s.r}
	_, err := io.CopyN(w, body, n)
	if err != nil && body.err != nil {
		return cut(body.err)
	}
	return err
}

// source keeps its own error apart from that of the writer.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.err = err
	return n, err
}
