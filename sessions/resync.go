package sessions

import "github.com/headgate/headgate/gitstore/ledger"

// baseStep is how far the epochs of a repo go on when its ledger lost writes: more
// than there can have been takeovers that were lost.
const baseStep = 1 << 20

// eventResync says that entries before it may be missing, or never have been.
const eventResync = "resync"

// ResyncData is the data of a log entry of type resync.
type ResyncData struct {
	Reason string `json:"reason"`
}

// Resynced is what a repo's space is given when its ledger turns out to have lost
// acknowledged writes: every epoch that was told before is over, with it every lease,
// and whoever reads the log learns of it. undone is how many such batches were lost,
// too: their epochs are over as well.
func Resynced(undone int64, why string) ledger.Batch {
	return ledger.Batch{
		Adds: []ledger.Add{{Key: baseKey, Delta: (1 + max(0, undone)) * baseStep}},
		Log:  logEntry{Type: eventResync, Actor: Actor{Subject: "headgate"}, Data: mustJSON(ResyncData{why})}.encode(),
	}
}
