package snapshot

import (
	"context"
	"errors"
	"io"

	"github.com/headgate/headgate/gitstore/ledger"
)

// What is in this file is still to be built: each leaves it when it is.

var errPending = errors.New("not built yet")

// ---- the format ----

// Encode writes a manifest: fields in the order of the type, then those of Extra by name.
func (m Manifest) Encode() ([]byte, error) { return nil, errPending }

// DecodeManifest reads one: *FieldError for a version, a requirement or a value this
// package cannot take.
func DecodeManifest(data []byte) (m Manifest, err error) { return m, errPending }

// AppendList writes a leaf's list; DecodeList reads one, of at most LeafChunks.
func AppendList(b []byte, chunks []Chunk) []byte  { return b }
func DecodeList(data []byte) ([]Chunk, error)     { return nil, errPending }
func (l Leaf) Hash() Hash                         { return Hash{} } // zero for a leaf of zeros in a paged image
func ImageRoot(p Part, leaves []Hash) Hash        { return Hash{} }
func SnapshotRoot(parts []Part) Hash              { return Hash{} } // of one part: its root
func LeafEnds(layout Layout, chunks []Chunk) bool { return false }  // the leaf of these chunks is full, or cut here by content
func ChunkOf(content []byte) Chunk                { return Chunk{} }
func NewCutter(r io.Reader, p PartSpec) *Cutter   { return &Cutter{} }
func NewCoder() *Coder                            { return &Coder{} }
func (p PartSpec) Complete() (PartSpec, error)    { return p, errPending } // defaults filled in, *FieldError or ErrInvalid

// A Cutter cuts what a reader holds into chunks.
type Cutter struct{}

// Next gives the next chunk's content, in buf if it fits; io.EOF after the last.
func (c *Cutter) Next(buf []byte) ([]byte, error) { return nil, errPending }

// A Coder makes blobs of contents and back. It is safe for concurrent use, and the same
// content always gives the same blob.
type Coder struct{}

// Encode gives the blob of a content in buf, or the content itself if it does not shrink.
func (c *Coder) Encode(content, buf []byte) []byte { return nil }

// Decode gives the content of a blob in buf, hashed: ErrDamaged if it is not what c says.
func (c *Coder) Decode(chunk Chunk, blob, buf []byte) ([]byte, error) { return nil, errPending }

// A SparseHeader begins a sparse stream.
type SparseHeader struct {
	Part   Part   `json:"part"`
	Sealed bool   `json:"sealed,omitempty"`
	Offset int64  `json:"offset"` // of the range that is told
	Length int64  `json:"length"`
	Commit string `json:"sha"`
}

// A Record is one record of a sparse stream: zeros (Blob nil), or a chunk.
type Record struct {
	Offset int64
	Length int64 // bytes of content
	Hash   Hash
	Blob   []byte // valid until the next record is read
}

// A SparseWriter writes a sparse stream (application/x-headgate-sparse): with a header the
// answer to a restore, without one the body of chunks that are sent.
type SparseWriter struct{}

func NewSparseWriter(w io.Writer) *SparseWriter     { return &SparseWriter{} }
func (w *SparseWriter) Header(h SparseHeader) error { return errPending }
func (w *SparseWriter) Write(r Record) error        { return errPending }
func (w *SparseWriter) End() error                  { return errPending } // without it a stream has been cut

// A SparseReader reads one: io.EOF only after its end, io.ErrUnexpectedEOF if it was cut.
type SparseReader struct{}

func NewSparseReader(r io.Reader) *SparseReader             { return &SparseReader{} }
func (r *SparseReader) Header() (h SparseHeader, err error) { return h, errPending }
func (r *SparseReader) Next() (rec Record, err error)       { return rec, errPending }

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

// ---- records ----

// Get, List: as the caller may see them; List is newest first, with saves under way.
func (k *Keeper) Get(ctx context.Context, repo Repo, commit OID) (Snapshot, error) {
	return Snapshot{}, errPending
}
func (k *Keeper) List(ctx context.Context, repo Repo, session string, limit int, cursor string) ([]Snapshot, string, error) {
	return nil, "", errPending
}

// Launchable lists bases and ready states that the caller may make a session from, newest first.
func (k *Keeper) Launchable(ctx context.Context, repo Repo, arch string, limit int, cursor string) ([]Snapshot, string, error) {
	return nil, "", errPending
}

// Lineage gives the snapshots that one came from, nearest first, and those that came of it.
func (k *Keeper) Lineage(ctx context.Context, repo Repo, commit OID) (before, after []Snapshot, err error) {
	return nil, nil, errPending
}

// Delete deletes a snapshot that nobody uses, and tells what that frees.
func (k *Keeper) Delete(ctx context.Context, repo Repo, commit OID, dryRun, admin bool, once *ledger.Once[Deletion]) (Deletion, error) {
	return Deletion{}, errPending
}

// HotOrder keeps which chunks a restore touched first, by number in the part.
func (k *Keeper) HotOrder(ctx context.Context, repo Repo, commit OID, part string, chunks []int) error {
	return errPending
}

// Standing tells how sessions stand with their saves, in their order.
func (k *Keeper) Standing(ctx context.Context, repo RepoID, sessions ...string) ([]Standing, error) {
	return make([]Standing, len(sessions)), nil
}

// SetBase names a snapshot as a base, or takes the name away with the zero OID. It is
// the operator's alone: repo must be opened for everything.
func (k *Keeper) SetBase(ctx context.Context, repo Repo, name string, commit OID) error {
	return errPending
}

// Guard is asked about every change of refs, as sessions' is, and answers for the refs of
// snapshots and bases: only this Keeper's own calls move them.
func (k *Keeper) Guard(ctx context.Context, q GuardRequest) (GuardAnswer, error) {
	return GuardAnswer{}, nil
}

// Run lets go of what nothing keeps any more, until ctx ends, whose error it returns.
func (k *Keeper) Run(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
