package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
)

// An LsRefsRequest is what a v2 client asks about refs.
//
//	argument = "peel" / "symrefs" / "unborn" / "ref-prefix" SP prefix
type LsRefsRequest struct {
	Peel     bool     // say what annotated tags point to
	Symrefs  bool     // say what HEAD points to
	Unborn   bool     // tell of a HEAD whose branch does not exist yet
	Prefixes []string // only refs whose name begins with one of them; none: all refs
}

func readLsRefs(next func() (string, error), limits Limits) (*LsRefsRequest, error) {
	q := &LsRefsRequest{}
	prefixes := 0
	for {
		line, err := next()
		if errors.Is(err, io.EOF) {
			if prefixes > limits.RefPrefixes {
				q.Prefixes = nil
			}
			return q, nil
		}
		if err != nil {
			return nil, err
		}
		prefix, isPrefix := strings.CutPrefix(line, "ref-prefix ")
		switch {
		case line == "peel":
			q.Peel = true
		case line == "symrefs":
			q.Symrefs = true
		case line == "unborn":
			q.Unborn = true
		case isPrefix:
			if err := limits.checkName(prefix); err != nil {
				return nil, err
			}
			// Prefixes only save work, so too many of them are as good as none.
			if prefixes++; prefixes <= limits.RefPrefixes {
				q.Prefixes = append(q.Prefixes, prefix)
			}
		default:
			return nil, protocolErrorf("unexpected line: %s", quote(line))
		}
	}
}

func (q *LsRefsRequest) encode(e *requestEncoder) {
	if q.Peel {
		e.string("peel\n")
	}
	if q.Symrefs {
		e.string("symrefs\n")
	}
	if q.Unborn {
		e.string("unborn\n")
	}
	for _, prefix := range q.Prefixes {
		e.string("ref-prefix " + prefix + "\n")
	}
}

// Matches reports whether the client wants to hear of the ref name.
func (q *LsRefsRequest) Matches(name string) bool {
	return len(q.Prefixes) == 0 || slices.ContainsFunc(q.Prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// Scans gives the prefixes that a scan of sorted ref names has to visit: sorted,
// and none begins with another. One empty prefix stands for all refs. Exact
// names, such as "HEAD", are among them.
func (q *LsRefsRequest) Scans() []string {
	if len(q.Prefixes) == 0 {
		return []string{""}
	}
	sorted := slices.Sorted(slices.Values(q.Prefixes))
	kept := sorted[:1]
	for _, p := range sorted[1:] {
		if !strings.HasPrefix(p, kept[len(kept)-1]) {
			kept = append(kept, p)
		}
	}
	return kept
}

// An LsRefsResponse is the answer to ls-refs.
//
//	response = *pkt-line(ref LF) flush-pkt
//	ref = (oid / "unborn") SP name [SP "symref-target:" target] [SP "peeled:" oid]
type LsRefsResponse struct {
	Request *LsRefsRequest
	Head    *Head // nil: there is no HEAD
	// Refs yields refs in the order of their names. Those the request does not match are left out. Its first error ends the encoding and is returned.
	Refs iter.Seq2[Ref, error]
}

// Encode writes the answer as the refs come.
func (p *LsRefsResponse) Encode(w io.Writer) error {
	out := bufio.NewWriterSize(w, 32<<10)
	if err := p.encode(out); err != nil {
		return fmt.Errorf("write ls-refs answer: %w", err)
	}
	return nil
}

func (p *LsRefsResponse) encode(out *bufio.Writer) error {
	scans := p.Request.Scans()
	pkt := NewWriter(out)
	var line []byte
	if line = p.appendHead(line); len(line) > 0 {
		if err := pkt.WriteData(line); err != nil {
			return err
		}
	}
	if p.Refs != nil {
		for ref, err := range p.Refs {
			if err != nil {
				return err
			}
			if !matchesScan(scans, ref.Name) {
				continue
			}
			line = p.appendRef(line[:0], ref)
			if err := pkt.WriteData(line); err != nil {
				return err
			}
		}
	}
	if err := pkt.Flush(); err != nil {
		return err
	}
	return out.Flush()
}

// matchesScan finds the one prefix of sorted, disjoint ones that name can begin with.
func matchesScan(scans []string, name string) bool {
	i, found := slices.BinarySearch(scans, name)
	return found || i > 0 && strings.HasPrefix(name, scans[i-1])
}

func (p *LsRefsResponse) appendHead(b []byte) []byte {
	q := p.Request
	if p.Head == nil || !q.Matches("HEAD") {
		return b
	}
	switch {
	case !p.Head.OID.IsZero():
		b = appendOID(b, p.Head.OID)
	case q.Unborn && q.Symrefs:
		b = append(b, "unborn"...)
	default:
		return b
	}
	b = append(b, " HEAD"...)
	if q.Symrefs {
		b = append(append(b, " symref-target:"...), p.Head.Target...)
	}
	return append(b, '\n')
}

func (p *LsRefsResponse) appendRef(b []byte, ref Ref) []byte {
	b = appendOID(b, ref.OID)
	b = append(append(b, ' '), ref.Name...)
	if p.Request.Peel && !ref.Peeled.IsZero() {
		b = appendOID(append(b, " peeled:"...), ref.Peeled)
	}
	return append(b, '\n')
}
