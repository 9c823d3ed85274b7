package httpapi

import (
	"net/http"

	"github.com/headgate/headgate/sessions"
)

// A validityBody says whether a child of a fork came up.
type validityBody struct {
	SessionID string `json:"session_id"`
	Valid     bool   `json:"valid"`
	Reason    string `json:"reason,omitempty"`
}

// setValidity takes a runner's word on a child.
func (s *Server) setValidity(q *request) error {
	var body struct {
		Valid  *bool  `json:"valid"`
		Reason string `json:"reason"`
	}
	if err := s.readJSON(q, &body); err != nil {
		return err
	}
	if body.Valid == nil {
		return invalid("valid is missing")
	}
	told := validityBody{q.part, *body.Valid, body.Reason}
	err := s.Sessions.ReportChild(q.ctx(), q.session(), q.door(), q.actor(), q.id, q.part, sessions.ReportSpec{
		Failed: !told.Valid, Reason: told.Reason,
		Once: onceOf(q, http.StatusOK, func(struct{}) any { return told }),
	})
	if err != nil {
		return err
	}
	return q.x.json(http.StatusOK, told)
}
