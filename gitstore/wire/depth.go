package wire

import (
	"math"
	"strconv"
	"strings"

	"github.com/headgate/headgate/refpolicy"
)

// InfiniteDepth is the depth that "git fetch --unshallow" asks for.
const InfiniteDepth = math.MaxInt32

// A DepthRequest is the part of a fetch that deals with shallow history; it is
// the same in all protocol versions, except for the place of DeepenRelative.
//
//	line = "shallow" SP oid / "deepen" SP number / "deepen-since" SP seconds / "deepen-not" SP ref
type DepthRequest struct {
	Shallow        []refpolicy.OID // commits whose parents the client does not have
	Deepen         int             // depth in commits from the wants; 0: not asked
	DeepenSince    int64           // seconds since 1970; 0: not asked
	DeepenNot      []string        // names of refs whose history is to be left out
	DeepenRelative bool            // Deepen counts from the present shallow commits; v2 sends a line, v0 a capability
}

// Deepens reports whether the client asks for a new shallow boundary.
func (d *DepthRequest) Deepens() bool {
	return d.Deepen > 0 || d.DeepenSince != 0 || len(d.DeepenNot) > 0
}

// addLine takes line if it is one of this grammar.
func (d *DepthRequest) addLine(line string, limits Limits) (taken bool, err error) {
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "shallow":
		if err := within(len(d.Shallow), limits.Shallow, "shallow lines"); err != nil {
			return true, err
		}
		id, err := parseOID(verb, rest)
		if err != nil {
			return true, err
		}
		d.Shallow = append(d.Shallow, id)
	case "deepen":
		n, err := strconv.ParseInt(rest, 10, 32)
		if err != nil || n <= 0 {
			return true, protocolErrorf("invalid deepen: %s", quote(line))
		}
		d.Deepen = int(n)
	case "deepen-since":
		n, err := strconv.ParseInt(rest, 10, 64)
		if err != nil || n <= 0 {
			return true, protocolErrorf("invalid deepen-since: %s", quote(line))
		}
		d.DeepenSince = n
	case "deepen-not":
		if err := within(len(d.DeepenNot), limits.DeepenNot, "deepen-not lines"); err != nil {
			return true, err
		}
		d.DeepenNot = append(d.DeepenNot, rest)
		return true, limits.checkName(rest)
	default:
		return false, nil
	}
	return true, nil
}

// check refuses what git refuses: a depth together with a date or a ref.
func (d *DepthRequest) check() error {
	if d.Deepen > 0 && (d.DeepenSince != 0 || len(d.DeepenNot) > 0) {
		return protocolErrorf("deepen and deepen-since (or deepen-not) cannot be used together")
	}
	return nil
}

func (d *DepthRequest) encode(e *requestEncoder) {
	for _, id := range d.Shallow {
		e.string("shallow " + id.String())
	}
	if d.Deepen > 0 {
		e.string("deepen " + strconv.Itoa(d.Deepen))
	}
	if d.DeepenSince != 0 {
		e.string("deepen-since " + strconv.FormatInt(d.DeepenSince, 10))
	}
	for _, ref := range d.DeepenNot {
		e.line("deepen-not " + ref)
	}
}
