package httpapi

import (
	"errors"
	"io"
	"net/http"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/sessions/snapshot"
)

// answerSave is what a save answers: 201 saved, or 200 with the snapshot there is, or
// with what it would be.
func answerSave(got snapshot.Snapshot, dryRun bool) (status int, body snapshotBody) {
	body = snapshotBodyOf(got)
	switch {
	case got.Skipped:
		body.Status = "skipped"
		return http.StatusOK, body
	case dryRun:
		body.Status = "dry_run"
		return http.StatusOK, body
	}
	body.Status = "saved"
	return http.StatusCreated, body
}

// onceSave is what a save is to be stored with, if it is named. One that changes
// nothing is not stored: it may be asked again.
func onceSave(q *request) *ledger.Once[snapshot.Snapshot] {
	return onceOf(q, http.StatusCreated, func(got snapshot.Snapshot) any {
		_, body := answerSave(got, false)
		return body
	})
}

// saveSnapshot saves the image that is the request's body.
func (s *Server) saveSnapshot(q *request) error {
	spec, err := q.streamSpec()
	if err == nil {
		err = s.checkEnvelope(spec.Envelope)
	}
	if err != nil {
		return err
	}
	spec.Once = onceSave(q)
	body := io.Reader(http.NoBody)
	if q.r.Body != nil {
		body = wholeBody{q.r.Body}
	}
	got, err := s.Snapshots.Save(q.ctx(), q.snapshots(), spec, body)
	if err != nil {
		return endedEarly(err)
	}
	status, answer := answerSave(got, spec.DryRun)
	return q.x.json(status, answer)
}

// A wholeBody turns what a body can end with into errors of ours.
type wholeBody struct{ r io.Reader }

func (b wholeBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	return n, bodyError(err)
}

// endedEarly makes the client's fault of a body that ends before what it holds does.
func endedEarly(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, snapshot.ErrDamaged) {
		return &requestError{kind: kindBodyCut, text: "request body ended early: " + err.Error()}
	}
	return err
}

// importSnapshot makes the snapshot in a bundle the session's newest.
func (s *Server) importSnapshot(q *request) error {
	body := io.Reader(http.NoBody)
	if q.r.Body != nil {
		body = wholeBody{q.r.Body}
	}
	got, err := s.Snapshots.Import(q.ctx(), q.snapshots(), q.id, body, onceSave(q))
	if err != nil {
		return endedEarly(err)
	}
	status, answer := answerSave(got, false)
	return q.x.json(status, answer)
}
