// Package pebbledb is the ledger's embedded engine, on Pebble.
//
// # Durable and published
//
// A batch is checked and applied under its space's lock, against everything
// applied before it, and synced outside of the lock, so that one sync serves
// many batches (group commit). Between the two it is in flight: it can be seen
// by Peek and by the checks of later batches, and by nothing else. Read takes its
// snapshot under the lock and then waits for the newest batch in flight; so does
// every answer that tells what stands there, be it a refusal or a repeated id.
//
// # When the disk fails
//
// Pebble ends the process, or leaves its locks held for ever, when its log or
// manifest cannot be written. So it works on a guard, a file system that notes
// the first such failure, keeps everything after it from the disk and lets Pebble
// believe that all is well. From that moment no batch counts as durable: those in
// flight answer ErrUnavailable, later ones are refused, and only spaces with
// nothing in flight can be read. When the disk can be written again the engine
// closes Pebble and opens it anew: what the disk has is replayed and synced before
// anybody sees it. A reserve file is given up for that when the disk is full.
//
// # Keys
//
//	c                                    the clock when the ledger was last closed
//	m <space>                            last number, trimmed up to, time of the last batch
//	d <len16> <space> k <key>            a key
//	d <len16> <space> l <number64>       a log entry: time, data
//	i <slot32> <len16> <space> <id>      a batch id: number, time; a slot is ten minutes
//
// All numbers are big-endian, so that Pebble's byte order is ours; what belongs to
// a space is one range, and so is what belongs to ids that have had their time.
package pebbledb
