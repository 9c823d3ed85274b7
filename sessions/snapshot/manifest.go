package snapshot

import (
	"encoding/json"
	"time"
)

// FormatVersion is the version of the format that this package writes.
const FormatVersion = 1

// A Manifest is manifest.json. Fields that this version does not know are kept in
// Extra, unless Requires names one: then the manifest is refused with the field's name.
type Manifest struct {
	Format    int               `json:"format"`
	Requires  []string          `json:"requires,omitempty"` // features a reader must know
	Session   string            `json:"session_id"`
	Name      string            `json:"name,omitempty"`
	Parent    string            `json:"parent_sha,omitempty"` // the snapshot it was saved after
	Workspace string            `json:"workspace_sha"`
	CreatedAt time.Time         `json:"created_at"`
	Machine   map[string]string `json:"machine,omitempty"`  // arch, cpu, kernel, ... in the runner's words
	Boundary  string            `json:"boundary,omitempty"` // why it was saved: manual, leave, transfer, ...
	Excluded  []Excluded        `json:"excluded,omitempty"`
	Quiet     *Quiet            `json:"quiescence,omitempty"`
	Envelope  json.RawMessage   `json:"envelope,omitempty"` // of a sealed save
	Parts     []Part            `json:"parts"`
	Root      string            `json:"image_sha256"` // hash of the snapshot
	Size      int64             `json:"size_bytes"`
	Zero      int64             `json:"zero_bytes"`
	Stored    int64             `json:"stored_bytes"` // of all its chunks' blobs, each once

	Extra map[string]json.RawMessage `json:"-"`
}

// A Part is one image of a snapshot.
type Part struct {
	Name       string   `json:"name"`
	Kind       string   `json:"kind"`
	Layout     Layout   `json:"layout"`
	ChunkBytes int      `json:"chunk_bytes"` // of a streamed image: the average aimed at
	Size       int64    `json:"size_bytes"`
	FirstLeaf  int      `json:"first_leaf"` // its number in the snapshot's tree
	Leaves     int      `json:"leaves"`
	Regions    []Region `json:"regions,omitempty"` // guest addresses; none: an address is an offset
	Root       string   `json:"image_sha256"`
}

// A Region says at which guest address a run of an image lies.
type Region struct {
	Address uint64 `json:"address"`
	Offset  int64  `json:"offset"`
	Size    int64  `json:"size_bytes"`
}

// Excluded is something that was left out of a save.
type Excluded struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

// Quiet is the proof that nothing started or ended in the sandbox while it was
// captured: hashes over the tree of processes and threads.
type Quiet struct {
	Before string `json:"before"`
	After  string `json:"after"`
}
