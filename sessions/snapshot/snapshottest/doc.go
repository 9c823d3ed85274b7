// Package snapshottest makes what snapshots are tested and measured with: images that
// look like memory, and streams that look like archives. All of it follows from a seed
// and is the same on every machine. Nothing is held: bytes are made when they are read,
// at more than 1 GB/s, so that images of many GiB cost nothing.
package snapshottest
