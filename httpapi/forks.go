package httpapi

import (
	"errors"
	"net/http"
	"runtime"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/sessions"
	"github.com/headgate/headgate/tokens"
)

// A forkBody is a group of children with what they came from.
type forkBody struct {
	GroupID   string       `json:"group_id"`
	ParentID  string       `json:"parent_id"`
	StateSHA  string       `json:"state_sha"`
	KeepState bool         `json:"keep_state"`
	CreatedAt string       `json:"created_at"`
	CreatedBy string       `json:"created_by"`
	Winner    string       `json:"winner,omitempty"`
	ClosedAt  string       `json:"closed_at,omitempty"`
	Children  []childBody  `json:"children"`
	Failed    []failedBody `json:"failed"`
}

type childBody struct {
	Session sessionBody `json:"session"`
	Token   *tokenBody  `json:"token,omitempty"`
}

// A failedBody is a child that did not come up.
type failedBody struct {
	SessionID string `json:"session_id"`
	Reason    string `json:"reason"`
}

// A forkError is a *sessions.ChildrenFailedError with the fork as it is told: the
// children that came up are in it and stay usable.
type forkError struct {
	err  error
	body forkBody
}

func (e *forkError) Error() string { return e.err.Error() }

// Unwrap gives the *sessions.ChildrenFailedError.
func (e *forkError) Unwrap() error { return e.err }

type createForkBody struct {
	N           int               `json:"n"`
	Strict      *bool             `json:"strict"`
	KeepState   *bool             `json:"keep_state"`
	Labels      map[string]string `json:"labels"`
	Token       *grantBody        `json:"token"`
	TTL         *int64            `json:"ttl_s"`
	IdleTimeout *int64            `json:"idle_timeout_s"`
	TTLUnused   *int64            `json:"ttl_unused_s"`
	StateIdle   *int64            `json:"state_idle_timeout_s"`
	From        string            `json:"from_snapshot"`
	Wait        *int64            `json:"wait_s"`
}

func (b createForkBody) spec(q *request) (spec sessions.ForkSpec, err error) {
	if b.N < 1 {
		return spec, invalid("n is not a number of children from 1 on")
	}
	spec = sessions.ForkSpec{N: b.N, KeepState: isTrue(b.KeepState), Strict: isTrue(b.Strict), Labels: b.Labels}
	if b.Token != nil {
		grant, err := q.grant(*b.Token)
		if err != nil {
			return spec, err
		}
		spec.Token = &grant
	}
	if spec.TTL, err = seconds("ttl_s", b.TTL, 1); err != nil {
		return spec, err
	}
	if spec.TTLUnused, err = seconds("ttl_unused_s", b.TTLUnused, 1); err != nil {
		return spec, err
	}
	if spec.Idle, err = optionalSeconds("idle_timeout_s", b.IdleTimeout); err != nil {
		return spec, err
	}
	if spec.StateIdle, err = optionalSeconds("state_idle_timeout_s", b.StateIdle); err != nil {
		return spec, err
	}
	spec.Wait, err = seconds("wait_s", b.Wait, 0)
	return spec, err
}

// isTrue is an optional flag that is true unless it says otherwise.
func isTrue(flag *bool) bool { return flag == nil || *flag }

func (s *Server) createFork(q *request) error {
	var body createForkBody
	if err := s.readJSON(q, &body); err != nil {
		return err
	}
	spec, err := body.spec(q)
	if err != nil {
		return err
	}
	if spec.FromSnapshot, err = s.fromSnapshot(q, body.From); err != nil {
		return err
	}
	spec.Once = onceSigned(q, http.StatusCreated, func(f sessions.Fork, sign signer) (any, error) { return s.forkBodyOf(q, f, sign) })
	defer q.waiting(spec.Wait)()
	made, err := s.Sessions.Fork(q.ctx(), q.session(), q.startingDoor(spec.FromSnapshot), q.actor(), q.id, spec)
	var failed *sessions.ChildrenFailedError
	if errors.As(err, &failed) {
		made = failed.Fork
	} else if err != nil {
		return err
	}
	sign, terr := s.mintedAhead(q, made.Tokens)
	if terr != nil {
		return terr
	}
	answer, terr := s.forkBodyOf(q, made, sign)
	switch {
	case terr != nil:
		return terr
	case err != nil:
		return &forkError{err, answer}
	}
	q.x.Header()["Cache-Control"] = noStore
	return q.x.json(http.StatusCreated, answer)
}

// mintedAhead is a signer of these tokens alone, which all processors have signed by
// the time it is given: there may be thousands.
func (s *Server) mintedAhead(q *request, list []sessions.Token) (signer, error) {
	repo := q.session()
	raw := make([]string, len(list))
	var work errgroup.Group
	parts := min(runtime.GOMAXPROCS(0), max(1, len(list)))
	for part := range parts {
		work.Go(func() (err error) {
			for i := part; i < len(list) && err == nil; i += parts {
				raw[i], err = s.Issuer.Mint(grantOf(repo, list[i]))
			}
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	byID := make(map[string]string, len(list))
	for i, t := range list {
		byID[t.ID] = raw[i]
	}
	return func(g tokens.Grant) (string, error) { return byID[g.ID], nil }, nil
}

// forkBodyOf tells of a fork, with its tokens where it has some.
func (s *Server) forkBodyOf(q *request, f sessions.Fork, sign signer) (forkBody, error) {
	g := f.Group
	b := forkBody{
		GroupID: g.ID, ParentID: g.ParentID, StateSHA: g.StateSHA, KeepState: g.KeepState,
		CreatedAt: timeOrNone(g.CreatedAt), CreatedBy: g.CreatedBy.Subject, Winner: g.Winner, ClosedAt: timeOrNone(g.ClosedAt),
		Children: []childBody{}, Failed: []failedBody{},
	}
	failed := make(map[string]bool, len(f.Failed))
	for _, child := range f.Failed {
		failed[child.ID] = true
		b.Failed = append(b.Failed, failedBody{child.ID, child.Reason})
	}
	for i, child := range f.Children {
		if failed[child.ID] {
			continue
		}
		c := childBody{Session: sessionBodyOf(child)}
		if i < len(f.Tokens) {
			token, err := s.handOut(q, f.Tokens[i], sign)
			if err != nil {
				return b, err
			}
			c.Token = &token
		}
		b.Children = append(b.Children, c)
	}
	return b, nil
}

func (s *Server) getFork(q *request) error {
	got, err := s.Sessions.Group(q.ctx(), q.session(), q.door(), q.id)
	if err != nil {
		return err
	}
	answer, err := s.forkBodyOf(q, got, nil) // a group is told without tokens
	if err != nil {
		return err
	}
	return q.x.json(http.StatusOK, answer)
}

func (s *Server) pickChild(q *request) error {
	var body struct {
		Winner string `json:"winner"`
	}
	if err := s.readJSON(q, &body); err != nil {
		return err
	}
	if body.Winner == "" {
		return invalid("winner is missing")
	}
	parent, err := s.Sessions.Pick(q.ctx(), q.session(), q.door(), q.actor(), q.id, body.Winner, onceOf(q, http.StatusOK, answerSession))
	if err != nil {
		return err
	}
	return q.x.json(http.StatusOK, sessionBodyOf(parent))
}

// A closingBody tells what closing a group did.
type closingBody struct {
	GroupID   string `json:"group_id"`
	Ended     int    `json:"ended"`
	Gone      int    `json:"gone"`
	StateGone bool   `json:"state_gone"`
}

func closingBodyOf(group string, c sessions.Closing) closingBody {
	return closingBody{group, c.Ended, c.Gone, c.StateGone}
}

func (s *Server) closeFork(q *request) error {
	closing, err := s.Sessions.Close(q.ctx(), q.session(), q.door(), q.actor(), q.id, sessions.CloseSpec{
		Admin: q.who.Scopes.Has(tokens.RepoWrite),
		Once:  onceOf(q, http.StatusOK, func(c sessions.Closing) any { return closingBodyOf(q.id, c) }),
	})
	if err != nil {
		return err
	}
	return q.x.json(http.StatusOK, closingBodyOf(q.id, closing))
}
