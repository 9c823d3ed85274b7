package httpapi

import (
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/refpolicy"
)

// A pinBody is a pin in lists and answers.
type pinBody struct {
	ID        string `json:"id"`
	SHA       string `json:"sha"`
	Holder    string `json:"holder"`
	CreatedAt string `json:"created_at"`
	ExpiresAt string `json:"expires_at,omitempty"`
}

func pinBodyOf(p gitstore.Pin) pinBody {
	b := pinBody{ID: p.ID, SHA: p.OID.String(), Holder: p.Holder, CreatedAt: wireTime(p.CreatedAt.UTC())}
	if !p.ExpiresAt.IsZero() {
		b.ExpiresAt = wireTime(p.ExpiresAt.UTC())
	}
	return b
}

func (s *Server) createPin(q *request) error {
	var body struct {
		SHA    string `json:"sha"`
		Holder string `json:"holder"`
		TTL    *int64 `json:"ttl_s"`
	}
	if err := s.readJSON(q, &body); err != nil {
		return err
	}
	commit, err := refpolicy.ParseOID(body.SHA)
	if err != nil {
		return invalid("sha is not a commit's 40 hex digits")
	}
	var ttl time.Duration
	if body.TTL != nil {
		const most = int64(1<<63-1) / int64(time.Second)
		if *body.TTL <= 0 || *body.TTL > most {
			return invalid("ttl_s is not a number of seconds a pin can have")
		}
		ttl = time.Duration(*body.TTL) * time.Second
	}
	answer := func(p gitstore.Pin) any { return pinBodyOf(p) }
	pin, err := q.repo.Pin(q.ctx(), q.caller(), gitstore.PinSpec{
		OID: commit, Holder: body.Holder, TTL: ttl, Once: onceOf(q, http.StatusCreated, answer),
	})
	if err != nil {
		return err
	}
	return q.x.json(http.StatusCreated, answer(pin))
}

func (s *Server) listPins(q *request) error {
	v := q.query()
	cursor, limit := v.text("cursor"), v.limit(pageDefault, pageMost)
	if v.err != nil {
		return v.err
	}
	page, err := q.repo.Pins(q.ctx(), q.caller(), cursor, limit)
	if err != nil {
		return err
	}
	pins := make([]pinBody, 0, len(page.Pins))
	for _, p := range page.Pins {
		if !keepsSnapshot(p.ID) {
			pins = append(pins, pinBodyOf(p))
		}
	}
	return q.x.json(http.StatusOK, struct {
		Pins []pinBody `json:"pins"`
		pageBody
	}{pins, pageOf(page.Next)})
}

// keepsSnapshot reports whether a pin is a snapshot's own, which goes with it and is
// nobody's to list or delete.
func keepsSnapshot(id string) bool { return strings.HasPrefix(id, snapshotPinIDs) }

func (s *Server) deletePin(q *request) error {
	if keepsSnapshot(q.id) {
		return gitstore.ErrPinNotFound
	}
	if err := q.repo.Unpin(q.ctx(), q.caller(), q.id, onceOf[gitstore.Pin](q, http.StatusNoContent, nil)); err != nil {
		return err
	}
	q.x.WriteHeader(http.StatusNoContent)
	return nil
}
