package snapshot

import "encoding/json"

// The types of our log entries.
const (
	eventReady   = "snapshot.ready"
	eventFailed  = "snapshot.failed"
	eventDeleted = "snapshot.deleted"
)

// logEntry is the form of a log entry that comes without a change of refs; it is the
// one that the store's door writes.
type logEntry struct {
	Type    string          `json:"type"`
	Actor   Actor           `json:"actor"`
	Changes []struct{}      `json:"changes"`
	Session string          `json:"session,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e logEntry) encode() []byte {
	if e.Type == "" {
		return nil
	}
	e.Changes = []struct{}{}
	return mustJSON(e)
}

// eventData is what an event tells of a snapshot.
type eventData struct {
	SHA       OID    `json:"sha,omitzero"`
	Save      string `json:"save,omitempty"`
	Name      string `json:"name,omitempty"`
	Kind      string `json:"kind,omitempty"`
	Workspace OID    `json:"workspace_sha,omitzero"`
	Parent    OID    `json:"parent_sha,omitzero"`
	Boundary  string `json:"boundary,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Size      int64  `json:"size_bytes,omitempty"`
	Stored    int64  `json:"stored_bytes,omitempty"`
	New       int64  `json:"new_bytes,omitempty"`
	Freed     int64  `json:"bytes_freed,omitempty"`
	Cap       int64  `json:"cap_bytes,omitempty"`
	Bytes     int64  `json:"bytes,omitempty"` // of a save over the cap
}

func (r *record) data() eventData {
	return eventData{
		SHA: r.Commit, Save: r.Save, Name: r.Name, Kind: r.Kind, Workspace: r.Workspace, Parent: r.Parent,
		Boundary: r.Boundary, Reason: r.Reason, Size: r.Size, Stored: r.Stored, New: r.New,
	}
}
