// Package snapshot keeps images of a sandbox's memory, and of whatever else a runner
// saves with it, as ordinary git objects of the session's repo.
//
// # Words
//
// A snapshot is a commit on the session's snapshot ref. An image is one run of bytes
// in it: a memory image, a disk, a tar, a pickled namespace; a snapshot holds one or
// several, its parts. A chunk is a piece of an image that is stored as one blob. A leaf
// is up to 256 chunks that follow each other. A save makes a snapshot of one stream, or
// of an upload, which tells hashes first and then sends only what is missing. Sealing
// makes an upload a snapshot, all of it or nothing. (What package seal does with the
// customer's keys is called a sealed save; to this package its chunks are bytes.)
//
// # The format, version 1
//
// The commit's last parent is the workspace commit the state belongs to. One before it,
// the snapshot before, is read and not written: history is kept by a pin on each snapshot,
// so that each can be let go of by itself; the manifest names what it came after. Its tree:
//
//	manifest.json      what there is (see Manifest), a few KB
//	m/<hi>/<lo>        chunk <lo> (2 hex) of leaf <hi> (6 hex), a blob
//	m/<hi>/h           the leaf's list: 36 bytes for each chunk in order
//
//	list  = *( length hash )
//	length = 4 bytes, big endian: bytes of the chunk's content
//	hash   = 32 bytes: SHA-256 of the content; 32 zero bytes: the content is zeros alone
//
// A chunk of zeros has no blob, a leaf of nothing else in a paged image no tree. A chunk's blob is its
// content as it is, if it is exactly length bytes long, else one zstd frame of it, which
// is always shorter. Leaves of all parts are counted through; the manifest says where
// each part's begin.
//
// A paged image is cut every chunk_bytes; its chunk at address a is number
// a/chunk_bytes, its leaves have 256 chunks, the last one fewer. A streamed image is cut
// by content, so that inserting moves what follows without changing it; its leaves are
// cut by content too, and part sizes tell where each leaf begins (m/s: 8 bytes, big endian, for
// each leaf of the snapshot: bytes of its content). Chunks of a stream are cut by a Rabin
// fingerprint over 64 bytes with the polynomial 0x27767f26531bdd, where its lower
// log2(chunk_bytes) bits are zero, but not before chunk_bytes/4 bytes and at
// chunk_bytes*4 at the latest. A leaf of a stream ends with its 256th chunk, or with one
// from its 64th on whose hash ends in six set bits.
//
// manifest.json is JSON without white space and a line feed: fields in the order of
// Manifest, then unknown ones by name, times in UTC. Equal manifests are equal bytes. It
// has at most 1 MiB.
//
// The hash of a leaf is the SHA-256 of its list, 32 zero bytes for one without a tree; in
// a streamed image leaves of zeros have a tree too: only the list tells how many there are. An image of
// 0 bytes has no chunks and no leaves. The hash of an image is
//
//	SHA-256("headgate image 1" LF size(8, big endian) chunk_bytes(4) layout(1: 0 pages, 1 stream) *leaf-hash)
//
// and that of a snapshot its image's, or for several parts
//
//	SHA-256("headgate parts 1" LF *( name NUL image-hash ))
//
// So equal leaves are the same git trees, a save costs what has changed, and no
// chain is followed: every restore reads one tree.
//
// # The sparse stream, version 1
//
// What a restore answers as application/x-headgate-sparse, and what an upload sends
// (without a header). Numbers are big endian.
//
//	stream = [ header ] *record end
//	header = "HGSPARSE" %x01 length(4) JSON      ; see SparseHeader; at most 1 MiB
//	record = kind(1) offset(8) length(8) stored(4) hash(32) blob
//	zeros  = %x01: length zeros at offset; stored is 0, hash is zero
//	stored = %x02: blob is the content; stored equals length
//	zstd   = %x03: blob is one zstd frame of the content; stored is less than length
//	end    = %x00 records(8) content(8) %x00000000 root(32)
//
// length is of the content and stored of the blob, in bytes; hash is the SHA-256 of the
// content. Chunks have at most 4 MiB + 64 of content, runs of zeros 1 TiB, and several runs may follow
// each other. Records come in any order and may stick out of the range that the header
// tells, not out of the image. Chunks that are sent have no place: their offset means
// nothing. The end tells how many records there were, the sum of their lengths, and the
// hash of the image (zero for chunks that are sent). A stream without an end has been cut.
package snapshot
