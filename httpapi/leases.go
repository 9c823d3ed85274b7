package httpapi

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/sessions"
)

// A leaseBody is a lease in answers; without ExpiresAt it was released.
type leaseBody struct {
	Epoch     uint64 `json:"epoch"`
	Holder    string `json:"holder"`
	ExpiresAt string `json:"expires_at,omitempty"`
}

func leaseBodyOf(l sessions.Lease) leaseBody {
	return leaseBody{Epoch: l.Epoch, Holder: l.Holder, ExpiresAt: timeOrNone(l.ExpiresAt)}
}

type changeLeaseBody struct {
	Action sessions.LeaseAction `json:"action"`
	Holder string               `json:"holder"`
	TTL    *int64               `json:"ttl_s"`
	Wait   *int64               `json:"wait_s"`
	Epoch  *uint64              `json:"epoch"`
}

func (b changeLeaseBody) spec() (spec sessions.LeaseSpec, err error) {
	switch b.Action {
	case sessions.Acquire, sessions.Renew, sessions.Release, sessions.Takeover:
	default:
		return spec, invalid("action is none of acquire, renew, release and takeover")
	}
	if b.Holder == "" {
		return spec, invalid("holder is missing")
	}
	spec = sessions.LeaseSpec{Action: b.Action, Holder: b.Holder, Epoch: b.Epoch}
	if spec.TTL, err = seconds("ttl_s", b.TTL, 1); err != nil {
		return spec, err
	}
	spec.Wait, err = seconds("wait_s", b.Wait, 0)
	return spec, err
}

func (s *Server) changeLease(q *request) error {
	var body changeLeaseBody
	if err := s.readJSON(q, &body); err != nil {
		return err
	}
	spec, err := body.spec()
	if err != nil {
		return err
	}
	if q.who.Issued && spec.Action != sessions.Renew && spec.Action != sessions.Release {
		return errIssuedLease
	}
	if spec.Epoch == nil {
		spec.Epoch = q.who.Epoch
	}
	spec.Once = onceOf(q, http.StatusOK, func(l sessions.Lease) any { return leaseBodyOf(l) })
	defer q.waiting(spec.Wait)()
	lease, err := s.Sessions.Lease(q.ctx(), q.session(), q.door(), q.actor(), q.id, spec)
	if err != nil {
		return err
	}
	return q.x.json(http.StatusOK, leaseBodyOf(lease))
}

// waiting lets others work while a request waits for something else than its
// client, if it waits at all; it works again when what waiting gives is called.
func (q *request) waiting(d time.Duration) (end func()) {
	if d <= 0 {
		return func() {}
	}
	q.x.pass.rest()
	return q.x.pass.work
}
