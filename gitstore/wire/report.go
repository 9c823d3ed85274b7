package wire

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/headgate/headgate/refpolicy"
)

// A ReportForm is how much of a report a client understands.
type ReportForm uint8

// The forms of report.
const (
	NoReport ReportForm = iota // the client hears nothing
	ReportV1                   // report-status
	ReportV2                   // report-status-v2: adds option lines
)

// A RefReport is the verdict on one update.
type RefReport struct {
	Ref    string // as the client sent it
	Reason string // why it was refused, one short line; empty: it was done
	// What was really done, if it is not what was asked. Told in ReportV2 alone, and only of updates that were done.
	Option *ReportOption
}

// A ReportOption tells of an update that was changed on its way. Fields that are empty or nil are not sent.
type ReportOption struct {
	RefName      string
	OldOID       *refpolicy.OID
	NewOID       *refpolicy.OID
	ForcedUpdate bool
}

// A Report is the server's verdict on a push.
//
//	report    = pkt-line("unpack" SP ("ok" / reason) LF) *verdict flush-pkt
//	verdict   = pkt-line("ok" SP name LF) *option / pkt-line("ng" SP name SP reason LF)
//	option    = pkt-line("option" SP ("refname" SP name / "old-oid" SP oid / "new-oid" SP oid / "forced-update") LF)
type Report struct {
	Unpack string // why the pack could not be taken; empty: ok
	Refs   []RefReport
}

// reportBuffers hold reports of any length until a packet is full. Nearly all are tiny,
// and a buffer for each push would be most of what the push allocates.
var reportBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, Sideband64k.payload()) }}

// Encode writes the report in the given form and its flush-pkt; NoReport writes
// nothing. Reasons are made one clean, bounded line. To a Sideband it goes as
// band 1 in packets that are as full as can be.
func (p *Report) Encode(w io.Writer, form ReportForm) error {
	if form == NoReport {
		return nil
	}
	out := reportBuffers.Get().(*bufio.Writer)
	out.Reset(w)
	defer func() {
		out.Reset(nil)
		reportBuffers.Put(out)
	}()
	e := &requestEncoder{out: out, pkt: NewWriter(out)}
	unpack := "ok"
	if p.Unpack != "" {
		unpack = cleanReason(p.Unpack)
	}
	e.string("unpack " + unpack + "\n")
	for _, ref := range p.Refs {
		ref.encode(e, form)
	}
	e.do((*Writer).Flush)
	return e.finish("write report")
}

func (r *RefReport) encode(e *requestEncoder, form ReportForm) {
	name := cleanText(r.Ref, false)
	if r.Reason != "" {
		e.string("ng " + name + " " + cleanReason(r.Reason) + "\n")
		return
	}
	e.string("ok " + name + "\n")
	if form != ReportV2 || r.Option == nil {
		return
	}
	if r.Option.RefName != "" {
		e.string("option refname " + cleanText(r.Option.RefName, false) + "\n")
	}
	if r.Option.OldOID != nil {
		e.string("option old-oid " + r.Option.OldOID.String() + "\n")
	}
	if r.Option.NewOID != nil {
		e.string("option new-oid " + r.Option.NewOID.String() + "\n")
	}
	if r.Option.ForcedUpdate {
		e.string("option forced-update\n")
	}
}

// cleanReason never gives "ok" or nothing, which a client would take for success.
func cleanReason(s string) string {
	s = strings.TrimSpace(clipText(cleanText(s, false), maxReason))
	if s == "" || s == "ok" {
		return "refused"
	}
	return s
}

// A ReceiveResponse is the whole answer to a push whose messages are known
// before it is written. A caller that has to tell of progress writes to a
// Sideband by itself: Progress, then Report.Encode, then Flush.
type ReceiveResponse struct {
	Messages []string // for the user, each at least one line; dropped without a sideband
	Report   Report
}

// Encode writes the messages on band 2, the report on band 1 and the outer
// flush-pkt; with NoSideband the report alone.
func (p *ReceiveResponse) Encode(w io.Writer, report ReportForm, form SidebandForm) error {
	band := NewSideband(w, form)
	for _, text := range p.Messages {
		if err := band.Progress(text); err != nil {
			return fmt.Errorf("write message: %w", err)
		}
	}
	if err := p.Report.Encode(band, report); err != nil {
		return err
	}
	return band.Flush()
}

// ReadReport reads a report without a sideband, as a client does; with one, src
// reads from a Demux. An unpack reason of "ok" is success.
func ReadReport(src *Reader) (*Report, error) {
	p := &Report{}
	for first := true; ; first = false {
		kind, line, err := src.line()
		switch {
		case err != nil:
			return nil, fmt.Errorf("read report: %w", whole(err))
		case kind == Flush && !first:
			return p, nil
		case kind != Data:
			return nil, fmt.Errorf("read report: %w", protocolErrorf("unexpected %s packet", kind))
		}
		if err := p.addLine(string(line), first); err != nil {
			return nil, fmt.Errorf("read report: %w", err)
		}
	}
}

func (p *Report) addLine(line string, first bool) error {
	verb, rest, _ := strings.Cut(line, " ")
	switch {
	case first && verb == "unpack":
		if rest != "ok" {
			p.Unpack = rest
		}
	case !first && verb == "ok":
		p.Refs = append(p.Refs, RefReport{Ref: rest})
	case !first && verb == "ng":
		ref, reason, _ := strings.Cut(rest, " ")
		if reason == "" {
			reason = "failed"
		}
		p.Refs = append(p.Refs, RefReport{Ref: ref, Reason: reason})
	case verb == "option" && len(p.Refs) > 0:
		return p.Refs[len(p.Refs)-1].addOption(rest)
	default:
		return protocolErrorf("unexpected line: %s", quote(line))
	}
	return nil
}

func (r *RefReport) addOption(line string) (err error) {
	if r.Option == nil {
		r.Option = &ReportOption{}
	}
	key, value, _ := strings.Cut(line, " ")
	var id refpolicy.OID
	switch key {
	case "refname":
		r.Option.RefName = value
	case "old-oid":
		id, err = parseOID(key, value)
		r.Option.OldOID = &id
	case "new-oid":
		id, err = parseOID(key, value)
		r.Option.NewOID = &id
	case "forced-update":
		r.Option.ForcedUpdate = true
	default:
		err = protocolErrorf("unknown option %s", quote(key))
	}
	return err
}
