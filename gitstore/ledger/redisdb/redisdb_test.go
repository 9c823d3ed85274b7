package redisdb_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/ledgertest"
	"github.com/headgate/headgate/gitstore/ledger/redisdb"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
)

func TestSingleRedis(t *testing.T) {
	ledgertest.Run(t, engine(redistest.Start(t).URL()))
}

func TestRedisCluster(t *testing.T) {
	t.Parallel() // with the other test that mostly waits for a cluster to form
	ledgertest.Run(t, engine(redistest.StartCluster(t).URL()))
}

func engine(url string) ledgertest.Engine {
	return ledgertest.Engine{Open: func(t *testing.T) ledgertest.Instance {
		db := open(t, url)
		return ledgertest.Instance{Ledger: db, Reopen: func(t *testing.T) ledger.Ledger {
			if err := db.Close(); err != nil {
				t.Fatalf("Close() = %v, want nil", err)
			}
			db = open(t, url)
			return db
		}}
	}}
}

// open opens the ledger at url, wants it durable, and closes it with the test.
func open(t testing.TB, url string) *redisdb.DB {
	t.Helper()
	var warnings bytes.Buffer
	db, err := redisdb.Open(t.Context(), url, redisdb.Options{
		Logger: slog.New(slog.NewTextHandler(&warnings, nil)), RequireDurable: true,
	})
	if err != nil {
		t.Fatalf("Open(%q) = %v, want a ledger", url, err)
	}
	if warnings.Len() > 0 {
		t.Fatalf("Open(%q) warned %s, want no warning", url, warnings.String())
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
