package main

import (
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/redisdb"
	"github.com/headgate/headgate/sessions"
)

// lostWrites is why a log begins anew, as its readers are told.
const lostWrites = "the ledger lost acknowledged writes"

// resynced is what is written to a space that goes on after its Redis lost writes. A
// repo's space that is gone whole has nothing that could come back.
func resynced(lost *redisdb.LostWritesError) (ledger.Batch, bool) {
	if !strings.HasPrefix(string(lost.Space), string(ledger.RepoSpace(""))) || lost.Found.Incarnation == 0 {
		return ledger.Batch{}, true
	}
	return sessions.Resynced(lost.Known.Resyncs-lost.Found.Resyncs, lostWrites), true
}
