package httpapi

import (
	"net/http"

	"github.com/headgate/headgate/sessions/snapshot"
)

// getBundle answers with a git bundle of a snapshot and all that it leads to.
func (s *Server) getBundle(q *request) error {
	id, err := q.snapshotID()
	if err != nil {
		return err
	}
	got, err := s.Snapshots.Get(q.ctx(), q.snapshots(), id)
	if err != nil {
		return err
	}
	if got.State != snapshot.Ready {
		return &snapshot.StateError{Commit: id, State: got.State}
	}
	begin := func() error {
		h := q.x.Header()
		h.Set("Content-Type", "application/x-git-bundle")
		h["Cache-Control"] = noStore
		h.Set("X-Headgate-Snapshot", id.String())
		q.x.WriteHeader(http.StatusOK)
		return nil
	}
	if q.r.Method == http.MethodHead {
		return begin()
	}
	w := &heldWriter{x: q.x, begin: begin}
	defer w.release()
	if err := s.Snapshots.Export(q.ctx(), q.snapshots(), id, w); err != nil {
		return err
	}
	return w.flush()
}
