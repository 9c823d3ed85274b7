package snapshot

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

const recordVersion = 1

// A record is what stands under a snapshot's key.
type record struct {
	V         int    `json:"v"`
	ID        string `json:"id"` // of its key
	Commit    OID    `json:"commit,omitzero"`
	Save      string `json:"save,omitempty"` // id of the save that made it
	Session   string `json:"session"`
	Workspace OID    `json:"workspace,omitzero"`
	Parent    OID    `json:"parent,omitzero"`
	Name      string `json:"name,omitempty"`
	Kind      string `json:"kind,omitempty"`
	State     State  `json:"state"`
	Reason    string `json:"reason,omitempty"`
	Broken    bool   `json:"broken,omitempty"` // it was ready once, and cannot be restored any more

	Size       int64             `json:"size,omitempty"`
	Stored     int64             `json:"stored,omitempty"`
	New        int64             `json:"new,omitempty"`
	Zero       int64             `json:"zero,omitempty"`
	ChunkBytes int               `json:"chunk,omitempty"`
	Root       Hash              `json:"root,omitzero"`
	Sealed     bool              `json:"sealed,omitempty"`
	Excluded   []Excluded        `json:"excluded,omitempty"`
	Boundary   string            `json:"boundary,omitempty"`
	Machine    map[string]string `json:"machine,omitempty"`
	// Charged is its share of what the repo is charged with.
	Charged int64 `json:"charged,omitempty"`

	CreatedAt  time.Time `json:"created_at"`
	CreatedBy  Actor     `json:"created_by"`
	VerifiedAt time.Time `json:"verified_at,omitzero"` // when it became ready; no two of a session at once
	UsedAt     time.Time `json:"used_at,omitzero"`     // leaves out what Use tells
	EndedAt    time.Time `json:"ended_at,omitzero"`    // when it failed, or was deleted

	Idle   time.Duration `json:"idle,omitempty"`
	Unused time.Duration `json:"unused,omitempty"`
	Base   string        `json:"base,omitempty"`
	// Due is where it stands among those that the reaper looks at; zero: nowhere.
	Due time.Time `json:"due,omitzero"`

	Upload bool      `json:"upload,omitempty"` // while it is captured: resumable
	Until  time.Time `json:"until,omitzero"`   // while it is captured: when it is given up
	Spec   *SaveSpec `json:"spec,omitempty"`   // of an upload
	Stage  bool      `json:"stage,omitempty"`  // of a failed upload: its stage is still to be removed
}

// stored is a record with the bytes it was read from, which batches check; the zero
// value stands for none.
type stored struct {
	record
	raw []byte
}

func (s stored) exists() bool { return s.raw != nil }

// kept reports whether its commit is kept: it is ready, or cannot be restored any more.
func (r *record) kept() bool {
	return !r.Commit.IsZero() && (r.State == Ready || r.State == Failed)
}

func (r *record) ref() string { return RefPrefix + r.Session }

// at is its place in time among those of its session.
func (r *record) at() time.Time {
	if !r.VerifiedAt.IsZero() {
		return r.VerifiedAt
	}
	return r.CreatedAt
}

func (r *record) encode() []byte {
	r.V = recordVersion
	return mustJSON(r)
}

// decodeRecord reads a record; nil is none.
func decodeRecord(raw []byte) (stored, error) {
	if raw == nil {
		return stored{}, nil
	}
	s := stored{raw: raw}
	if err := json.Unmarshal(raw, &s.record); err != nil {
		return stored{}, fmt.Errorf("decode snapshot: %w", err)
	}
	if s.V != recordVersion {
		return stored{}, fmt.Errorf("decode snapshot %s: form %d is unknown", s.ID, s.V)
	}
	return s, nil
}

// places are the keys under which a snapshot is found besides its own.
func (r *record) places() []string {
	at := place(r.at(), r.ID)
	keys := append(make([]string, 0, 6), ofPrefix(r.Session)+at)
	if r.kept() {
		keys = append(keys, keptPrefix(r.Session)+at)
	}
	if r.State == Ready {
		keys = append(keys, launchKeys+at, readyKey(r.ID))
	}
	if !r.Commit.IsZero() && !r.Parent.IsZero() {
		keys = append(keys, childPrefix(r.Parent.String())+at)
	}
	if r.State == Capturing && r.Upload {
		keys = append(keys, uploadPrefix(r.Session)+r.ID)
	}
	if !r.Due.IsZero() {
		keys = append(keys, dueKey(r.Due, r.ID))
	}
	return keys
}

// readyValue is what stands under a readyKey.
var readyValue = []byte("ready")

// put writes a record over what was read (the zero value: it is new), with its places
// and its share of the counters.
func put(old stored, r record) (rider ledger.Rider) {
	key := recordKey(r.ID)
	if old.exists() {
		rider.Checks = append(rider.Checks, ledger.Equal(key, old.raw))
	} else {
		rider.Checks = append(rider.Checks, ledger.Absent(key))
	}
	rider.Sets = append(rider.Sets, ledger.Set{Key: key, Value: r.encode()})
	rider.Join(indexes(old, &r))
	return rider
}

// remove takes a record away with its places.
func remove(old stored) (rider ledger.Rider) {
	key := recordKey(old.ID)
	rider.Checks = append(rider.Checks, ledger.Equal(key, old.raw))
	rider.Deletes = append(rider.Deletes, key)
	rider.Join(indexes(old, nil))
	return rider
}

// indexes moves a snapshot from its old places to its new ones, and counts it. Nil is a
// record that is going.
func indexes(old stored, r *record) (rider ledger.Rider) {
	var before, after []string
	var bytes, count int64
	if old.exists() {
		before = old.places()
		if old.kept() {
			bytes, count = -old.Charged, -1
		}
	}
	if r != nil {
		after = r.places()
		if r.kept() {
			bytes, count = bytes+r.Charged, count+1
		}
	}
	for _, key := range before {
		if !slices.Contains(after, key) {
			rider.Deletes = append(rider.Deletes, key)
		}
	}
	for _, key := range after {
		if slices.Contains(before, key) {
			continue
		}
		set := ledger.Set{Key: key}
		if r != nil && key == readyKey(r.ID) {
			set.Value = readyValue
		}
		rider.Sets = append(rider.Sets, set)
	}
	if bytes != 0 {
		rider.Adds = append(rider.Adds, ledger.Add{Key: bytesKey, Delta: bytes})
	}
	if count != 0 {
		rider.Adds = append(rider.Adds, ledger.Add{Key: countKey, Delta: count})
	}
	return rider
}

// A standing is how a session stands with its saves, as stored.
type standing struct {
	Last   OID       `json:"last,omitzero"`    // where its snapshot ref is
	LastAt time.Time `json:"last_at"`          // when the newest there was became ready
	Broken bool      `json:"broken,omitempty"` // the last cannot be restored
	Stale  bool      `json:"stale,omitempty"`  // the last save was over the cap
	Cap    int64     `json:"cap,omitempty"`
	Bytes  int64     `json:"bytes,omitempty"`
	At     time.Time `json:"at,omitzero"`    // of that save
	Keep   *int      `json:"keep,omitempty"` // how many stay; nil: as the limits say
}

// storedStanding is a standing with the bytes it was read from.
type storedStanding struct {
	standing
	session string
	raw     []byte
}

func decodeStanding(session string, raw []byte) (storedStanding, error) {
	s := storedStanding{session: session, raw: raw}
	if raw == nil {
		return s, nil
	}
	if err := json.Unmarshal(raw, &s.standing); err != nil {
		return s, fmt.Errorf("decode standing of session %s: %w", session, err)
	}
	return s, nil
}

// check holds while it is as it was read.
func (s storedStanding) check() ledger.Check {
	if s.raw == nil {
		return ledger.Absent(standingKey(s.session))
	}
	return ledger.Equal(standingKey(s.session), s.raw)
}

// put writes it anew.
func (s storedStanding) put(to standing) ledger.Rider {
	return ledger.Rider{
		Checks: []ledger.Check{s.check()},
		Sets:   []ledger.Set{{Key: standingKey(s.session), Value: mustJSON(to)}},
	}
}

// MarshalText writes o as String does.
func (o OID) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (o *OID) UnmarshalText(text []byte) (err error) {
	if len(text) == 0 {
		*o = OID{}
		return nil
	}
	*o, err = ParseOID(string(text))
	return err
}

// MarshalText writes h as String does.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (h *Hash) UnmarshalText(text []byte) (err error) {
	*h, err = ParseHash(string(text))
	return err
}

// mustJSON encodes a form of ours, which cannot fail.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return b
}
