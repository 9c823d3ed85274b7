package httpapi

import (
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/sessions"
	"github.com/headgate/headgate/tokens"
)

// grantOf is what the token of a record is to say.
func grantOf(repo sessions.Repo, rec sessions.Token) tokens.Grant {
	g := tokens.Grant{
		Org: repo.Org, Repo: repo.Name, Subject: rec.Subject,
		ID: rec.ID, Session: rec.SessionID, Epoch: rec.Epoch,
		Ref: refpolicy.RefName(rec.Ref), Read: rec.Read, Within: make([][]refpolicy.Rule, len(rec.Within)),
		IssuedAt: rec.IssuedAt, ExpiresAt: rec.ExpiresAt,
	}
	scopes := make([]tokens.Scope, len(rec.Scopes))
	for i, scope := range rec.Scopes {
		scopes[i] = tokens.Scope(scope)
	}
	g.Scopes = tokens.ScopesOf(scopes...)
	for i, policy := range rec.Within {
		for _, r := range policy {
			rule := refpolicy.Rule{Pattern: r.Pattern}
			for _, op := range r.Ops {
				rule.Ops = append(rule.Ops, refpolicy.Op(op))
			}
			g.Within[i] = append(g.Within[i], rule)
		}
	}
	return g
}

// mintedRefs are the rules of a grant's token, as they stand in it.
func mintedRefs(g tokens.Grant) []ruleBody {
	forward, readOnly := []refpolicy.Op{refpolicy.NoForcePush}, []refpolicy.Op{refpolicy.NoPush}
	rules := []ruleBody{{string(g.Ref), forward}, {tokens.SnapshotRefPrefix + g.Session, forward}}
	for _, pattern := range g.Read {
		rules = append(rules, ruleBody{pattern, readOnly})
	}
	return append(rules, ruleBody{string(refpolicy.Any), []refpolicy.Op{refpolicy.NoRead}})
}
