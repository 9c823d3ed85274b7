package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/headgate/headgate/sessions/seal"
	"github.com/headgate/headgate/sessions/snapshot"
)

// Sealing holds the server's keys for sealed saves.
type Sealing interface {
	// Ring is the keys as they are now.
	Ring() *seal.Ring
}

var errNotSealed = errors.New("snapshot is not sealed")

// checkEnvelope holds the envelope of a sealed save to what can be opened later: its
// form, and that the server has the key it was wrapped to. What is in it stays unknown.
func (s *Server) checkEnvelope(text json.RawMessage) error {
	if text == nil {
		return nil
	}
	e, err := seal.ParseEnvelope(text)
	if err != nil {
		return &snapshot.FieldError{Field: "envelope", Text: err.Error()}
	}
	if s.Seals == nil || !s.Seals.Ring().Has(e.ServerKeyID) {
		return &snapshot.FieldError{Field: "envelope.server_key_id", Text: "this server has no such sealing key", Conflict: true}
	}
	return nil
}

// checkCaptureKey holds the key that a session's saves are to be sealed to.
func (s *Server) checkCaptureKey(text string) error {
	if text == "" {
		if s.Snapshots != nil && s.Snapshots.Limits.RequireSeal {
			return snapshot.ErrSealNeeded
		}
		return nil
	}
	if _, err := seal.ParsePublicKey([]byte(text)); err != nil {
		return invalid("capture_key is %v", err)
	}
	return nil
}

// getSealingKey tells what a sealed save is wrapped to besides the customer's key.
func (s *Server) getSealingKey(q *request) error {
	if s.Seals == nil {
		return seal.ErrUnknownKey
	}
	key := s.Seals.Ring().Newest()
	text, err := key.PEM()
	if err != nil {
		return err
	}
	q.x.Header()["Cache-Control"] = noStore
	return q.x.json(http.StatusOK, struct {
		KeyID     string `json:"key_id"`
		PublicKey string `json:"public_key"`
	}{key.ID(), string(text)})
}

// openKey takes the server's layer off a sealed snapshot's data key, for who may read
// the snapshot. What is left opens with the customer's key alone.
func (s *Server) openKey(q *request) error {
	id, err := q.snapshotID()
	if err != nil {
		return err
	}
	got, err := s.Snapshots.Get(q.ctx(), q.snapshots(), id)
	switch {
	case err != nil:
		return err
	case !got.Sealed:
		return errNotSealed
	case s.Seals == nil:
		return seal.ErrUnknownKey
	}
	m, err := snapshot.ReadManifest(q.ctx(), q.snapshots(), id)
	if err != nil {
		return err
	}
	e, err := seal.ParseEnvelope(m.Envelope)
	if err != nil {
		return err
	}
	inner, err := s.Seals.Ring().TakeOff(e)
	if err != nil {
		return err
	}
	q.x.Header()["Cache-Control"] = noStore
	return q.x.json(http.StatusOK, struct {
		Wrapped  []byte        `json:"wrapped"`
		Envelope seal.Envelope `json:"envelope"`
	}{inner, e})
}
