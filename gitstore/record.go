package gitstore

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// refRecord is what stands under a ref's key:
//
//	record  = version oid peeled created updated writer
//	version = %x01                ; one byte
//	oid, peeled                   ; 20 bytes each, peeled zero unless an annotated tag
//	created, updated              ; microseconds since 1970, 8 bytes big-endian
//	writer                        ; subject of the token, the rest
type refRecord struct {
	oid, peeled      refpolicy.OID
	created, updated time.Time
	writer           string
}

const (
	refRecordVersion = 1
	refRecordFixed   = 1 + 20 + 20 + 8 + 8
)

func (r refRecord) encode() []byte {
	b := make([]byte, 0, refRecordFixed+len(r.writer))
	b = append(b, refRecordVersion)
	b = append(b, r.oid[:]...)
	b = append(b, r.peeled[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(r.created.UnixMicro()))
	b = binary.BigEndian.AppendUint64(b, uint64(r.updated.UnixMicro()))
	return append(b, r.writer...)
}

func decodeRefRecord(b []byte) (refRecord, error) {
	if len(b) < refRecordFixed || b[0] != refRecordVersion {
		return refRecord{}, fmt.Errorf("decode ref record of %d bytes: unknown form", len(b))
	}
	var r refRecord
	copy(r.oid[:], b[1:])
	copy(r.peeled[:], b[21:])
	r.created = time.UnixMicro(int64(binary.BigEndian.Uint64(b[41:]))).UTC()
	r.updated = time.UnixMicro(int64(binary.BigEndian.Uint64(b[49:]))).UTC()
	r.writer = string(b[refRecordFixed:])
	return r, nil
}

func (r refRecord) ref(name refpolicy.RefName) Ref {
	return Ref{Name: name, OID: r.oid, Peeled: r.peeled, CreatedAt: r.created, UpdatedAt: r.updated, Writer: r.writer}
}

// repoRecord is what stands under a repo's meta key and in its org's lists.
type repoRecord struct {
	ID            string    `json:"id"`
	Org           string    `json:"org"`
	Name          string    `json:"name"`
	DefaultBranch string    `json:"default_branch"`
	CreatedAt     time.Time `json:"created_at"`
}

func (r repoRecord) info() RepoInfo {
	return RepoInfo(r)
}

func (r repoRecord) encode() []byte { return mustJSON(r) }

func decodeRepoRecord(b []byte) (repoRecord, error) {
	var r repoRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("decode repo record: %w", err)
	}
	return r, nil
}

// packRecord is what stands under a pack's key.
type packRecord struct {
	Size    int64  `json:"size"`
	Objects int    `json:"objects"`
	Kind    string `json:"kind"` // settled, pushed, merged, blobs
	State   string `json:"state"`
	// At is when it was condemned or found dead; the clock is the ledger's.
	At time.Time `json:"at,omitzero"`
}

// The states of a pack record.
const (
	packLive = "live"
	// packCondemned: other packs have taken its place. Who still reads in it may go on
	// until its files are removed; nothing new looks for anything there.
	packCondemned = "condemned"
	packDead      = "dead" // its file is being or has been removed; it may not be registered any more
)

// LogEntry is the form of a log entry; seq and time are the ledger's.
type LogEntry struct {
	Type    string          `json:"type"` // entryRefs, entryRepo, or what a guard calls it
	Actor   Actor           `json:"actor"`
	Changes []LogChange     `json:"changes"`           // of refs; none in an entry about the repo
	Session string          `json:"session,omitempty"` // whose entry it is, if of one session alone
	Data    json.RawMessage `json:"data,omitempty"`    // a RepoChange in an entry about the repo, else the guard's
}

// The types of log entries.
const (
	entryRefs = "ref.updated"  // refs moved; the door writes it
	entryRepo = "repo.updated" // the repo's record changed
)

// RepoChange is what changed in a repo's record.
type RepoChange struct {
	OldDefaultBranch string `json:"old_default_branch"`
	DefaultBranch    string `json:"default_branch"`
}

// LogChange is one ref's movement in a LogEntry.
type LogChange struct {
	Ref     refpolicy.RefName `json:"ref"`
	Old     refpolicy.OID     `json:"old_sha"`
	New     refpolicy.OID     `json:"new_sha"`
	Kind    string            `json:"kind"`
	Session string            `json:"session,omitempty"` // whose the ref is
}

// mustJSON encodes a record of ours, which cannot fail.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return b
}

func decodePackRecord(b []byte) (packRecord, error) {
	var r packRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("decode pack record: %w", err)
	}
	return r, nil
}
