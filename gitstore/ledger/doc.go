// Package ledger defines the ordered key-value store that every durable fact of
// headgate lives in, and the contract its engines keep.
//
// A space is an independent set of ordered keys with a log of its own: one per
// repo, one per org, and one for the server. A batch changes one space: all its
// checks hold and everything is written, or nothing is. Checks are evaluated
// inside the atomic step, so a batch that was applied proves what it checked.
//
// Durable and published. Apply returns when its batch is durable. No view, no
// watcher and no failed check's answer ever shows a batch that a power cut could
// still take back; Peek alone may, for preparing a batch that follows in the log.
//
// The engines are gitstore/ledger/pebbledb (embedded) and gitstore/ledger/redisdb
// (shared by several nodes). gitstore/ledger/ledgertest holds them to this page.
package ledger
