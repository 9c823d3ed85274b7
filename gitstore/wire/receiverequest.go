package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/headgate/headgate/refpolicy"
)

// A RefUpdate is one command of a push. The zero OID as Old creates the ref, as
// New deletes it. Ref is what the client sent, as the remote shows it; it may be no valid name.
type RefUpdate struct {
	Ref      string
	Old, New refpolicy.OID
}

// A ReceiveRequest is everything of a push that comes before its pack.
//
//	request  = *shallow updates flush-pkt [ *pkt-line(push-option) flush-pkt ] [ pack ]
//	shallow  = pkt-line("shallow" SP oid LF)
//	updates  = pkt-line(update NUL capability-list) *pkt-line(update LF)
//	update   = old SP new SP name
type ReceiveRequest struct {
	Shallow      []refpolicy.OID // where the pushing repository's history ends
	Updates      []RefUpdate
	Capabilities Capabilities
	PushOptions  []string // sent only if push-options is among the capabilities
}

// ReadReceiveRequest reads up to the first byte of the pack, which body then
// gives next; ExpectsPack says whether there is one. An empty body and a lone
// flush-pkt, with which git probes for authorization, give a request without
// updates. A push certificate is an *UnsupportedError. Other errors are typed
// as errors.go says; a body cut short is io.ErrUnexpectedEOF. Whether a name
// is valid and whether it comes twice is not judged: see Duplicates.
func ReadReceiveRequest(body *bufio.Reader, limits Limits) (*ReceiveRequest, error) {
	limits = limits.withDefaults()
	q := &ReceiveRequest{}
	pkt := NewReader(body, limits.Bytes)
	err := q.readUpdates(pkt, limits)
	if err == nil && len(q.Updates) > 0 && q.Capabilities.Has(capPushOptions) {
		err = q.readOptions(pkt, limits)
	}
	if err == nil {
		err = q.Capabilities.checkFormat()
	}
	if err != nil {
		return nil, fmt.Errorf("read receive request: %w", err)
	}
	return q, nil
}

func (q *ReceiveRequest) readUpdates(pkt *Reader, limits Limits) error {
	for first := true; ; first = false {
		kind, line, err := pkt.line()
		switch {
		case first && errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return whole(err)
		case kind == Flush:
			return nil
		case kind != Data:
			return protocolErrorf("unexpected %s packet", kind)
		}
		if err := q.addLine(line, limits); err != nil {
			return err
		}
	}
}

func (q *ReceiveRequest) addLine(line []byte, limits Limits) error {
	text, words, _ := bytes.Cut(line, []byte{0})
	if strings.HasPrefix(string(text), "shallow ") {
		return addOID(&q.Shallow, string(text), limits.Shallow, "shallow lines")
	}
	if string(text) == "push-cert" {
		return &UnsupportedError{Feature: "push certificate"}
	}
	if err := within(len(q.Updates), limits.RefUpdates, "ref updates"); err != nil {
		return err
	}
	update, err := parseUpdate(string(text))
	if err != nil {
		return err
	}
	if err := limits.checkName(update.Ref); err != nil {
		return err
	}
	q.Updates = append(q.Updates, update)
	return q.Capabilities.add(string(words))
}

func parseUpdate(text string) (RefUpdate, error) {
	const names = 2 * (hexOID + 1)
	if len(text) <= names || text[hexOID] != ' ' || text[names-1] != ' ' {
		return RefUpdate{}, protocolErrorf("expected old/new/ref, got %s", quote(text))
	}
	oldID, errOld := refpolicy.ParseOID(text[:hexOID])
	newID, errNew := refpolicy.ParseOID(text[hexOID+1 : names-1])
	if errOld != nil || errNew != nil {
		return RefUpdate{}, protocolErrorf("expected old/new/ref, got %s", quote(text))
	}
	return RefUpdate{Ref: text[names:], Old: oldID, New: newID}, nil
}

func (q *ReceiveRequest) readOptions(pkt *Reader, limits Limits) error {
	for {
		kind, line, err := pkt.line()
		switch {
		case err != nil:
			return whole(err)
		case kind == Flush:
			return nil
		case kind != Data:
			return protocolErrorf("unexpected %s packet", kind)
		}
		if err := within(len(q.PushOptions), limits.PushOptions, "push options"); err != nil {
			return err
		}
		q.PushOptions = append(q.PushOptions, string(line))
	}
}

// ExpectsPack reports whether a pack follows: it does unless every update deletes.
func (q *ReceiveRequest) ExpectsPack() bool {
	return slices.ContainsFunc(q.Updates, func(u RefUpdate) bool { return !u.New.IsZero() })
}

// Duplicates gives a *DuplicateRefError if a ref is to be updated more than once, and nil if not.
func (q *ReceiveRequest) Duplicates() error {
	seen := make(map[string]int, len(q.Updates))
	var twice []string
	for _, u := range q.Updates {
		if seen[u.Ref]++; seen[u.Ref] == 2 {
			twice = append(twice, u.Ref)
		}
	}
	if len(twice) == 0 {
		return nil
	}
	return &DuplicateRefError{Refs: twice}
}

// Atomic reports whether all updates or none are to be made.
func (q *ReceiveRequest) Atomic() bool { return q.Capabilities.Has(capAtomic) }

// Quiet reports whether the client wants no progress.
func (q *ReceiveRequest) Quiet() bool { return q.Capabilities.Has(capQuiet) }

// Sideband gives the form of the answer. Git knows only side-band-64k here.
func (q *ReceiveRequest) Sideband() SidebandForm {
	if q.Capabilities.Has(capSideband64k) {
		return Sideband64k
	}
	return NoSideband
}

// ReportForm gives the form of the report the client asks for.
func (q *ReceiveRequest) ReportForm() ReportForm {
	switch {
	case q.Capabilities.Has(capReportStatusV2):
		return ReportV2
	case q.Capabilities.Has(capReportStatus):
		return ReportV1
	}
	return NoReport
}

// Encode writes the request without a pack. The push options are written only if they have been negotiated.
func (q *ReceiveRequest) Encode(w io.Writer) error {
	e := newRequestEncoder(w)
	for _, id := range q.Shallow {
		e.string("shallow " + id.String() + "\n")
	}
	words := ""
	if len(q.Capabilities) > 0 {
		words = "\x00 " + strings.Join(q.Capabilities, " ")
	}
	for _, u := range q.Updates {
		e.line(u.Old.String() + " " + u.New.String() + " " + u.Ref + words)
		words = ""
	}
	e.do((*Writer).Flush)
	if len(q.Updates) > 0 && q.Capabilities.Has(capPushOptions) {
		for _, option := range q.PushOptions {
			e.line(option)
		}
		e.do((*Writer).Flush)
	}
	return e.finish("write receive request")
}
