package sessions

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTokenIDSaysItsTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		issued := time.UnixMilli(rapid.Int64Range(0, 1<<46).Draw(t, "issued"))
		expires := issued.Add(time.Duration(rapid.Int64Range(0, 1<<36).Draw(t, "ttl")) * time.Millisecond)
		first := newTokenID("", issued, expires)
		for _, id := range []tokenID{first, newTokenID(first.family, issued, expires)} {
			got, ok := parseTokenID(id.String())
			if !ok || got != id || got.family != first.family {
				t.Fatalf("parseTokenID(%q) = %+v, %v, want %+v", id, got, ok, id)
			}
			if !got.issuedAt().Equal(issued) || !got.expiresAt().Equal(expires) {
				t.Fatalf("%s: issued %v, expires %v, want %v, %v", id, got.issuedAt(), got.expiresAt(), issued, expires)
			}
		}
		later := newTokenID("", issued.Add(time.Millisecond), expires)
		if later.own >= first.own {
			t.Fatalf("id of a newer token %q is not before that of an older one, %q", later, first)
		}
	})
}

func TestForeignTokenIDs(t *testing.T) {
	id := newTokenID("", time.UnixMilli(1), time.UnixMilli(2)).String()
	for _, jti := range []string{
		"", ".", id + ".", "." + id, id + "." + id, id + ".x", id[1:], id + "0", strings.ToUpper(id[:31]) + "Z",
		id + "." + newTokenID("", time.UnixMilli(1), time.UnixMilli(2)).String() + ".x", "a customer's own id", id[2:] + "\r\n",
	} {
		if got, ok := parseTokenID(jti); ok {
			t.Errorf("parseTokenID(%q) = %+v, want none", jti, got)
		}
	}
}

func FuzzTokenID(f *testing.F) {
	first := newTokenID("", time.UnixMilli(1), time.UnixMilli(2))
	f.Add(first.String())
	f.Add(newTokenID(first.family, time.UnixMilli(3), time.UnixMilli(4)).String())
	f.Add("00.11")
	f.Fuzz(func(t *testing.T, jti string) {
		if id, ok := parseTokenID(jti); ok && id.String() != jti {
			t.Errorf("parseTokenID(%q) is %q again", jti, id)
		}
	})
}
