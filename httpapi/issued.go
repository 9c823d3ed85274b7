package httpapi

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/sessions"
	"github.com/headgate/headgate/tokens"
)

// grantBody asks for a token: how long, what it may do at all, what it may read
// besides its own history, and for whom it stands.
type grantBody struct {
	TTL         *int64   `json:"ttl_s"`
	Permissions []string `json:"permissions"`
	Read        []string `json:"read"`
	Subject     string   `json:"sub"`
}

func (b grantBody) spec() (spec sessions.TokenSpec, err error) {
	spec = sessions.TokenSpec{Scopes: b.Permissions, Subject: b.Subject}
	for _, p := range b.Permissions {
		if scope := tokens.Scope(p); scope != tokens.GitRead && scope != tokens.GitWrite {
			return spec, invalid("permissions are of git:read and git:write")
		}
	}
	if b.Read != nil {
		spec.Read = []string{} // nothing, which is not what was left out
	}
	for _, text := range b.Read {
		pattern, err := refpolicy.ParsePattern(text)
		if err != nil {
			return spec, invalid("read: %v", err)
		}
		spec.Read = append(spec.Read, string(pattern))
	}
	spec.TTL, err = seconds("ttl_s", b.TTL, 1)
	return spec, err
}

// within is what a token must also keep that is made with the policy of who.
func within(who *tokens.Principal) [][]sessions.Rule {
	rules := who.Policy.Rules()
	if rules == nil {
		return nil
	}
	list := make([]sessions.Rule, len(rules))
	for i, r := range rules {
		list[i].Pattern = r.Pattern
		list[i].Ops = make([]string, len(r.Ops))
		for n, op := range r.Ops {
			list[i].Ops[n] = string(op)
		}
	}
	return [][]sessions.Rule{list}
}

// grant is a spec for tokens that whoever asks may make: never of more than its own
// policy lets it, and in its name unless it says whose.
func (q *request) grant(b grantBody) (sessions.TokenSpec, error) {
	spec, err := b.spec()
	spec.Within = within(q.who)
	spec.Subject = first(spec.Subject, q.who.Subject)
	return spec, err
}

// A tokenBody hands a token out.
type tokenBody struct {
	Token        string         `json:"token"`
	JTI          string         `json:"jti"`
	SessionID    string         `json:"session_id"`
	Subject      string         `json:"sub"`
	Scopes       []tokens.Scope `json:"scopes"`
	ExpiresAt    string         `json:"expires_at"`
	Epoch        uint64         `json:"epoch"`
	RemoteURL    string         `json:"remote_url"`
	EphemeralURL string         `json:"ephemeral_remote_url"`
	Refs         []ruleBody     `json:"refs"`
}

// A tokenRecordBody is a token in lists, without the token.
type tokenRecordBody struct {
	JTI       string   `json:"jti"`
	Subject   string   `json:"sub"`
	Scopes    []string `json:"scopes"`
	Read      []string `json:"read"`
	Epoch     uint64   `json:"epoch"`
	IssuedAt  string   `json:"issued_at"`
	IssuedBy  string   `json:"issued_by"`
	ExpiresAt string   `json:"expires_at"`
	RevokedAt string   `json:"revoked_at,omitempty"`
}

func tokenRecordBodyOf(t sessions.Token) tokenRecordBody {
	return tokenRecordBody{
		JTI: t.ID, Subject: t.Subject, Scopes: append([]string{}, t.Scopes...), Read: append([]string{}, t.Read...), Epoch: t.Epoch,
		IssuedAt: timeOrNone(t.IssuedAt), IssuedBy: t.IssuedBy.Subject, ExpiresAt: timeOrNone(t.ExpiresAt), RevokedAt: timeOrNone(t.RevokedAt),
	}
}

// handOut gives the token of a record, signed by sign; of the same record it is the
// same token.
func (s *Server) handOut(q *request, rec sessions.Token, sign signer) (tokenBody, error) {
	repo := q.session()
	g := grantOf(repo, rec)
	raw, err := sign(g)
	if err != nil {
		return tokenBody{}, err
	}
	return tokenBody{
		Token: raw, JTI: rec.ID, SessionID: rec.SessionID, Subject: rec.Subject, Scopes: g.Scopes.List(),
		ExpiresAt: timeOrNone(rec.ExpiresAt), Epoch: rec.Epoch,
		RemoteURL:    withToken(s.remoteURL(q.r, repo.Name), raw),
		EphemeralURL: withToken(s.remoteURL(q.r, repo.Name+"+ephemeral"), raw),
		Refs:         mintedRefs(g),
	}, nil
}

// onceHandOut is what a named call is stored with that hands a token out.
func (s *Server) onceHandOut(q *request) *ledger.Once[sessions.Token] {
	return onceSigned(q, http.StatusCreated, func(rec sessions.Token, sign signer) (any, error) { return s.handOut(q, rec, sign) })
}

// withToken is a remote's URL that git can use as it is. A token has no character
// that a URL would have to escape.
func withToken(remote, token string) string {
	scheme, rest, ok := strings.Cut(remote, "://")
	if !ok {
		return remote
	}
	return scheme + "://t:" + token + "@" + rest
}

func (s *Server) createToken(q *request) error {
	var body grantBody
	if err := s.readJSON(q, &body); err != nil {
		return err
	}
	spec, err := q.grant(body)
	if err != nil {
		return err
	}
	spec.Once = s.onceHandOut(q)
	made, err := s.Sessions.Issue(q.ctx(), q.session(), q.door(), q.actor(), q.id, spec)
	if err != nil {
		return err
	}
	return s.answerToken(q, made)
}

func (s *Server) renewToken(q *request) error {
	var body grantBody
	if err := s.readJSON(q, &body); err != nil {
		return err
	}
	if !q.who.Issued {
		return errNotIssued
	}
	spec, err := body.spec()
	if err != nil {
		return err
	}
	if err := narrower(q.who, spec); err != nil {
		return err
	}
	spec.Once = s.onceHandOut(q)
	made, err := s.Sessions.Renew(q.ctx(), q.session(), q.actor(), spec)
	if err != nil {
		return err
	}
	return s.answerToken(q, made)
}

// narrower refuses a renewal that asks for what the token does not let its bearer do.
func narrower(who *tokens.Principal, spec sessions.TokenSpec) error {
	var ask tokens.Ask
	for _, scope := range spec.Scopes {
		ask.Scopes = append(ask.Scopes, tokens.Scope(scope))
	}
	for _, pattern := range spec.Read {
		ask.Read = append(ask.Read, refpolicy.Pattern(pattern))
	}
	if spec.Subject != "" && spec.Subject != who.Subject {
		return fmt.Errorf("%w: another subject", tokens.ErrMoreAsked)
	}
	return tokens.Narrower(who, ask)
}

func (s *Server) answerToken(q *request, rec sessions.Token) error {
	b, err := s.handOut(q, rec, s.Issuer.Mint)
	if err != nil {
		return err
	}
	q.x.Header()["Cache-Control"] = noStore
	return q.x.json(http.StatusCreated, b)
}

func (s *Server) listTokens(q *request) error {
	v := q.query()
	cursor, limit := v.text("cursor"), v.limit(pageDefault, pageMost)
	if v.err != nil {
		return v.err
	}
	page, next, err := s.Sessions.Tokens(q.ctx(), q.session(), q.door(), q.id, cursor, limit)
	if err != nil {
		return err
	}
	list := make([]tokenRecordBody, len(page))
	for i, t := range page {
		list[i] = tokenRecordBodyOf(t)
	}
	return q.x.json(http.StatusOK, struct {
		Tokens []tokenRecordBody `json:"tokens"`
		pageBody
	}{list, pageOf(next)})
}

func (s *Server) revokeToken(q *request) error {
	once := onceOf[struct{}](q, http.StatusNoContent, nil)
	if err := s.Sessions.Revoke(q.ctx(), q.session(), q.door(), q.actor(), q.id, q.part, once); err != nil {
		return err
	}
	q.x.WriteHeader(http.StatusNoContent)
	return nil
}
