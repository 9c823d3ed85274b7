package wire

import (
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/headgate/headgate/refpolicy"
)

// A FetchRequest is the arguments of the v2 command fetch.
//
//	argument = "want" SP oid / "have" SP oid / "done" / "wait-for-done" / "thin-pack" / "no-progress"
//	         / "include-tag" / "ofs-delta" / depth-line / "deepen-relative" / "filter" SP filter
type FetchRequest struct {
	Wants       []refpolicy.OID
	Haves       []refpolicy.OID
	Done        bool // no more haves: the answer ends in a pack
	WaitForDone bool // never a pack before Done
	ThinPack    bool
	NoProgress  bool
	IncludeTag  bool
	OFSDelta    bool
	DepthRequest
	Filter string // a valid filter spec; empty: none
}

func readFetch(next func() (string, error), limits Limits) (*FetchRequest, error) {
	q := &FetchRequest{}
	for {
		line, err := next()
		if errors.Is(err, io.EOF) {
			return q, q.check()
		}
		if err != nil {
			return nil, err
		}
		if err := q.addLine(line, limits); err != nil {
			return nil, err
		}
	}
}

func (q *FetchRequest) addLine(line string, limits Limits) error {
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "want":
		return addOID(&q.Wants, line, limits.Wants, "wants")
	case "have":
		return addOID(&q.Haves, line, limits.Haves, "haves")
	case "filter":
		if q.Filter != "" {
			return protocolErrorf("more than one filter")
		}
		q.Filter = rest
		return checkFilter(rest)
	case "want-ref", "packfile-uris", "sideband-all":
		return &UnsupportedError{Feature: verb}
	}
	if flag := q.flag(line); flag != nil {
		*flag = true
		return nil
	}
	taken, err := q.DepthRequest.addLine(line, limits)
	if err == nil && !taken {
		err = protocolErrorf("unexpected line: %s", quote(line))
	}
	return err
}

// flag gives the field that an argument without a value sets, or nil.
func (q *FetchRequest) flag(line string) *bool {
	switch line {
	case "done":
		return &q.Done
	case "wait-for-done":
		return &q.WaitForDone
	case "thin-pack":
		return &q.ThinPack
	case "no-progress":
		return &q.NoProgress
	case "include-tag":
		return &q.IncludeTag
	case "ofs-delta":
		return &q.OFSDelta
	case "deepen-relative":
		return &q.DeepenRelative
	}
	return nil
}

// addOID appends the oid of a line "verb oid".
func addOID(list *[]refpolicy.OID, line string, limit int, what string) error {
	if err := within(len(*list), limit, what); err != nil {
		return err
	}
	verb, hex, _ := strings.Cut(line, " ")
	id, err := parseOID(verb, hex)
	if err != nil {
		return err
	}
	*list = append(*list, id)
	return nil
}

func (q *FetchRequest) encode(e *requestEncoder) {
	for _, flag := range []string{"thin-pack", "no-progress", "include-tag", "ofs-delta"} {
		if *q.flag(flag) {
			e.string(flag)
		}
	}
	q.DepthRequest.encode(e)
	if q.DeepenRelative {
		e.string("deepen-relative\n")
	}
	if q.Filter != "" {
		e.string("filter " + q.Filter)
	}
	for _, id := range q.Wants {
		e.string("want " + id.String() + "\n")
	}
	if q.WaitForDone {
		e.string("wait-for-done")
	}
	for _, id := range q.Haves {
		e.string("have " + id.String() + "\n")
	}
	if q.Done {
		e.string("done\n")
	}
}

// FilterHaves keeps only the haves for which keep is true.
func (q *FetchRequest) FilterHaves(keep func(refpolicy.OID) bool) {
	q.Haves = slices.DeleteFunc(q.Haves, func(id refpolicy.OID) bool { return !keep(id) })
}

// EndsInPack reports whether git's answer has a pack in it whatever the haves are.
func (q *FetchRequest) EndsInPack() bool {
	return len(q.Wants) > 0 && (q.Done || len(q.Haves) == 0 && !q.WaitForDone)
}

// Canonical gives a request that asks for the same pack and is equal, byte by
// byte once encoded, for all requests that differ only in order and repetition.
func (q *FetchRequest) Canonical() *FetchRequest {
	c := *q
	c.Wants, c.Haves = sortedOIDs(q.Wants), sortedOIDs(q.Haves)
	c.DepthRequest = q.DepthRequest.canonical()
	return &c
}

func (d DepthRequest) canonical() DepthRequest {
	d.Shallow = sortedOIDs(d.Shallow)
	if len(d.DeepenNot) > 0 {
		d.DeepenNot = slices.Compact(slices.Sorted(slices.Values(d.DeepenNot)))
	}
	return d
}
