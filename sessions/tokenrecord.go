package sessions

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// The keys of issued tokens. A token's last part (see tokenID) is its place in both.
const (
	tokenKeys      = "session-token/"       // session-token/<session>/<newest first> -> record
	tokenDueKeys   = "session-token-due/"   // session-token-due/<expiry><part> -> session
	revokedDueKeys = "session-revoked-due/" // session-revoked-due/<when><family>: when a revocation may be forgotten
)

func tokenPrefix(session string) string { return tokenKeys + session + "/" }

func tokenKey(session string, id tokenID) string { return tokenPrefix(session) + id.own }

func tokenDueKey(id tokenID) string { return tokenDueKeys + whenBytes(id.expiresAt()) + id.own }

func revokedDueKey(at time.Time, family string) string {
	return revokedDueKeys + whenBytes(at) + family
}

// A tokenRecord is what stands under a token's key; its id says its times.
type tokenRecord struct {
	ID      string   `json:"jti"`
	Session string   `json:"sid"`
	Ref     string   `json:"ref"`
	Epoch   uint64   `json:"epoch"` // with the epoch base: as the token says it
	By      Actor    `json:"by"`
	Subject string   `json:"sub,omitempty"`
	Scopes  []string `json:"scopes"`
	Read    []string `json:"read,omitempty"`
	Within  [][]Rule `json:"within,omitempty"`
}

// A revocation is what stands under a revoked family's key.
type revocation struct {
	At time.Time `json:"at"`
	By Actor     `json:"by"`
}

func decodeToken(raw []byte) (t tokenRecord, id tokenID, err error) {
	if err = json.Unmarshal(raw, &t); err != nil {
		return t, id, fmt.Errorf("decode token: %w", err)
	}
	id, ok := parseTokenID(t.ID)
	if !ok {
		return t, id, fmt.Errorf("decode token: %q is no id", t.ID)
	}
	return t, id, nil
}

// told is the token as it is told; revoked is what stands under its family's key.
func (t *tokenRecord) told(id tokenID, revoked []byte) (Token, error) {
	told := Token{
		ID: t.ID, SessionID: t.Session, Ref: t.Ref, Epoch: t.Epoch, Subject: t.Subject,
		Scopes: t.Scopes, Read: t.Read, Within: t.Within,
		IssuedAt: id.issuedAt(), ExpiresAt: id.expiresAt(), IssuedBy: t.By,
	}
	if revoked != nil {
		var r revocation
		if err := json.Unmarshal(revoked, &r); err != nil {
			return told, fmt.Errorf("decode revocation: %w", err)
		}
		told.RevokedAt = r.At
	}
	return told, nil
}

// sets are what a new token writes.
func (t *tokenRecord) sets(id tokenID) []ledger.Set {
	return []ledger.Set{
		{Key: tokenKey(t.Session, id), Value: mustJSON(t)},
		{Key: tokenDueKey(id), Value: []byte(t.Session)},
	}
}

// Limits of what a token may be asked to say; it has to fit into a header.
const (
	maxTokenRead   = 64
	maxPattern     = 1 << 10
	maxSubject     = 256
	maxTokenRecord = 24 << 10 // bytes
)

// tokenScopes are the scopes that an issued token may have.
var tokenScopes = []string{"git:read", "git:write"}

// A grant is what a token says besides whose it is and until when.
type grant struct {
	ttl     time.Duration
	subject string
	scopes  []string
	read    []string
	within  [][]Rule
}

// grant checks what is asked for and fills in the defaults.
func (k *Keeper) grant(spec TokenSpec) (grant, error) {
	g := grant{ttl: spec.TTL, subject: spec.Subject, scopes: slices.Clone(spec.Scopes), read: slices.Clone(spec.Read), within: spec.Within}
	if err := g.validate(); err != nil {
		return g, err
	}
	if g.ttl == 0 {
		g.ttl = k.Limits.TokenDefault
	}
	g.ttl = min(g.ttl, k.Limits.TokenMax)
	if len(g.scopes) == 0 {
		g.scopes = slices.Clone(tokenScopes)
	}
	return g, nil
}

func (g *grant) validate() error {
	switch {
	case g.ttl < 0:
		return invalidf("time of a token is negative")
	case len(g.subject) > maxSubject || !isText(g.subject):
		return invalidf("subject is not at most %d bytes of text", maxSubject)
	case len(g.read) > maxTokenRead:
		return invalidf("%d patterns to read, at most %d", len(g.read), maxTokenRead)
	}
	for _, s := range g.scopes {
		if !slices.Contains(tokenScopes, s) {
			return invalidf("an issued token's scopes are of git:read and git:write")
		}
	}
	for _, p := range g.read {
		if p == "" || len(p) > maxPattern || !isText(p) {
			return invalidf("a pattern is 1 to %d bytes of text", maxPattern)
		}
	}
	if size := len(mustJSON(tokenRecord{Read: g.read, Within: g.within})); size > maxTokenRecord {
		return invalidf("rules of %d bytes, at most %d", size, maxTokenRecord)
	}
	return nil
}

// token makes the record of a token for r as it stands; family is that of the token
// it goes on from, or empty. It expires on a whole second, and no later than r's time is up.
func (g *grant) token(r *record, base epochBase, family string, by Actor, now time.Time) (tokenRecord, tokenID, error) {
	expires := now.Add(g.ttl + time.Second - 1).Truncate(time.Second)
	if !r.ExpiresAt.IsZero() && r.ExpiresAt.Before(expires) {
		expires = r.ExpiresAt.Truncate(time.Second)
	}
	if !expires.After(now) {
		return tokenRecord{}, tokenID{}, &StateError{ID: r.ID, State: Ended} // its time is up
	}
	id := newTokenID(family, now, expires)
	return tokenRecord{
		ID: id.String(), Session: r.ID, Ref: r.ref(), Epoch: base.told(r.Epoch), By: by,
		Subject: g.subject, Scopes: g.scopes, Read: g.read, Within: g.within,
	}, id, nil
}
