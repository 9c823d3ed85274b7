package sessions

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ephemeralPrefix is what stored names of ephemeral branches begin with.
const ephemeralPrefix = "refs/namespaces/ephemeral/refs/heads/"

const recordVersion = 1

// A record is what stands under a session's key. Its epochs lack the epoch base.
type record struct {
	V      int    `json:"v"`
	ID     string `json:"id"`
	Branch string `json:"branch"`
	Base   string `json:"base"`
	Last   string `json:"last,omitempty"` // head when it ended

	Epoch uint64       `json:"epoch"`
	State State        `json:"state"`
	Lease *leaseRecord `json:"lease,omitempty"` // live or expired; gone once it is released
	// Leased: somebody holds or has held a lease.
	Leased bool `json:"leased,omitempty"`

	Labels map[string]string `json:"labels,omitempty"`
	Parent string            `json:"parent,omitempty"`
	// From is the snapshot it was made from.
	From  string `json:"from_snapshot,omitempty"`
	Group string `json:"group,omitempty"`
	// Lost: another child of its group was picked.
	Lost bool `json:"lost,omitempty"`
	// Bore: it has or had children, so that it is worth looking for live ones.
	Bore bool `json:"bore,omitempty"`

	CreatedAt time.Time `json:"created_at"`
	CreatedBy Actor     `json:"created_by"`
	// UsedAt leaves out writes, which the ref itself remembers.
	UsedAt time.Time `json:"used_at"`

	ExpiresAt time.Time     `json:"expires_at,omitzero"`
	Idle      time.Duration `json:"idle,omitempty"`
	Unused    time.Duration `json:"unused,omitempty"`
	// Due is where it stands among those that the reaper looks at; zero: nowhere.
	Due time.Time `json:"due,omitzero"`

	EndedAt    time.Time `json:"ended_at,omitzero"`
	Cause      Cause     `json:"cause,omitempty"`
	CaptureKey string    `json:"capture_key,omitempty"`
	// Was is the state before its last snapshot turned out to be of no use; empty when
	// it is not view-only for that.
	Was State `json:"was,omitempty"`
}

// A leaseRecord is a lease as a record has it. One that was given under another
// epoch base is void.
type leaseRecord struct {
	Holder string    `json:"holder"`
	Until  time.Time `json:"until"`
	Base   uint64    `json:"base,omitempty"`
}

// stored is a record with the bytes it was read from, which batches check; the zero
// value stands for none.
type stored struct {
	record
	raw []byte
}

func (s stored) exists() bool { return s.raw != nil }

func (r *record) ref() string { return ephemeralPrefix + r.Branch }

func (r *record) live() bool { return r.State != Ended }

func (r *record) encode() []byte {
	r.V = recordVersion
	b, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("encode session %s: %v", r.ID, err)) // it is made of strings and times
	}
	return b
}

// decodeRecord reads a record; nil is none.
func decodeRecord(raw []byte) (stored, error) {
	if raw == nil {
		return stored{}, nil
	}
	s := stored{raw: raw}
	if err := json.Unmarshal(raw, &s.record); err != nil {
		return stored{}, fmt.Errorf("decode session: %w", err)
	}
	if s.V != recordVersion {
		return stored{}, fmt.Errorf("decode session %s: form %d is unknown", s.ID, s.V)
	}
	return s, nil
}

// clone gives a copy whose labels and lease can be changed.
func (r *record) clone() record {
	c := *r
	if r.Lease != nil {
		lease := *r.Lease
		c.Lease = &lease
	}
	if r.Labels != nil {
		c.Labels = make(map[string]string, len(r.Labels))
		for k, v := range r.Labels {
			c.Labels[k] = v
		}
	}
	return c
}

// A fence is what every change of a session's ref is held against.
//
//	fence = "1 " epoch SP state SP id
type fence struct {
	epoch uint64 // without the epoch base
	state State
	id    string
}

func (r *record) fence() fence { return fence{r.Epoch, r.State, r.ID} }

func (f fence) encode() []byte {
	b := append(make([]byte, 0, 64), "1 "...)
	b = strconv.AppendUint(b, f.epoch, 10)
	b = append(append(b, ' '), f.state...)
	return append(append(b, ' '), f.id...)
}

func decodeFence(raw []byte) (f fence, err error) {
	parts := strings.SplitN(string(raw), " ", 4)
	if len(parts) != 4 || parts[0] != "1" {
		return f, fmt.Errorf("decode fence %q: unknown form", raw)
	}
	if f.epoch, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return f, fmt.Errorf("decode fence: %w", err)
	}
	f.state, f.id = State(parts[2]), parts[3]
	return f, nil
}
