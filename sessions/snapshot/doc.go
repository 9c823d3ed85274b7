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
// The commit's parents are the snapshot before, if the session's history is kept as a
// chain, and the workspace commit the state belongs to. Its tree:
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
// each leaf of the snapshot: bytes of its content).
//
// The hash of a leaf is the SHA-256 of its list, 32 zero bytes for one without a tree. The hash of an image is
//
//	SHA-256("headgate image 1" LF size(8, big endian) chunk_bytes(4) layout(1: 0 pages, 1 stream) *leaf-hash)
//
// and that of a snapshot its image's, or for several parts
//
//	SHA-256("headgate parts 1" LF *( name NUL image-hash ))
//
// So equal leaves are the same git trees, a save costs what has changed, and no
// chain is followed: every restore reads one tree.
package snapshot
