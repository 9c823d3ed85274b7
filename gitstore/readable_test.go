package gitstore

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// One walk tells of each object what asking for it alone tells.
func TestPropertyReadableAmongIsReadableOneByOne(t *testing.T) {
	x := newA13(t, Limits{})
	var ids []refpolicy.OID
	for _, s := range x.secrets {
		ids = append(ids, mustOID(t, s.id))
	}
	ids = append(ids, mustOID(t, x.a), mustOID(t, x.tree), hashObject(BlobObject, []byte(strings.Repeat("shared\n", 50))), mustOID(t, strings.Repeat("ab", 20)))
	for _, c := range []Caller{x.c, someone, confined(t, branchB13)} {
		got, err := x.r.readableAmong(t.Context(), c, ids)
		if err != nil {
			t.Fatalf("readableAmong: %v", err)
		}
		for _, id := range ids {
			want, err := x.r.readableObject(t.Context(), c, id)
			if err != nil || got[id] != want {
				t.Errorf("readableAmong says of %s %v, readableObject %v, %v", id, got[id], want, err)
			}
		}
	}
}
