package wire

import (
	"encoding/hex"
	"slices"

	"github.com/headgate/headgate/refpolicy"
)

// hexOID is the length of an oid on the wire.
const hexOID = 2 * len(refpolicy.ZeroOID)

func appendOID(b []byte, id refpolicy.OID) []byte { return hex.AppendEncode(b, id[:]) }

// parseOID reads the oid of a line that begins with verb.
func parseOID(verb, s string) (refpolicy.OID, error) {
	id, err := refpolicy.ParseOID(s)
	if err != nil {
		return id, protocolErrorf("%s: bad object id %s", verb, quote(s))
	}
	return id, nil
}

// sortedOIDs gives a sorted copy without doubles; nil stays nil.
func sortedOIDs(ids []refpolicy.OID) []refpolicy.OID {
	if len(ids) == 0 {
		return nil
	}
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b refpolicy.OID) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(ids)
}
