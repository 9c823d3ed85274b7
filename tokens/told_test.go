package tokens

import (
	"errors"
	"testing"
	"time"
)

func TestReadUnverified(t *testing.T) {
	key, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_800_000_000, 0).UTC()
	raw, err := Sign(key, Claims{Org: "acme", Repo: "site", Session: "s1", IssuedAt: at, ExpiresAt: at.Add(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadUnverified(raw)
	want := Told{Org: "acme", Repo: "site", Session: "s1", IssuedAt: at, ExpiresAt: at.Add(time.Minute)}
	if err != nil || got != want {
		t.Errorf("ReadUnverified = %+v, %v, want %+v", got, err, want)
	}
	for _, bad := range []string{"", "a.b.c", raw[:len(raw)/2], "not a token"} {
		if _, err := ReadUnverified(bad); !errors.Is(err, ErrUnauthorized) {
			t.Errorf("ReadUnverified(%q) = %v, want what wraps ErrUnauthorized", bad, err)
		}
	}
}
