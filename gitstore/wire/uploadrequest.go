package wire

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/headgate/headgate/refpolicy"
)

// An UploadRequest is the body of one POST to git-upload-pack in protocol v0
// or v1. Over HTTP every body is whole: it repeats the wants and all haves
// that are known to be common.
//
//	body       = flush-pkt / wants *depth-line ["filter" SP filter] flush-pkt [ negotiate ]
//	wants      = pkt-line("want" SP oid SP capability-list LF) *pkt-line("want" SP oid LF)
//	negotiate  = *( *have flush-pkt ) *have [ pkt-line("done" LF) ]
//	have       = pkt-line("have" SP oid LF)
type UploadRequest struct {
	Capabilities Capabilities // of the wants; deepen-relative is one of them
	Wants        []refpolicy.OID
	DepthRequest
	Filter string // a valid filter spec; empty: none
	// Haves holds the batches of haves. A flush-pkt ends each of them, except
	// the last one if Done is set. Without any batch and without Done the body
	// ended after the wants: the client only asks for the shallow boundary.
	Haves [][]refpolicy.OID
	Done  bool // no more haves: the answer ends in a pack
}

// ReadUploadRequest reads a whole body. An empty body and a lone flush-pkt give
// a request without wants, which is to be answered by nothing. Errors are
// typed as errors.go says; a body cut short is io.ErrUnexpectedEOF.
func ReadUploadRequest(body io.Reader, limits Limits) (*UploadRequest, error) {
	limits = limits.withDefaults()
	q := &UploadRequest{}
	pkt := NewReader(buffered(body), limits.Bytes)
	err := q.readWants(pkt, limits)
	if err == nil && len(q.Wants) > 0 {
		err = q.readHaves(pkt, limits)
	}
	if err == nil {
		err = q.finish()
	}
	if err != nil {
		return nil, fmt.Errorf("read upload request: %w", err)
	}
	return q, nil
}

func (q *UploadRequest) readWants(pkt *Reader, limits Limits) error {
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
		if err := q.addLine(string(line), limits); err != nil {
			return err
		}
	}
}

func (q *UploadRequest) addLine(line string, limits Limits) error {
	if rest, ok := strings.CutPrefix(line, "want "); ok {
		id, words, _ := strings.Cut(rest, " ")
		if err := addOID(&q.Wants, "want "+id, limits.Wants, "wants"); err != nil {
			return err
		}
		return q.Capabilities.add(words)
	}
	if spec, ok := strings.CutPrefix(line, "filter "); ok {
		if q.Filter != "" {
			return protocolErrorf("more than one filter")
		}
		q.Filter = spec
		return checkFilter(spec)
	}
	taken, err := q.DepthRequest.addLine(line, limits)
	if err == nil && !taken {
		err = protocolErrorf("unexpected line: %s", quote(line))
	}
	return err
}

// readHaves takes an end of the body between two lines for a flush-pkt, as git does over HTTP.
func (q *UploadRequest) readHaves(pkt *Reader, limits Limits) error {
	var batch []refpolicy.OID
	for total := 0; ; {
		kind, line, err := pkt.line()
		switch {
		case errors.Is(err, io.EOF):
			if len(batch) > 0 {
				q.Haves = append(q.Haves, batch)
			}
			return nil
		case err != nil:
			return err
		case kind == Flush:
			// An empty batch costs four bytes on the wire and more than that here.
			if err := within(len(q.Haves), limits.Haves/8+1, "batches of haves"); err != nil {
				return err
			}
			q.Haves, batch = append(q.Haves, batch), nil
		case kind != Data:
			return protocolErrorf("unexpected %s packet", kind)
		case string(line) == "done":
			q.finishHaves(batch)
			return nil
		default:
			if err := within(total, limits.Haves, "haves"); err != nil {
				return err
			}
			if batch, err = addHave(batch, string(line)); err != nil {
				return err
			}
			total++
		}
	}
}

// finishHaves keeps an empty last batch only where it tells "flush-pkt, done" from "done".
func (q *UploadRequest) finishHaves(last []refpolicy.OID) {
	q.Done = true
	if len(last) > 0 || len(q.Haves) > 0 {
		q.Haves = append(q.Haves, last)
	}
}

func addHave(batch []refpolicy.OID, line string) ([]refpolicy.OID, error) {
	hex, ok := strings.CutPrefix(line, "have ")
	if !ok {
		return batch, protocolErrorf("expected have, got %s", quote(line))
	}
	id, err := parseOID("have", hex)
	return append(batch, id), err
}

func (q *UploadRequest) finish() error {
	q.DeepenRelative = q.Capabilities.Has("deepen-relative")
	if err := q.Capabilities.checkFormat(); err != nil {
		return err
	}
	return q.check()
}

// Encode writes the body that "git upload-pack --stateless-rpc" reads.
func (q *UploadRequest) Encode(w io.Writer) error {
	e := newRequestEncoder(w)
	words := ""
	for _, word := range q.Capabilities {
		words += " " + word
	}
	if q.DeepenRelative && !q.Capabilities.Has("deepen-relative") {
		words += " deepen-relative"
	}
	for _, id := range q.Wants {
		e.string("want " + id.String() + words + "\n")
		words = ""
	}
	q.DepthRequest.encode(e)
	if q.Filter != "" {
		e.string("filter " + q.Filter)
	}
	e.do((*Writer).Flush)
	for i, batch := range q.Haves {
		for _, id := range batch {
			e.string("have " + id.String() + "\n")
		}
		if i < len(q.Haves)-1 || !q.Done {
			e.do((*Writer).Flush)
		}
	}
	if q.Done {
		e.string("done\n")
	}
	return e.finish("write upload request")
}

// AllHaves gives the haves of all batches in one list.
func (q *UploadRequest) AllHaves() []refpolicy.OID { return slices.Concat(q.Haves...) }

// FilterHaves keeps only the haves for which keep is true. The batches stay.
func (q *UploadRequest) FilterHaves(keep func(refpolicy.OID) bool) {
	for i, batch := range q.Haves {
		q.Haves[i] = slices.DeleteFunc(batch, func(id refpolicy.OID) bool { return !keep(id) })
	}
}

// EndsInPack reports whether git's answer has a pack in it whatever the haves are.
// git takes a flush-pkt after haves for the end of the body.
func (q *UploadRequest) EndsInPack() bool { return len(q.Wants) > 0 && q.Done && len(q.Haves) <= 1 }

// Canonical gives a request that asks for the same answer and is equal for all
// requests that differ only in who the client is and in order and repetition, but
// for those of haves: the answer names them in their order.
func (q *UploadRequest) Canonical() *UploadRequest {
	c := *q
	c.Wants = sortedOIDs(q.Wants)
	c.DepthRequest = q.DepthRequest.canonical()
	c.Capabilities = nil
	for _, word := range slices.Compact(slices.Sorted(slices.Values(q.Capabilities))) {
		if !strings.HasPrefix(word, "agent=") && !strings.HasPrefix(word, "session-id=") {
			c.Capabilities = append(c.Capabilities, word)
		}
	}
	c.Haves = nil
	for _, batch := range q.Haves {
		c.Haves = append(c.Haves, slices.Clone(batch))
	}
	return &c
}
