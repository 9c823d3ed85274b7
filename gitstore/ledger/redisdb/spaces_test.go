package redisdb_test

import (
	"errors"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
)

// Several spaces are asked at once, and each answers for its own keys.
func TestReadSpaces(t *testing.T) {
	db := open(t, redistest.Start(t).URL())
	one, two := ledger.RepoSpace("one"), ledger.RepoSpace("two")
	for _, s := range []ledger.Space{one, two} {
		b := ledger.Batch{Space: s, Sets: []ledger.Set{{Key: "k", Value: []byte(s)}, {Key: "empty"}}}
		if _, err := db.Apply(t.Context(), b); err != nil {
			t.Fatalf("Apply: %v", err)
		}
	}
	got, err := db.ReadSpaces(t.Context(),
		ledger.SpaceKeys{Space: one, Keys: []string{"k", "none"}},
		ledger.SpaceKeys{Space: "repo/nothing", Keys: []string{"k"}},
		ledger.SpaceKeys{Space: two, Keys: []string{"empty", "k"}})
	if err != nil {
		t.Fatalf("ReadSpaces: %v", err)
	}
	if string(got[0][0]) != string(one) || got[0][1] != nil || got[1][0] != nil || got[2][0] == nil || string(got[2][1]) != string(two) {
		t.Errorf("ReadSpaces = %q, want the values of each space, nil for what is absent", got)
	}
	if err := db.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if _, err := db.ReadSpaces(t.Context(), ledger.SpaceKeys{Space: one, Keys: []string{"k"}}); !errors.Is(err, ledger.ErrClosed) {
		t.Errorf("ReadSpaces after Close = %v, want ErrClosed", err)
	}
}
