package tokens

import "time"

// Told is what a token says of itself. Whoever holds one may go by it; nobody else
// may: its signature was not looked at.
type Told struct {
	Org, Repo, Session  string
	IssuedAt, ExpiresAt time.Time // IssuedAt is zero when it does not say
}

// ReadUnverified takes a token apart for its holder. Errors wrap ErrUnauthorized.
func ReadUnverified(raw string) (Told, error) {
	t, err := decode(raw)
	if err != nil {
		return Told{}, err
	}
	c := t.claims
	return Told{Org: c.iss, Repo: c.repo, Session: c.sid, IssuedAt: c.iat, ExpiresAt: c.exp}, nil
}
