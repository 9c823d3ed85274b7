package pebbledb

import (
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/gitstore/ledger"
)

// Whatever keys share a slot: what is remembered of a key is what stands there.
func TestRecentIsNeverWrong(t *testing.T) {
	key := rapid.SampledFrom([]string{"a", "a/1", "a/2", "b", "b/1", "", strings.Repeat("k", maxRecent)})
	value := rapid.SampledFrom([]string{"", "x", "y", strings.Repeat("v", maxRecent-2), strings.Repeat("w", maxRecent+1)})
	rapid.Check(t, func(t *rapid.T) {
		r := newRecent()
		r.slots = r.slots[:rapid.IntRange(1, 4).Draw(t, "slots")]
		stands := map[string]string{}
		t.Repeat(map[string]func(*rapid.T){
			"read": func(t *rapid.T) {
				k := key.Draw(t, "key")
				if v, ok := stands[k]; ok {
					r.keep([]byte(k), []byte(v))
				}
			},
			"set": func(t *rapid.T) {
				k, v := key.Draw(t, "key"), value.Draw(t, "value")
				stands[k] = v
				r.put([]byte(k), []byte(v))
			},
			"delete": func(t *rapid.T) {
				k := key.Draw(t, "key")
				delete(stands, k)
				r.forget([]byte(k))
			},
			"drop": func(t *rapid.T) {
				prefix := key.Draw(t, "prefix")
				for k := range stands {
					if strings.HasPrefix(k, prefix) {
						delete(stands, k)
					}
				}
				r.forgetAll([]byte(prefix))
			},
			"": func(t *rapid.T) {
				for _, k := range []string{"a", "a/1", "a/2", "b", "b/1", ""} {
					got, known := r.value([]byte(k))
					if want, ok := stands[k]; known && (!ok || string(got) != want) {
						t.Fatalf("value(%q) = %q, want what stands there: %q, %v", k, got, want, ok)
					}
				}
			},
		})
	})
}

// The caller may change what it is given.
func TestReadKeysGivesValuesAway(t *testing.T) {
	r := openTest(t, "ledger", Options{FS: vfs.NewMem()})
	set := ledger.Batch{Space: "s", Sets: []ledger.Set{{Key: "k", Value: []byte("value")}}}
	if _, err := r.db.Apply(t.Context(), set); err != nil {
		t.Fatalf("Apply = %v", err)
	}
	set.Sets[0].Value[0] = 'X'
	for range 3 {
		got, err := r.db.ReadKeys(t.Context(), "s", "k")
		if err != nil || string(got[0]) != "value" {
			t.Fatalf("ReadKeys = %q, %v; want value", got, err)
		}
		got[0][0] = 'Y'
	}
}
