package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// The commands of protocol v2 that are answered.
const (
	CommandLsRefs = "ls-refs"
	CommandFetch  = "fetch"
)

// A V2Request is one command of protocol v2 with all its arguments. Exactly
// one of LsRefs and Fetch is set.
//
//	request = pkt-line("command=" name LF) *pkt-line(capability LF)
//	          [ delim-pkt *pkt-line(argument LF) ] flush-pkt
type V2Request struct {
	Capabilities Capabilities // agent, session-id, object-format
	LsRefs       *LsRefsRequest
	Fetch        *FetchRequest
}

// ReadV2Request reads one command from a body; what follows it is left to the
// caller only if body is a *bufio.Reader. A body that is empty or only a flush-pkt is io.EOF: the client has nothing to
// ask. Other errors are typed as errors.go says; a body cut short is io.ErrUnexpectedEOF.
func ReadV2Request(body io.Reader, limits Limits) (*V2Request, error) {
	limits = limits.withDefaults()
	a := &argumentReader{pkt: NewReader(buffered(body), limits.Bytes), limits: limits}
	req, err := a.request()
	if err == nil || errors.Is(err, io.EOF) {
		return req, err
	}
	return nil, fmt.Errorf("read v2 request: %w", err)
}

// buffered gives r itself if it is buffered already, so that what follows the message stays with its owner.
func buffered(r io.Reader) io.Reader {
	if br, ok := r.(*bufio.Reader); ok {
		return br
	}
	return bufio.NewReader(r)
}

// argumentReader reads the lines of one v2 request.
type argumentReader struct {
	pkt    *Reader
	limits Limits
}

func (a *argumentReader) request() (*V2Request, error) {
	name, req, hasArguments, err := a.head()
	if err != nil {
		return nil, err
	}
	next := a.argument
	if !hasArguments {
		next = func() (string, error) { return "", io.EOF }
	}
	switch name {
	case CommandLsRefs:
		req.LsRefs, err = readLsRefs(next, a.limits)
	case CommandFetch:
		req.Fetch, err = readFetch(next, a.limits)
	default:
		err = &UnknownCommandError{Command: name}
	}
	if err != nil {
		return nil, err
	}
	return req, nil
}

// head reads the command and the capabilities, up to the delim-pkt or the flush-pkt.
func (a *argumentReader) head() (name string, req *V2Request, hasArguments bool, err error) {
	req = &V2Request{}
	for first := true; ; first = false {
		kind, line, err := a.pkt.line()
		switch {
		case first && (errors.Is(err, io.EOF) || err == nil && kind == Flush):
			return "", nil, false, io.EOF
		case err != nil:
			return "", nil, false, whole(err)
		case kind == Flush || kind == Delim:
			if name == "" {
				return "", nil, false, protocolErrorf("no command requested")
			}
			return name, req, kind == Delim, req.Capabilities.checkFormat()
		case kind != Data:
			return "", nil, false, protocolErrorf("unexpected %s packet", kind)
		}
		if command, ok := strings.CutPrefix(string(line), "command="); ok {
			if name != "" {
				return "", nil, false, protocolErrorf("command %s requested after %s", quote(command), quote(name))
			}
			name = command
			continue
		}
		if err := req.addCapability(string(line)); err != nil {
			return "", nil, false, err
		}
	}
}

// addCapability takes only what V2Capabilities offers, as git does.
func (q *V2Request) addCapability(word string) error {
	key, _, _ := strings.Cut(word, "=")
	switch key {
	case "agent", "session-id", "object-format":
	default:
		return protocolErrorf("unknown capability %s", quote(word))
	}
	if err := within(len(q.Capabilities), maxCapabilities, "capabilities"); err != nil {
		return err
	}
	q.Capabilities = append(q.Capabilities, word)
	return nil
}

// argument reads one argument; io.EOF stands for the flush-pkt.
func (a *argumentReader) argument() (string, error) {
	kind, line, err := a.pkt.line()
	switch {
	case err != nil:
		return "", whole(err)
	case kind == Flush:
		return "", io.EOF
	case kind != Data:
		return "", protocolErrorf("unexpected %s packet", kind)
	}
	return string(line), nil
}

// whole turns an end between two packets into a message cut short.
func whole(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Encode writes the request in the bytes that git's client sends and
// "git upload-pack --stateless-rpc" with GIT_PROTOCOL=version=2 reads.
func (q *V2Request) Encode(w io.Writer) error {
	e := newRequestEncoder(w)
	switch {
	case q.Fetch != nil:
		e.string("command=" + CommandFetch)
	case q.LsRefs != nil:
		e.string("command=" + CommandLsRefs + "\n")
	default:
		return protocolErrorf("no command requested")
	}
	for _, word := range q.Capabilities {
		e.line(word)
	}
	e.do((*Writer).Delim)
	if q.Fetch != nil {
		q.Fetch.encode(e)
	} else {
		q.LsRefs.encode(e)
	}
	e.do((*Writer).Flush)
	return e.finish("write v2 request")
}

// Canonical is the request without what tells who the client is, and with the
// canonical form of a fetch. The answer is the same.
func (q *V2Request) Canonical() *V2Request {
	c := &V2Request{LsRefs: q.LsRefs} // all that Capabilities can hold beside is the one object format there is
	if q.Fetch != nil {
		c.Fetch = q.Fetch.Canonical()
	}
	return c
}

// requestEncoder keeps the first error, so that an encoder reads like the grammar it writes.
type requestEncoder struct {
	out *bufio.Writer
	pkt *Writer
	err error
}

func newRequestEncoder(w io.Writer) *requestEncoder {
	out := bufio.NewWriter(w)
	return &requestEncoder{out: out, pkt: NewWriter(out)}
}

func (e *requestEncoder) string(line string) {
	if e.err == nil {
		e.err = e.pkt.WriteString(line)
	}
}

// line writes text that came from a client, without an LF as git's client sends
// most lines. Readers cut one LF, so an LF that belongs to the text gets a second one.
func (e *requestEncoder) line(text string) {
	if strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	e.string(text)
}

func (e *requestEncoder) do(packet func(*Writer) error) {
	if e.err == nil {
		e.err = packet(e.pkt)
	}
}

func (e *requestEncoder) finish(doing string) error {
	if e.err == nil {
		e.err = e.out.Flush()
	}
	if e.err != nil {
		return fmt.Errorf("%s: %w", doing, e.err)
	}
	return nil
}
