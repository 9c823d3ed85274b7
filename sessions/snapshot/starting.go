package snapshot

import "github.com/headgate/headgate/gitstore/ledger"

// ReadyCheck holds in the repo's space while a snapshot is ready: for the batch that
// makes a session from it.
func ReadyCheck(commit OID) ledger.Check {
	return ledger.Equal(readyKey(commit.String()), readyValue)
}
