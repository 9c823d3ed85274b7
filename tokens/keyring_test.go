package tokens

import (
	"crypto"
	"crypto/ecdsa"
	"errors"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A key is exchanged without a moment in which a good token is refused.
func TestRotation(t *testing.T) {
	v, ring, _ := acme(t)
	before, after := keyOf(t, "2025", ecOne()), keyOf(t, "2026", ecTwo())
	oldToken, newToken := sign(t, ecOne(), goodClaims()), sign(t, ecTwo(), goodClaims())
	retired := before
	retired.Inactive = true
	for _, step := range []struct {
		name             string
		keys             []Key
		takeOld, takeNew bool
	}{
		{"old only", []Key{before}, true, false},
		{"both", []Key{before, after}, true, true},
		{"both, other order", []Key{after, before}, true, true},
		{"old one inactive", []Key{retired, after}, false, true},
		{"new only", []Key{after}, false, true},
		{"old one back", []Key{before}, true, false},
		{"none", nil, false, false},
	} {
		ring.Replace(map[string][]Key{"acme": step.keys})
		for range 2 { // the second call is answered from memory
			_, err := v.Verify(t.Context(), oldToken)
			if (err == nil) != step.takeOld {
				t.Errorf("%s: Verify of the old key's token = %v, want it taken: %v", step.name, err, step.takeOld)
			}
			_, err = v.Verify(t.Context(), newToken)
			if (err == nil) != step.takeNew {
				t.Errorf("%s: Verify of the new key's token = %v, want it taken: %v", step.name, err, step.takeNew)
			}
		}
	}
}

// What was granted is asked of the present keys too, not only whether it was.
func TestReplaceChangesLimitsAtOnce(t *testing.T) {
	v, ring, _ := acme(t, ecOne())
	raw := sign(t, ecOne(), goodClaims())
	if p, err := v.Verify(t.Context(), raw); err != nil || !p.Scopes.Has(GitWrite) {
		t.Fatalf("Verify = %+v, %v, want git:write", p, err)
	}
	k := keyOf(t, "k0", ecOne())
	k.Limit = ScopesOf(GitRead)
	ring.Replace(map[string][]Key{"acme": {k}})
	if p, err := v.Verify(t.Context(), raw); err != nil || p.Scopes.Has(GitWrite) {
		t.Errorf("after the key was limited: Verify = %+v, %v, want no git:write", p, err)
	}
}

func TestReplaceKeepsItsOwnCopy(t *testing.T) {
	v, ring, _ := acme(t)
	keys := map[string][]Key{"acme": {keyOf(t, "k", ecOne())}}
	ring.Replace(keys)
	keys["acme"][0] = keyOf(t, "k", ecTwo())
	delete(keys, "acme")
	if _, err := v.Verify(t.Context(), sign(t, ecOne(), goodClaims())); err != nil {
		t.Errorf("after the caller changed its map: Verify = %v", err)
	}
	if got := ring.Orgs(); !reflect.DeepEqual(got, []string{"acme"}) || !ring.HasOrg("acme") || ring.HasOrg("other") {
		t.Errorf("Orgs = %v, want acme alone", got)
	}
}

func TestRaceReplaceAgainstVerify(t *testing.T) {
	v, ring, _ := acme(t, ecOne())
	raw := sign(t, ecOne(), goodClaims())
	with := map[string][]Key{"acme": {keyOf(t, "k", ecOne())}}
	without := map[string][]Key{"acme": {keyOf(t, "k", ecTwo())}}

	// Odd turns: the key is gone; the counter moves only after Replace has returned,
	// and back before the key returns.
	var turn atomic.Int64
	var wg sync.WaitGroup
	var taken, refused atomic.Int64
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				before := turn.Load()
				_, err := v.Verify(t.Context(), raw)
				after := turn.Load()
				if err == nil {
					taken.Add(1)
				} else {
					refused.Add(1)
				}
				if before%2 == 1 && before == after && err == nil {
					t.Errorf("Verify took a token whose key had been removed before the call began")
					return
				}
			}
		})
	}
	deadline := time.Now().Add(20 * time.Second)
	for i := 0; (i < 500 || taken.Load() == 0 || refused.Load() == 0) && time.Now().Before(deadline); i++ {
		ring.Replace(without)
		turn.Add(1)
		for range 3 {
			if _, err := v.Verify(t.Context(), raw); !errors.Is(err, ErrBadSignature) {
				t.Errorf("Verify right after the key was removed = %v, want %v", err, ErrBadSignature)
			}
		}
		turn.Add(1)
		ring.Replace(with)
		if _, err := v.Verify(t.Context(), raw); err != nil {
			t.Errorf("Verify right after the key came back = %v", err)
		}
	}
	close(stop)
	wg.Wait()
	if taken.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d taken, %d refused: the race was not run", taken.Load(), refused.Load())
	}
}

// A verification that was begun under the old keys must not answer by them once
// Replace has returned, and must leave nothing behind that answers later.
func TestRaceReplaceInTheMidstOfVerify(t *testing.T) {
	ring := NewKeyring()
	k := keyOf(t, "k", ecOne())
	ring.Replace(map[string][]Key{"acme": {k}})
	removed := false
	now := func() time.Time { // called after the signature was found good
		if !removed {
			removed = true
			ring.Replace(nil)
		}
		return testNow
	}
	v := NewVerifier(ring, now)
	for _, call := range []string{"the call in flight", "a later call"} {
		if p, err := v.Verify(t.Context(), sign(t, ecOne(), goodClaims())); p != nil || !errors.Is(err, ErrUnknownOrg) {
			t.Errorf("%s: Verify = %v, %v, want nil, %v", call, p, err, ErrUnknownOrg)
		}
	}
}

func TestNewKeyTakesOnlyKnownKinds(t *testing.T) {
	for name, pub := range map[string]crypto.PublicKey{
		"P-384": ecP384().Public(), "RSA 1024": rsaWeak().Public(), "HMAC secret": []byte("secret"),
		"nil": nil, "EC without curve": &ecdsa.PublicKey{}, "a private key": ecOne(),
	} {
		if _, err := NewKey("k", pub); !errors.Is(err, ErrUnsupportedKey) {
			t.Errorf("NewKey of %s = %v, want %v", name, err, ErrUnsupportedKey)
		}
	}
	for _, id := range []string{"hg-1", "hg-", "a b", "a\n", "ä", strings.Repeat("k", 129)} {
		if _, err := NewKey(id, ecOne().Public()); !errors.Is(err, ErrBadKeyID) {
			t.Errorf("NewKey(%q) = %v, want %v", id, err, ErrBadKeyID)
		}
	}
	one, two := keyOf(t, "", ecOne()), keyOf(t, "", ecTwo())
	if len(one.ID) != 16 || one.ID == two.ID || one.ID != keyOf(t, "", ecOne()).ID {
		t.Errorf("ids of nameless keys = %q, %q, want two fingerprints", one.ID, two.ID)
	}
}

// A Key that was not made by NewKey verifies nothing and does no harm.
func TestZeroKeyIsPassedOver(t *testing.T) {
	v, ring, _ := acme(t)
	ring.Replace(map[string][]Key{"acme": {{}, {ID: "x"}, keyOf(t, "k", ecOne())}})
	if p, err := v.Verify(t.Context(), sign(t, ecOne(), goodClaims())); err != nil || p.KeyID != "k" {
		t.Errorf("Verify = %+v, %v, want it by key k", p, err)
	}
}
