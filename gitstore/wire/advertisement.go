package wire

import (
	"bufio"
	"fmt"
	"io"
	"iter"

	"github.com/headgate/headgate/refpolicy"
)

// A Service is a side of git's smart protocol, named as in its requests.
type Service string

// The two services.
const (
	UploadPack  Service = "git-upload-pack"
	ReceivePack Service = "git-receive-pack"
)

// A Ref is one ref as a client sees it.
type Ref struct {
	Name   string        // as shown by the remote, such as refs/heads/main; HEAD comes through Head
	OID    refpolicy.OID // what the ref holds
	Peeled refpolicy.OID // what an annotated tag points to in the end; zero for anything else
}

// A Head is the remote's HEAD. It is always a symref here.
type Head struct {
	Target string        // the branch as shown by the remote
	OID    refpolicy.OID // what the branch holds; zero while it is unborn
}

// An Advertisement is the answer to info/refs in protocol v0 and v1.
//
//	[ pkt-line("# service=" service LF) flush-pkt ]      ; over HTTP
//	[ pkt-line("version 1" LF) ]
//	first-ref *other-ref flush-pkt
//	first-ref = pkt-line(oid SP name NUL capability-list LF)
//	other-ref = pkt-line(oid SP name LF) [ pkt-line(peeled SP name "^{}" LF) ]
//	no-refs   = pkt-line(40"0" SP "capabilities^{}" NUL capability-list LF)
type Advertisement struct {
	Service      Service
	Banner       bool // begin with the "# service=" line and a flush-pkt, as HTTP needs
	Version      int  // 1 writes "version 1"; 0 and all else nothing
	Capabilities Capabilities
	Head         *Head // HEAD and its symref capability come from it; left out by receive-pack and when nil or unborn
	// Refs yields the refs in the order of their names. It is read once; its first error ends the encoding and is returned.
	Refs iter.Seq2[Ref, error]
}

// Encode writes the advertisement as the refs come; it holds a few KiB, however many refs there are.
func (a *Advertisement) Encode(w io.Writer) error {
	e := &advertEncoder{a: a, out: bufio.NewWriterSize(w, 32<<10)}
	if err := e.encode(); err != nil {
		return fmt.Errorf("write advertisement: %w", err)
	}
	return nil
}

type advertEncoder struct {
	a       *Advertisement
	out     *bufio.Writer
	begun   bool // the capabilities have been written
	scratch []byte
}

func (e *advertEncoder) encode() error {
	pkt := NewWriter(e.out)
	if err := writeBanner(pkt, e.a.Service, e.a.Banner); err != nil {
		return err
	}
	if e.a.Version == 1 {
		if err := pkt.WriteString("version 1\n"); err != nil {
			return err
		}
	}
	if err := e.refs(); err != nil {
		return err
	}
	if !e.begun {
		if err := e.line(refpolicy.ZeroOID, "capabilities^{}", ""); err != nil {
			return err
		}
	}
	if err := pkt.Flush(); err != nil {
		return err
	}
	return e.out.Flush()
}

func (e *advertEncoder) refs() error {
	upload := e.a.Service == UploadPack
	if head := e.a.Head; upload && head != nil && !head.OID.IsZero() {
		if err := e.line(head.OID, "HEAD", ""); err != nil {
			return err
		}
	}
	if e.a.Refs == nil {
		return nil
	}
	for ref, err := range e.a.Refs {
		if err != nil {
			return err
		}
		if err := e.line(ref.OID, ref.Name, ""); err != nil {
			return err
		}
		if upload && !ref.Peeled.IsZero() {
			if err := e.line(ref.Peeled, ref.Name, "^{}"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *advertEncoder) line(id refpolicy.OID, name, suffix string) error {
	b := append(e.scratch[:0], "0000"...)
	b = appendOID(b, id)
	b = append(b, ' ')
	b = append(b, name...)
	b = append(b, suffix...)
	if !e.begun {
		e.begun = true
		b = e.appendCapabilities(b)
	}
	b = append(b, '\n')
	return e.emit(b)
}

func (e *advertEncoder) appendCapabilities(b []byte) []byte {
	sep := byte(0)
	for _, word := range e.a.Capabilities {
		b = append(append(b, sep), word...)
		sep = ' '
	}
	if head := e.a.Head; e.a.Service == UploadPack && head != nil && !head.OID.IsZero() {
		b = append(append(b, sep), "symref=HEAD:"...)
		b = append(b, head.Target...)
	}
	if sep == 0 {
		b = append(b, sep)
	}
	return b
}

// emit writes b, whose first four bytes are kept free for the length.
func (e *advertEncoder) emit(b []byte) error {
	e.scratch = b
	if len(b) > MaxPacket {
		return fmt.Errorf("%w: %d bytes", ErrPacketTooLong, len(b)-4)
	}
	appendLength(b[:0], len(b))
	_, err := e.out.Write(b)
	return err
}

func writeBanner(pkt *Writer, service Service, banner bool) error {
	if !banner {
		return nil
	}
	if err := pkt.WriteString("# service=" + string(service) + "\n"); err != nil {
		return err
	}
	return pkt.Flush()
}

// A CapabilityList is the answer to info/refs for upload-pack in protocol v2.
//
//	[ pkt-line("# service=" service LF) flush-pkt ]
//	pkt-line("version 2" LF) *pkt-line(capability LF) flush-pkt
type CapabilityList struct {
	Banner       bool // as in Advertisement; git over HTTP sends none in v2
	Capabilities Capabilities
}

// V2Capabilities are the commands that are offered in protocol v2.
func V2Capabilities(agent string) Capabilities {
	return Capabilities{"agent=" + agent, "ls-refs=unborn", "fetch=shallow wait-for-done filter", "object-format=sha1"}
}

// Encode writes the list.
func (l *CapabilityList) Encode(w io.Writer) error {
	out := bufio.NewWriter(w)
	pkt := NewWriter(out)
	err := writeBanner(pkt, UploadPack, l.Banner)
	for _, line := range append(Capabilities{"version 2"}, l.Capabilities...) {
		if err == nil {
			err = pkt.WriteString(line + "\n")
		}
	}
	if err == nil {
		err = pkt.Flush()
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return fmt.Errorf("write capability list: %w", err)
	}
	return nil
}
