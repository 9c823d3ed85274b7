package httpapi

import (
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

type whoamiBody struct {
	Org       string         `json:"org"`
	Subject   string         `json:"sub"`
	RepoName  string         `json:"repo_name"`
	URL       string         `json:"url"`
	Scopes    []tokens.Scope `json:"scopes"`
	ExpiresAt string         `json:"expires_at"`
	ExpiresIn int64          `json:"expires_in_s"`
	Session   string         `json:"session,omitempty"`
	Epoch     *uint64        `json:"epoch,omitempty"`
	// Of the session that an issued token is bound to: its epoch and its lease. With
	// an older epoch the token is fenced off.
	SessionEpoch *uint64    `json:"session_epoch,omitempty"`
	Lease        *leaseBody `json:"lease,omitempty"`
	Refs         []ruleBody `json:"refs"`
	May          mayBody    `json:"may"`
}

type ruleBody struct {
	Pattern string         `json:"pattern"`
	Ops     []refpolicy.Op `json:"ops"`
}

// A mayBody tells what a token can do in patterns, most particular first as they
// stand in the token. A pattern also matches what an earlier rule took away.
type mayBody struct {
	Push []string `json:"push"`
	Read []string `json:"read"`
}

func (s *Server) whoami(q *request) error {
	p := q.who
	body := whoamiBody{
		Org: p.Org, Subject: p.Subject, RepoName: p.Repo, URL: p.Repo,
		Scopes: p.Scopes.List(), ExpiresAt: wireTime(p.ExpiresAt.UTC()),
		ExpiresIn: max(0, int64(p.ExpiresAt.Sub(s.Now())/time.Second)),
		Session:   p.Session, Epoch: p.Epoch,
		Refs: []ruleBody{},
		May:  mayBody{Push: pushable(p), Read: readable(p)},
	}
	for _, r := range p.Policy.Rules() {
		body.Refs = append(body.Refs, ruleBody{r.Pattern, r.Ops})
	}
	if p.Issued {
		if err := s.tellSession(q, &body); err != nil {
			return err
		}
	}
	return q.x.json(http.StatusOK, body)
}

// tellSession adds how the session of an issued token stands.
func (s *Server) tellSession(q *request, body *whoamiBody) error {
	got, err := s.Sessions.Get(q.ctx(), q.session(), q.door(), q.who.Session)
	if err != nil {
		return err
	}
	body.SessionEpoch = &got.Epoch
	if got.Lease != nil {
		lease := leaseBodyOf(*got.Lease)
		body.Lease = &lease
	}
	if got.Epoch != *q.who.Epoch {
		body.May.Push = []string{}
	}
	return nil
}

// pushable lists the patterns under which a token can push something.
func pushable(p *tokens.Principal) []string {
	if !p.Scopes.Has(tokens.GitWrite) {
		return []string{}
	}
	return allowed(p.Policy.Rules(), func(op refpolicy.Op) bool {
		return op != refpolicy.NoForcePush && op != refpolicy.VerifySig
	})
}

// readable lists the patterns of what a token can read.
func readable(p *tokens.Principal) []string {
	if !p.Scopes.Has(tokens.GitRead) {
		return []string{}
	}
	return allowed(p.Policy.Rules(), func(op refpolicy.Op) bool { return op == refpolicy.NoRead })
}

// allowed lists the patterns of the rules without an op that takes away. What no
// rule matches is allowed, so a list that does not end with * goes on with it.
func allowed(rules []refpolicy.Rule, takesAway func(refpolicy.Op) bool) []string {
	list := []string{}
	for _, r := range rules {
		if !slices.ContainsFunc(r.Ops, takesAway) {
			list = append(list, r.Pattern)
		}
		if r.Pattern == "*" {
			return list
		}
	}
	return append(list, "*")
}
