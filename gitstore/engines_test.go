package gitstore

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
	"github.com/headgate/headgate/gitstore/ledger/redisdb"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
)

// opener opens a ledger, and opens it again after it was closed.
type opener func(t testing.TB) ledger.Ledger

// onEveryEngine runs a test on each ledger. start begins one that holds nothing, as
// often as it is called.
func onEveryEngine(t *testing.T, test func(t *testing.T, start func(testing.TB) opener)) {
	t.Run("pebble", func(t *testing.T) {
		test(t, func(testing.TB) opener { return pebbleIn(vfs.NewMem()) })
	})
	t.Run("redis", func(t *testing.T) {
		test(t, func(t testing.TB) opener {
			url := redistest.Start(t).URL()
			return func(t testing.TB) ledger.Ledger {
				t.Helper()
				db, err := redisdb.Open(t.Context(), url, redisdb.Options{})
				if err != nil {
					t.Fatalf("redisdb.Open: %v", err)
				}
				return db
			}
		})
	})
}

// pebbleIn opens the embedded engine on a file system in memory.
func pebbleIn(fs vfs.FS) opener {
	return func(t testing.TB) ledger.Ledger {
		t.Helper()
		db, err := pebbledb.Open("ledger", pebbledb.Options{FS: fs})
		if err != nil {
			t.Fatalf("pebbledb.Open: %v", err)
		}
		return db
	}
}
