// Package gitstore keeps repos: refs and recent small objects in a ledger, settled
// and large objects in packs. It knows no HTTP; a program without a network can use it.
//
// Words. A repo is reached by org and name and lives under an id. A Caller is who
// asks, with the rules of its token. An Update is a change of refs with the objects
// it brings. A hot object is in the ledger; settling moves hot objects into a pack.
// A pack is registered when the ledger lists it: before that it does not exist for
// anybody, and no folder is ever listed to find one.
//
// # The one door
//
// Repo.Update moves refs and nothing else does. The commit API (NewCommit), branches
// (CreateBranch, DeleteBranch) and pushes (ReceivePack) all end in it. It prepares a
// batch from what it reads (door.go, judge.go, prepare.go), proves that everything
// new objects refer to is new or readable by the caller (reach.go, needs.go), asks the
// Guard, whose records ride along, and applies the batch, which checks what was read.
// If that has changed, it starts again.
//
// # Reading
//
// An object is looked for in the cache, in the registered packs, in the ledger, and
// once more in both, since it may be settling. Objects never change, so what is
// cached never grows stale. Refs are read from views, which show durable state only.
//
// # Upkeep
//
// Settling moves hot objects into packs (settle.go). Pruning takes away what no ref
// and no pin leads to (prune.go, marks.go), merging unites small packs of a kind
// (merge.go), with deltas. Both write new packs with git (repack.go) and put them in
// the place of old ones in one batch. An index over the packs lets git answer without
// walking (midx.go says why it may be old). An old pack is then condemned: who reads in it goes on, and
// its files are removed after a grace (condemned.go). upkeep.go says when all this
// comes about. Several nodes may do it at once; the batches make it right, a lease
// only saves work.
//
// # Snapshots
//
// A memory image is stored in packs of a kind of its own, as it is: SnapshotPack writes
// one, SnapshotStage collects what it is made of over many requests, SnapshotChunk reads
// in it past the caches. They are merged and pruned with their own kind, and are in no
// index. What may be in a snapshot's tree is for whoever makes the pack to know
// (Update.Vouched); what it leans on must be held (snapshotheld.go). Refs below
// refs/namespaces/state/ are in no remote, and no other write may lean on what is in
// their trees.
//
// # What a repo consists of
//
// In the ledger, in the space repo/<id>:
//
//	meta                      name, org, default branch
//	gc/gen                    prune generation; every write checks it, so none survives the repo
//	ref/<name>                where the ref is, since when, by whom
//	created/<h|e>/<at>/<name> branches in order of creation
//	tip/<oid>/<name>          which refs are at an oid
//	born/<oid>                by which ref a commit came in
//	join/<ref>%00<...>        which refs and pins built on what came in by a ref, and where
//	cut/<ref>                 the ref was rewound or deleted
//	lines                     both have been kept since the repo was made
//	o/<oid>                   a hot object, deflated as in a pack
//	gc/pruned                 when it was pruned last, as of which log entry, with how many refs
//	gc/index                  which index is in use
//	index/<name>              an index: live, condemned or dead
//	gc/lease                  who looks after its packs, and until when
//	pack/<name>               a pack: live, condemned or dead
//	pin/<id>                  a pin
//	pinned/<oid>/<id>         which pins hold a commit
//	segment/<last>            a part of the log that is in a file
//	log/archived              up to which number it is
//	once/<key>                what a call was answered, for its repetition
//	once-due/<at><key>        when that may be forgotten
//	(log)                     one entry for each change of refs or of the default branch
//
// in the space org/<org>: repo/<name> (the id), recent/<newest first>/<id>, once/ and
// once-due/ of calls that make and remove repos; in the
// space server: repo-intent/<id> while a repo is being made or removed.
//
// On disk, below the data folder:
//
//	repos/<2 hex>/<id>/
//	    packs/<name>.pack|.idx    registered packs, and incoming ones being written
//	    objects/pack/             hard links to them: all that git sees
//	    indexes/<name>/           what git keeps over many packs, with links to them
//	    uploads/<id>/             chunks and notes of snapshots that are being uploaded, a
//	                              set of files for each process; in no backup
//	    log/<part>.ndjson.gz      old entries of the log, and incoming ones being written
//	    HEAD config refs/         what git needs to take the folder for a repository
//	scratch/run-*/                files that need not survive the process: spooled
//	                              contents, hot packs for git, inflated large blobs,
//	                              answers to fetches (files without a name)
//
// # The log
//
// Every batch that changes something a reader may want to know of has an entry in the
// repo's log. Events (events.go) gives them to a caller, without what it may not read.
// Old ones move from the ledger into files (logkeep.go says in which steps), where
// readers go on; who asks for what is older still is told how things stand.
//
// # Elsewhere
//
// Export and ExportBundle write one repo in git's own forms. A backup (backup.go) takes
// every space of the ledger as of one moment of its own, repos before the org that
// names them, and the packs registered in it; backupmanifest.go draws its folder.
// Restore (restore.go) puts one into a new data folder and an empty ledger.
//
// # After a crash
//
// A batch is whole or absent. A pack without a record is removed when its repo is
// opened (janitor.go)
// or, on a shared folder, when it is older than any write. A registered pack without
// its link is linked by whoever loads the list. A repo half made or
// half removed has an intent, and the next Open finishes it.
package gitstore
