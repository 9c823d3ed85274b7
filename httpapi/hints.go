package httpapi

import (
	"errors"
	"net/http"

	"github.com/headgate/headgate/sessions"
	"github.com/headgate/headgate/sessions/snapshot"
	"github.com/headgate/headgate/tokens"
)

// moreBody is what an error body tells besides the problem: what to do about it,
// and the facts that go with it.
type moreBody struct {
	Hint         string          `json:"hint,omitempty"`
	State        sessions.State  `json:"state,omitempty"`
	Epoch        *uint64         `json:"epoch,omitempty"`
	SessionEpoch *uint64         `json:"session_epoch,omitempty"`
	Lease        *leaseBody      `json:"lease,omitempty"`
	Holders      []useHolderBody `json:"holders,omitempty"`
	GroupID      string          `json:"group_id,omitempty"`
	StateSHA     string          `json:"state_sha,omitempty"`
	Children     []childBody     `json:"children,omitempty"`
	Failed       []failedBody    `json:"failed,omitempty"`
	Field        string          `json:"field,omitempty"`
	Missing      []string        `json:"missing,omitempty"`
	CapBytes     *int64          `json:"cap,omitempty"`
	SizeBytes    *int64          `json:"size,omitempty"`
	Chunk        string          `json:"chunk,omitempty"` // what of a snapshot is damaged
	SHA          string          `json:"sha,omitempty"`   // the snapshot that is meant
	SnapState    snapshot.State  `json:"snapshot_state,omitempty"`
	Ref          string          `json:"ref,omitempty"`
	HeadSHA      *string         `json:"head_sha,omitempty"` // where the ref is; empty: it is not there
}

// A useHolderBody is somebody for whom a session must stay.
type useHolderBody struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

// renewLine renews an issued token with nothing but the token.
func (s *Server) renewLine(r *http.Request) string {
	return `curl -sS -X POST -H "Authorization: Bearer $TOKEN" ` + s.baseURL(r) + "/api/tokens/renew"
}

// more is what is told of err besides the problem.
func (s *Server) more(x *exchange, r *http.Request, err error) moreBody {
	m := factsOf(err)
	if m.Hint = hintOf(err); m.Hint != "" && (x.who == nil || x.who.Issued) {
		m.Hint += "; a token of a session is renewed, before it expires, by: " + s.renewLine(r)
	}
	return m
}

// hintOf says what whoever got err can do; empty where the error says it all.
func hintOf(err error) string {
	var (
		stale *sessions.StaleEpochError
		held  *sessions.LeaseHeldError
		state *sessions.StateError
		used  *sessions.InUseError
	)
	switch {
	case errors.As(err, &stale):
		return staleHint
	case errors.As(err, &held):
		return "wait for the lease with wait_s, or take it from its holder with the action takeover, which fences that holder off"
	case errors.As(err, &used):
		return "let its holders finish first: leases end by release or in time, children when they are deleted"
	case errors.As(err, &state) && state.State == sessions.ViewOnly:
		return "it can be read and exported, and its branch deleted; go on in a new session made from its state"
	case errors.As(err, &state) && state.State == sessions.Ended:
		return "its commits stay readable while something keeps them; go on in a new session made from the last one"
	case errors.Is(err, sessions.ErrLeaseLost):
		return "somebody else may be writing now: stop; whoever started you can acquire the lease anew, which raises the epoch, and make a new token"
	case errors.Is(err, sessions.ErrTokenDead):
		return "stop writing: this token cannot be renewed any more; ask whoever gave it to you for a new one"
	case errors.As(err, new(*snapshot.OverCapError)):
		return "the last state that was saved stays, and is what would be restored; leave out what need not be saved"
	case errors.As(err, new(*snapshot.MovedError)):
		return "somebody else has saved meanwhile: look at head_sha, then save on it or without expected_head_sha"
	case errors.Is(err, snapshot.ErrMissing):
		return "tell the leaves' lists once more to learn what is missing, send that and seal again"
	case errors.Is(err, snapshot.ErrDamaged):
		return "nothing was begun anew in its place; states that were saved before can still be restored"
	case errors.Is(err, snapshot.ErrSealed):
		return "ask for its chunks with Accept: application/x-headgate-sparse, and open them with the session's key"
	case errors.As(err, new(*snapshot.InUseError)):
		return "sessions that were made from it, and pins on it, have to go first"
	case errors.Is(err, tokens.ErrExpired):
		return "an expired token cannot be renewed: ask whoever gave it to you for a new one"
	}
	return ""
}

const staleHint = "somebody else has taken this session over: stop writing, what you have not pushed is not part of it; to go on, ask whoever started you for a token of the present epoch"

func factsOf(err error) (m moreBody) {
	var (
		stale *sessions.StaleEpochError
		held  *sessions.LeaseHeldError
		state *sessions.StateError
		used  *sessions.InUseError
		part  *forkError
	)
	switch {
	case errors.As(err, &stale):
		m.Epoch, m.SessionEpoch = &stale.Have, &stale.Session
	case errors.As(err, &held):
		lease := leaseBodyOf(held.Lease)
		m.Lease = &lease
	case errors.As(err, &state):
		m.State = state.State
	case errors.As(err, &used):
		for _, h := range used.Holders {
			m.Holders = append(m.Holders, useHolderBody(h))
		}
	case errors.As(err, &part):
		b := part.body
		m.GroupID, m.StateSHA, m.Children, m.Failed = b.GroupID, b.StateSHA, b.Children, b.Failed
	default:
		m.ofSnapshot(err)
	}
	return m
}

// kindPin stands among the holders of a snapshot for a pin.
const kindPin = "pin"

// ofSnapshot tells the facts of an error of snapshots.
func (m *moreBody) ofSnapshot(err error) {
	var (
		field   *snapshot.FieldError
		moved   *snapshot.MovedError
		cap     *snapshot.OverCapError
		full    *snapshot.FullError
		damaged *snapshot.DamagedError
		state   *snapshot.StateError
		used    *snapshot.InUseError
		missing *snapshot.MissingError
	)
	switch {
	case errors.As(err, &missing):
		m.Missing = []string{}
		for _, h := range missing.Chunks {
			m.Missing = append(m.Missing, h.String())
		}
	case errors.As(err, &field):
		m.Field = field.Field
	case errors.As(err, &moved):
		head := moved.Actual.String()
		m.Ref, m.HeadSHA = moved.Ref, &head
	case errors.As(err, &cap):
		m.CapBytes, m.SizeBytes = &cap.Cap, &cap.Size
	case errors.As(err, &full):
		m.Field, m.CapBytes, m.SizeBytes = full.What, &full.Quota, &full.Use
	case errors.As(err, &damaged):
		m.SHA, m.Chunk = damaged.Commit.String(), damaged.What
	case errors.As(err, &state):
		m.SHA, m.SnapState = state.Commit.String(), state.State
	case errors.As(err, &used):
		m.SHA = used.Commit.String()
		for _, holder := range used.Holders {
			kind := "session"
			if holder == kindPin { // of which nobody is told whose it is
				kind = kindPin
			}
			m.Holders = append(m.Holders, useHolderBody{Kind: kind, ID: holder})
		}
	}
}
