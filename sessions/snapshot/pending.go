package snapshot

import (
	"context"
	"errors"
	"io"

	"github.com/headgate/headgate/gitstore/ledger"
)

// What is in this file is still to be built: each leaves it when it is.

var errPending = errors.New("not built yet")

// ---- save and restore ----

// Save makes a snapshot of one stream of one part. Size -1: to the end of body.
func (k *Keeper) Save(ctx context.Context, repo Repo, s SaveSpec, body io.Reader) (Snapshot, error) {
	return Snapshot{}, errPending
}

// Begin begins an upload.
func (k *Keeper) Begin(ctx context.Context, repo Repo, s SaveSpec) (Upload, error) {
	return Upload{}, errPending
}

// Upload tells of one that is under way.
func (k *Keeper) Upload(ctx context.Context, repo Repo, session, id string) (Upload, error) {
	return Upload{}, errPending
}

// Missing takes the lists of whole leaves of a part and tells which chunks are to be sent.
func (k *Keeper) Missing(ctx context.Context, repo Repo, session, upload, part string, leaves []Leaf) ([]Hash, error) {
	return nil, errPending
}

// Put takes the blobs of chunks until r ends, and tells how many were new.
func (k *Keeper) Put(ctx context.Context, repo Repo, session, upload string, r *SparseReader) (int, error) {
	return 0, errPending
}

// Seal makes the upload a snapshot, or of a dry run tells what it would be.
func (k *Keeper) Seal(ctx context.Context, repo Repo, session, upload string, s SealSpec) (Snapshot, error) {
	return Snapshot{}, errPending
}

// Drop lets go of an upload and all that was staged for it.
func (k *Keeper) Drop(ctx context.Context, repo Repo, session, upload string) error {
	return errPending
}

// Import makes a ready snapshot of a bundle, with the same id: the session's new one.
func (k *Keeper) Import(ctx context.Context, repo Repo, session string, bundle io.Reader, once *ledger.Once[Snapshot]) (Snapshot, error) {
	return Snapshot{}, errPending
}

// Export writes the bundle of a snapshot.
func (k *Keeper) Export(ctx context.Context, repo Repo, commit OID, w io.Writer) error {
	return errPending
}

// Open opens a snapshot's part for restoring; an empty name is its first. Its lists have
// been hashed up to the root when it returns.
func (k *Keeper) Open(ctx context.Context, repo Repo, commit OID, part string) (*Image, error) {
	return nil, errPending
}

// An Image is one part of a snapshot, open for reading.
type Image struct {
	Snapshot Snapshot
	Manifest Manifest
	Part     Part
}

// Offset turns a guest address into an offset: ErrRange.
func (im *Image) Offset(address uint64, length int64) (int64, error) { return 0, errPending }

// WriteTo writes content from off to off+n, every chunk checked before a byte of it is
// written. A damaged chunk is a *DamagedError, and the session is told.
func (im *Image) WriteRange(ctx context.Context, w io.Writer, off, n int64) error { return errPending }

// WriteSparse writes a sparse stream of the chunks that meet the range, those of the hot
// order first if hot is set. Blobs go out as they are stored, checked against their ids.
func (im *Image) WriteSparse(ctx context.Context, w io.Writer, off, n int64, hot bool) error {
	return errPending
}
