package snapshot

import (
	"context"
	"time"
)

// A planned save is one that nothing stands in the way of, as far as can be told before
// its data is read.
type planned struct {
	spec   SaveSpec // with the defaults filled in, its parts complete
	id     string   // of the save: of its record while it is captured, of its stage, Snapshot.Upload
	upload bool     // it is a resumable one
	owner  Owner
	ref    string // the session's snapshot ref
	head   OID    // where it is; zero: absent
	parent OID    // for Manifest.Parent: head, or what the session was made from; zero: neither
	at     time.Time

	workspace OID       // what the snapshot belongs to, never zero
	base      *Snapshot // whose chunks are re-used; nil: none
	manifest  Manifest  // of base
}

// A made snapshot is one whose objects are all there, in a pack that is finished and
// that nobody knows of yet.
type made struct {
	Commit   OID
	Manifest Manifest
	Pack     Pack
	New      int64 // bytes that this save adds to what is stored
}

// plan checks all of a save that can be checked before its data is read, and fills in
// what was left out. Nothing is written. A call that was made before is a
// *ledger.RepeatedError.
func (k *Keeper) plan(ctx context.Context, repo Repo, s *SaveSpec) (*planned, error) {
	return nil, errPending
}

// capture writes the record of a save that begins: it is capturing until publish, skip,
// refuse or drop. For an upload it is what planAgain reads.
func (k *Keeper) capture(ctx context.Context, repo Repo, p *planned) error { return errPending }

// planAgain gives the plan of an upload that is under way, as it stands now: head, base
// and owner are read anew. Its spec's Once is the caller's to set. ErrUploadNotFound.
func (k *Keeper) planAgain(ctx context.Context, repo Repo, session, id string) (*planned, Upload, error) {
	return nil, Upload{}, errPending
}

// extend keeps an upload for UploadTTL from now: to be called by whatever sends to it.
func (k *Keeper) extend(ctx context.Context, repo Repo, p *planned) error { return errPending }

// drop takes the record of a save away of which nothing is to be told; the stage is the
// caller's.
func (k *Keeper) drop(ctx context.Context, repo Repo, p *planned) error { return errPending }

// overCap is the *OverCapError of a snapshot of so many stored bytes, or nil. To be asked
// while the bytes come in.
func (k *Keeper) overCap(stored int64) error { return nil }

// same reports whether all but the image is as in the base, which is the session's last
// snapshot: if the image is, too, there is nothing to save.
func (p *planned) same(excluded []Excluded) bool { return false }

// quiet is ErrNotQuiet if q says that the sandbox was not.
func quiet(q *Quiet) error { return nil }

// publish makes a snapshot ready: refs, pin, record, counters, event and stored answer in
// one batch. The pack is the Move's from then on, also if that is refused. Errors:
// *MovedError, *OverCapError, *FullError, ErrUploadNotFound, *ledger.RepeatedError, those
// of sessions' guard and of the Move.
func (k *Keeper) publish(ctx context.Context, repo Repo, p *planned, m made) (Snapshot, error) {
	return Snapshot{}, errPending
}

// skip ends a save that has nothing to save: the answer is the base.
func (k *Keeper) skip(ctx context.Context, repo Repo, p *planned) (Snapshot, error) {
	return Snapshot{}, errPending
}

// refuse ends a captured save that came to nothing, and gives why: its record is failed,
// or gone if the sandbox was not quiet; one that is over the cap is told to the session.
// Nothing is charged. The stage, and a pack, are the caller's.
func (k *Keeper) refuse(ctx context.Context, repo Repo, p *planned, why error) error { return why }

// broken writes down that a snapshot cannot be restored any more, and tells its session
// if it is the last. It gives d.
func (k *Keeper) broken(ctx context.Context, repo Repo, commit OID, d *DamagedError) error { return d }

// manifestOf reads the manifest of a snapshot's commit, with the commit's tree.
func manifestOf(ctx context.Context, repo Repo, commit OID) (m Manifest, tree OID, err error) {
	return m, tree, errPending
}

// hotOrder gives the chunks that a restore touched first, by number in the part; nil: not known.
func (k *Keeper) hotOrder(ctx context.Context, repo RepoID, commit OID, part string) ([]int, error) {
	return nil, errPending
}

// ready gives a snapshot that the caller may restore or start from: ErrNotFound,
// *StateError, *DamagedError for one that is known to be broken.
func (k *Keeper) ready(ctx context.Context, repo Repo, commit OID) (Snapshot, error) {
	return Snapshot{}, errPending
}
