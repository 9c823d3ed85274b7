// Package redisdb is the ledger on Redis (7.0 or newer), shared by several nodes.
//
// A batch is one Lua script on the keys of one space, which stand under one hash
// tag, so that Redis Cluster works too: a hash of values, a sorted set that orders
// their keys, a stream with the log, and a hash with the space's numbers. The
// answer of a batch is kept under its ID, or in a place among the space's numbers, so
// a script that is sent again answers and does not repeat. What several callers ask
// at once is sent together.
//
// What is promised. Redis with "appendonly yes" and "appendfsync always" syncs its
// file after the commands of one turn of its event loop and before it sends any
// reply or message of that turn. So on one Redis an answer means durable, and what
// a view, a watcher or a failed check shows is durable too. Open looks whether the
// server is set up so.
//
// What is not. Replicas are behind by what is on its way to them, and Redis tells a
// client before it tells a replica. After a failover to a replica, or with a data
// folder that is older than the last answer, writes that were acknowledged may be
// missing. No setting of Redis rules this out. Each space therefore carries an
// incarnation and a version, and a node that finds a space behind what it was told
// before stops writing to it: a *LostWritesError. It looks when it writes, when it
// reads a log, and through all spaces that it knows when it meets a server that it
// has not met before. A node that was told nothing cannot see it.
//
// With Options.Resync the space then goes on: one script, checked against what was
// found, begins a new incarnation together with a batch of the caller's. That is the
// one case in which log numbers have a gap: they go on by over a million, so that no
// number that any reader was told is given to another entry. The other nodes follow.
// A space that is gone with the whole ledger stays stopped.
//
// Redis has no snapshots. For a dump (ledger.Bulk) a space is held: until the dump ends,
// or its process has been dead for a while, every batch keeps what stood under the
// keys it changes, and the dump puts together from both what stood there at its
// beginning. Memory grows by what is changed meanwhile.
//
// A disk that is full ends a Redis with "appendfsync always" (that is Redis' own
// decision): ErrUnavailable until it is started again. Full memory is ErrNoSpace;
// batches that only delete go through then and make room.
//
// The user in the URL needs every command that the scripts use, on keys and
// channels that begin with "headgate:": a script that is refused a command half way
// leaves half a batch. Evicting keys is as bad; Open warns of a policy that does.
package redisdb
