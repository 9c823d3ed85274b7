package redisdb_test

import (
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/redisdb/redistest"
)

// A failover by Sentinel to a replica that missed acknowledged writes: the node finds
// the new master by itself, notices, and goes on in a new incarnation.
func TestDR21_SentinelFailoverThatLosesWrites(t *testing.T) {
	const space = ledger.Space("repo/failover")
	w := redistest.StartWatched(t)
	db := openMending(t, w.URL())
	inUse(t, db)
	applyN(t, db, 3, logOne(space))
	w.CutReplica()
	applyN(t, db, 3, logOne(space))
	w.FailOver()
	r, _ := applySoon(t, db, logOne(space))
	if r.Seq <= 6 {
		t.Errorf("after the failover number %d was written, want one above 6, which was told before", r.Seq)
	}
	if got := get(t, db, space, "base"); got != "100" {
		t.Errorf("base = %s after the failover, want 100", got)
	}
}
