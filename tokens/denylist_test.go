package tokens

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
)

func memLedger(t testing.TB, now func() time.Time) ledger.Ledger {
	t.Helper()
	db, err := pebbledb.Open("ledger", pebbledb.Options{FS: vfs.NewMem(), Clock: now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatalf("open ledger: %v", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// aNode is a verifier of the org acme with a deny list of its own over l.
func aNode(t testing.TB, l ledger.Ledger, c *clock) (*Verifier, *DenyList) {
	t.Helper()
	_, ring, _ := acme(t, ecOne())
	list := NewDenyList(l, DenyListOptions{Now: c.now})
	t.Cleanup(list.Close)
	return NewVerifier(ring, c.now, WithDenyList(list)), list
}

func deny(t testing.TB, list *DenyList, d Denial) Denial {
	t.Helper()
	made, err := list.Deny(t.Context(), "acme", d)
	if err != nil {
		t.Fatalf("Deny(%+v) = %v", d, err)
	}
	return made
}

// eventually waits until ok, which another goroutine brings about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// A leaked token, named by its hash, its jti, or its subject and time, is refused by
// the node that was asked at once, and by every other one without being asked again.
func TestDeniedOnEveryNode(t *testing.T) {
	c := &clock{at: testNow}
	l := memLedger(t, c.now)
	one, list := aNode(t, l, c)
	two, _ := aNode(t, l, c)
	claims := goodClaims()
	claims.ID = "leaked"
	raw := sign(t, ecOne(), claims)
	other := goodClaims()
	other.Subject = "somebody else"
	unharmed := sign(t, ecOne(), other)
	for name, d := range map[string]Denial{
		"hash":    {TokenSHA256: strings.ToUpper(TokenSHA256(raw)), Reason: "seen in a build log", By: "operator"},
		"jti":     {TokenID: "leaked"},
		"subject": {Subject: "builder", IssuedBefore: testNow.Add(time.Second)},
	} {
		for i, v := range []*Verifier{one, two} {
			if _, err := v.Verify(t.Context(), raw); err != nil {
				t.Fatalf("%s: before, node %d: Verify = %v", name, i, err)
			}
		}
		made := deny(t, list, d)
		if _, err := one.Verify(t.Context(), raw); !errors.Is(err, ErrDenied) || !errors.Is(err, ErrUnauthorized) {
			t.Errorf("%s: Verify = %v, want ErrDenied", name, err)
		}
		eventually(t, name+": the other node refuses", func() bool {
			_, err := two.Verify(t.Context(), raw)
			return errors.Is(err, ErrDenied)
		})
		for i, v := range []*Verifier{one, two} {
			if _, err := v.Verify(t.Context(), unharmed); err != nil {
				t.Errorf("%s: another's token, node %d: Verify = %v", name, i, err)
			}
		}
		later, _ := aNode(t, l, c)
		if _, err := later.Verify(t.Context(), raw); !errors.Is(err, ErrDenied) {
			t.Errorf("%s: a node that starts later: Verify = %v, want ErrDenied", name, err)
		}
		if err := list.Allow(t.Context(), "acme", made.ID); err != nil {
			t.Fatalf("%s: Allow = %v", name, err)
		}
		if _, err := one.Verify(t.Context(), raw); err != nil {
			t.Errorf("%s: after Allow: Verify = %v", name, err)
		}
		eventually(t, name+": the other node lets it in again", func() bool {
			_, err := two.Verify(t.Context(), raw)
			return err == nil
		})
	}
}

// All tokens of a subject up to a time: later ones are good, those without iat are not.
func TestDenySubject(t *testing.T) {
	c := &clock{at: testNow}
	v, list := aNode(t, memLedger(t, c.now), c)
	at := func(iat time.Time) string {
		claims := goodClaims()
		claims.IssuedAt = iat
		return sign(t, ecOne(), claims)
	}
	before, same, after, never := at(testNow.Add(-time.Minute)), at(testNow), at(testNow.Add(time.Second)), at(time.Time{})
	made := deny(t, list, Denial{Subject: "builder"})
	if !made.IssuedBefore.Equal(made.At) || made.At.IsZero() {
		t.Errorf("Deny of a subject = %+v, want it to hold for tokens from before now", made)
	}
	deny(t, list, Denial{Subject: "builder", IssuedBefore: testNow.Add(time.Second)})
	for name, tc := range map[string]struct {
		raw  string
		want error
	}{"before": {before, ErrDenied}, "in the same second": {same, ErrDenied}, "after": {after, nil}, "without iat": {never, ErrDenied}} {
		if _, err := v.Verify(t.Context(), tc.raw); !errors.Is(err, tc.want) {
			t.Errorf("%s: Verify = %v, want %v", name, err, tc.want)
		}
	}
}

func TestDenialEnds(t *testing.T) {
	c := &clock{at: testNow}
	v, list := aNode(t, memLedger(t, c.now), c)
	raw := sign(t, ecOne(), goodClaims())
	deny(t, list, Denial{TokenSHA256: TokenSHA256(raw), Until: testNow.Add(time.Minute)})
	if _, err := v.Verify(t.Context(), raw); !errors.Is(err, ErrDenied) {
		t.Errorf("Verify = %v, want ErrDenied", err)
	}
	c.set(testNow.Add(time.Minute))
	if _, err := v.Verify(t.Context(), raw); err != nil {
		t.Errorf("Verify after its end = %v", err)
	}
}

// An issued token can be denied as well, and what one org denies is another's no matter.
func TestDenyIssuedTokensAndOneOrgAlone(t *testing.T) {
	_, keys, ring, c := issuing(t)
	ring.Replace(map[string][]Key{"acme": {keyOf(t, "k", ecOne())}, "beta": {keyOf(t, "k", ecOne())}})
	list := NewDenyList(memLedger(t, c.now), DenyListOptions{Now: c.now})
	t.Cleanup(list.Close)
	v := NewVerifier(ring, c.now, WithServerKeys(keys), WithDenyList(list))
	acmes, betas := goodGrant(), goodGrant()
	betas.Org = "beta"
	deny(t, list, Denial{TokenID: acmes.ID})
	if _, err := v.Verify(t.Context(), mint(t, keys, acmes)); !errors.Is(err, ErrDenied) {
		t.Errorf("Verify = %v, want ErrDenied", err)
	}
	if _, err := v.Verify(t.Context(), mint(t, keys, betas)); err != nil {
		t.Errorf("Verify of another org's token with the same jti = %v", err)
	}
}

func TestBadDenials(t *testing.T) {
	c := &clock{at: testNow}
	_, list := aNode(t, memLedger(t, c.now), c)
	for name, d := range map[string]Denial{
		"nothing":            {Reason: "x"},
		"two names":          {TokenID: "a", Subject: "b"},
		"no hash":            {TokenSHA256: "abc"},
		"the token itself":   {TokenSHA256: sign(t, ecOne(), goodClaims())},
		"time without sub":   {TokenID: "a", IssuedBefore: testNow},
		"long jti":           {TokenID: strings.Repeat("j", maxDeniedName+1)},
		"jti not UTF-8":      {TokenID: "\xff"},
		"long reason":        {TokenID: "a", Reason: strings.Repeat("r", maxDenialNotes+1)},
		"ends before it was": {TokenID: "a", Until: testNow.Add(-time.Second)},
	} {
		if _, err := list.Deny(t.Context(), "acme", d); !errors.Is(err, ErrBadDenial) {
			t.Errorf("%s: Deny = %v, want ErrBadDenial", name, err)
		}
	}
	for _, id := range []string{"", "denials", "deny/" + strings.Repeat("0", 64), "deny-jti/x", "name/r"} {
		if err := list.Allow(t.Context(), "acme", id); !errors.Is(err, ErrDenialNotFound) {
			t.Errorf("Allow(%q) = %v, want ErrDenialNotFound", id, err)
		}
	}
	if _, _, err := list.Denials(t.Context(), "acme", "name/r", 10); !errors.Is(err, ErrBadDenial) {
		t.Errorf("Denials from a bad cursor = %v, want ErrBadDenial", err)
	}
}

// The list tells every denial once, page by page, as it was made.
func TestDenialsPaged(t *testing.T) {
	c := &clock{at: testNow}
	_, list := aNode(t, memLedger(t, c.now), c)
	want := map[string]Denial{}
	for i := range 7 {
		for _, d := range []Denial{
			{TokenSHA256: TokenSHA256(fmt.Sprint(i)), Reason: "r", By: "b"},
			{TokenID: fmt.Sprint("j/", i), Until: testNow.Add(time.Hour)},
			{Subject: fmt.Sprint("s ", i), IssuedBefore: testNow.Add(-time.Hour)},
		} {
			made := deny(t, list, d)
			want[made.ID] = made
		}
	}
	cursor := ""
	for pages := 1; ; pages++ {
		page, next, err := list.Denials(t.Context(), "acme", cursor, 4)
		if err != nil || len(page) == 0 {
			t.Fatalf("Denials(%q) = %v, %v", cursor, page, err)
		}
		for _, d := range page {
			if d != want[d.ID] {
				t.Errorf("Denials tells %+v, want %+v", d, want[d.ID])
			}
			delete(want, d.ID)
		}
		if cursor = next; cursor == "" {
			if pages != 6 {
				t.Errorf("%d pages, want 6", pages)
			}
			break
		}
	}
	if len(want) > 0 {
		t.Errorf("not told: %v", want)
	}
}

// A cutLedger answers nothing while it is away.
type cutLedger struct {
	ledger.Ledger
	away  atomic.Bool
	reads atomic.Int64 // those that were refused
}

func (l *cutLedger) Read(ctx context.Context, s ledger.Space) (ledger.View, error) {
	if l.away.Load() {
		l.reads.Add(1)
		return nil, ledger.ErrUnavailable
	}
	return l.Ledger.Read(ctx, s)
}

// While the ledger is away what was known last holds, an org of which nothing is
// known is not let in, and what was missed is caught up with later.
func TestDenialsWhileTheLedgerIsAway(t *testing.T) {
	c := &clock{at: testNow}
	l := memLedger(t, c.now)
	cut := &cutLedger{Ledger: l}
	v, _ := aNode(t, cut, c)
	_, elsewhere := aNode(t, l, c)
	denied, open := goodClaims(), goodClaims()
	denied.ID, open.ID = "a", "b"
	first, second := sign(t, ecOne(), denied), sign(t, ecOne(), open)

	cut.away.Store(true)
	if _, err := v.Verify(t.Context(), second); !errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, ErrUnauthorized) {
		t.Errorf("Verify before anything is known = %v, want ErrUnavailable", err)
	}
	cut.away.Store(false)
	deny(t, elsewhere, Denial{TokenID: "a"})
	if _, err := v.Verify(t.Context(), first); !errors.Is(err, ErrDenied) {
		t.Errorf("Verify = %v, want ErrDenied", err)
	}
	cut.away.Store(true)
	refused := cut.reads.Load()
	deny(t, elsewhere, Denial{TokenID: "b"})
	eventually(t, "the node tries to read the list", func() bool { return cut.reads.Load() > refused })
	if _, err := v.Verify(t.Context(), first); !errors.Is(err, ErrDenied) {
		t.Errorf("Verify while the ledger is away = %v, want ErrDenied", err)
	}
	if _, err := v.Verify(t.Context(), second); err != nil {
		t.Errorf("Verify of what is not known to be denied = %v", err)
	}
	cut.away.Store(false)
	eventually(t, "the node catches up", func() bool {
		_, err := v.Verify(t.Context(), second)
		return errors.Is(err, ErrDenied)
	})
}

// What a node has denied itself holds there though it cannot read the list again.
func TestDenyThoughTheListCannotBeRead(t *testing.T) {
	c := &clock{at: testNow}
	cut := &cutLedger{Ledger: memLedger(t, c.now)}
	v, list := aNode(t, cut, c)
	raw := sign(t, ecOne(), goodClaims())
	if _, err := v.Verify(t.Context(), raw); err != nil {
		t.Fatalf("Verify = %v", err)
	}
	cut.away.Store(true)
	deny(t, list, Denial{TokenSHA256: TokenSHA256(raw)})
	if _, err := v.Verify(t.Context(), raw); !errors.Is(err, ErrDenied) {
		t.Errorf("Verify = %v, want ErrDenied", err)
	}
}

// A record that cannot be read denies what its key names.
func TestDamagedDenialHolds(t *testing.T) {
	c := &clock{at: testNow}
	l := memLedger(t, c.now)
	raw := sign(t, ecOne(), goodClaims())
	for _, key := range []string{denyTokenKeys + TokenSHA256(raw), denySubjectKeys + "builder"} {
		if _, err := l.Apply(t.Context(), ledger.Batch{Space: ledger.OrgSpace("acme"), Sets: []ledger.Set{{Key: key, Value: []byte("{")}}}); err != nil {
			t.Fatal(err)
		}
		v, _ := aNode(t, l, c)
		if _, err := v.Verify(t.Context(), raw); !errors.Is(err, ErrDenied) {
			t.Errorf("%s: Verify = %v, want ErrDenied", key, err)
		}
		if _, err := l.Apply(t.Context(), ledger.Batch{Space: ledger.OrgSpace("acme"), Deletes: []string{key}}); err != nil {
			t.Fatal(err)
		}
	}
}

// Denials made and taken back at random on two nodes, against a plain set.
func TestPropertyDenyListIsASet(t *testing.T) {
	c := &clock{at: testNow}
	l := memLedger(t, c.now)
	one, listOne := aNode(t, l, c)
	two, listTwo := aNode(t, l, c)
	raws := make([]string, 4)
	for i := range raws {
		claims := goodClaims()
		claims.ID = fmt.Sprint(i)
		raws[i] = sign(t, ecOne(), claims)
	}
	rapid.Check(t, func(rt *rapid.T) {
		denied := map[string]int{} // id -> which token
		for range rapid.IntRange(1, 6).Draw(rt, "steps") {
			list := rapid.SampledFrom([]*DenyList{listOne, listTwo}).Draw(rt, "node")
			n := rapid.IntRange(0, len(raws)-1).Draw(rt, "token")
			d := rapid.SampledFrom([]Denial{{TokenID: fmt.Sprint(n)}, {TokenSHA256: TokenSHA256(raws[n])}}).Draw(rt, "denial")
			named := must(d.named())
			if rapid.Bool().Draw(rt, "deny") {
				deny(t, list, d)
				denied[named.ID] = n
				continue
			}
			_, there := denied[named.ID]
			if err := list.Allow(t.Context(), "acme", named.ID); errors.Is(err, ErrDenialNotFound) == there {
				rt.Fatalf("Allow(%s) = %v, denied: %v", named.ID, err, there)
			}
			delete(denied, named.ID)
		}
		for n, raw := range raws {
			want := false
			for _, m := range denied {
				want = want || m == n
			}
			for _, v := range []*Verifier{one, two} {
				eventually(t, fmt.Sprintf("token %d is denied: %v", n, want), func() bool {
					_, err := v.Verify(t.Context(), raw)
					return errors.Is(err, ErrDenied) == want
				})
			}
		}
		for id := range denied {
			if err := listOne.Allow(t.Context(), "acme", id); err != nil {
				rt.Fatalf("Allow(%s) = %v", id, err)
			}
		}
	})
}

// A denial's names and what is under its key come back as they were, whatever the
// names hold; whatever is under a key, reading it does not fail.
func FuzzDenial(f *testing.F) {
	f.Add("deny-sub/a", `{"at":"2026-01-01T00:00:00Z","issued_before":"2026-01-01T00:00:00Z"}`)
	f.Add("deny-jti/\x00", `null`)
	f.Add("deny/x", `{"until":1}`)
	f.Fuzz(func(t *testing.T, id, value string) {
		if !isDenialID(id) {
			return
		}
		d := decodeDenial(id, []byte(value))
		known := newDenials("", map[string]Denial{id: d})
		if n := len(known.tokens) + len(known.ids) + len(known.subjects); n > 1 {
			t.Errorf("%q denies %d things", id, n)
		}
		again, err := d.named()
		if err == nil && again.ID != id && again.ID != denyTokenKeys+strings.ToLower(d.TokenSHA256) {
			t.Errorf("%q is called %q", id, again.ID)
		}
	})
}
