package sessions

import (
	"encoding/json"
	"fmt"
	"time"
)

// The types of our log entries.
const (
	eventCreated = "session.created"
	eventChanged = "session.changed"
	eventEnded   = "session.ended"
	eventLease   = "lease.changed"
)

// logEntry is the form of a log entry that comes without a change of refs; it is
// the one that the store's door writes.
type logEntry struct {
	Type    string          `json:"type"`
	Actor   Actor           `json:"actor"`
	Changes []struct{}      `json:"changes"`
	Session string          `json:"session,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e logEntry) encode() []byte {
	e.Changes = []struct{}{}
	return mustJSON(e)
}

// sessionData is what an event tells of a session.
type sessionData struct {
	State     State             `json:"state,omitempty"`
	Epoch     uint64            `json:"epoch,omitempty"`
	Lease     *leaseData        `json:"lease,omitempty"`
	Action    LeaseAction       `json:"action,omitempty"` // of lease.changed
	Labels    map[string]string `json:"labels,omitempty"`
	Branch    string            `json:"branch,omitempty"`
	ParentID  string            `json:"parent_id,omitempty"`
	From      string            `json:"from_snapshot,omitempty"`
	GroupID   string            `json:"group_id,omitempty"`
	ExpiresAt time.Time         `json:"expires_at,omitzero"`
	IdleS     float64           `json:"idle_timeout_s,omitempty"`
	UnusedS   float64           `json:"ttl_unused_s,omitempty"`
	Reason    string            `json:"reason,omitempty"` // why it is view-only, or is not any more
}

type leaseData struct {
	Holder    string    `json:"holder"`
	ExpiresAt time.Time `json:"expires_at"`
}

// endedData is what session.ended tells.
type endedData struct {
	Cause Cause    `json:"cause,omitempty"`
	Ended []string `json:"ended,omitempty"` // when several ended at once
}

// data is what an event tells of the record as it is then.
func (r *record) data(base epochBase, now time.Time) sessionData {
	d := sessionData{
		State: r.State, Epoch: base.told(r.Epoch), Labels: r.Labels, Branch: r.Branch, ParentID: r.Parent, From: r.From, GroupID: r.Group,
		ExpiresAt: r.ExpiresAt, IdleS: r.Idle.Seconds(), UnusedS: r.Unused.Seconds(),
	}
	if l := r.leaseAt(now, base); l != nil {
		d.Lease = &leaseData{l.Holder, l.ExpiresAt}
	}
	return d
}

// mustJSON encodes a form of ours, which cannot fail.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return b
}
