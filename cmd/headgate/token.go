package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

// tokenSubject is the sub claim of tokens that this command signs.
const tokenSubject = "headgate"

// errBadRef: a --ref is not PATTERN=op,op with ops that there are.
var errBadRef = errors.New("want PATTERN=op,op with the ops no-push, no-force-push, verify-sig, no-read, or PATTERN= to allow")

// tokenCmd signs a token as an org's backend would.
type tokenCmd struct {
	Key   string        `required:"" placeholder:"FILE" type:"path" help:"The org's private key (PEM)."`
	Org   string        `required:"" placeholder:"ORG" help:"The org that the key belongs to."`
	Repo  string        `required:"" placeholder:"REPO" help:"The repo that the token is for; org for org-wide calls."`
	Scope []string      `required:"" placeholder:"SCOPE" help:"A right: git:read, git:write, repo:write or org:read. Can be repeated."`
	TTL   time.Duration `name:"ttl" default:"1h" help:"How long the token is good for."`
	Ref   []string      `sep:"none" placeholder:"PATTERN=OP,OP" help:"A rule: no-push, no-force-push, verify-sig, no-read; none to allow. Can be repeated; the first that matches a ref decides."`
}

// Run prints the token, alone on its line.
func (c *tokenCmd) Run(out io.Writer) error {
	raw, err := c.sign(time.Now())
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, raw)
	return err
}

func (c *tokenCmd) sign(now time.Time) (string, error) {
	claims := tokens.Claims{
		Org: c.Org, Subject: tokenSubject, Repo: c.Repo,
		IssuedAt: now, ExpiresAt: now.Add(c.TTL),
	}
	if c.Org == "" || c.Repo == "" || c.TTL <= 0 {
		return "", errors.New("org and repo must not be empty, and ttl must be positive")
	}
	for _, s := range c.Scope {
		scope, err := tokens.ParseScope(s)
		if err != nil {
			return "", err
		}
		claims.Scopes = append(claims.Scopes, scope)
	}
	for _, s := range c.Ref {
		rule, err := parseRule(s)
		if err != nil {
			return "", err
		}
		claims.Refs = append(claims.Refs, rule)
	}
	key, err := tokens.ReadPrivateKey(c.Key)
	if err != nil {
		return "", err
	}
	raw, err := tokens.Sign(key, claims)
	if err == nil && len(raw) > tokens.MaxTokenBytes {
		return "", fmt.Errorf("token of %d bytes is longer than servers take (%d)", len(raw), tokens.MaxTokenBytes)
	}
	return raw, err
}

// parseRule reads PATTERN=op,op; no ops is an explicit allow. A pattern may hold
// "=", an op never does.
func parseRule(s string) (refpolicy.Rule, error) {
	i := strings.LastIndexByte(s, '=')
	if i < 0 {
		return refpolicy.Rule{}, fmt.Errorf("ref %q: %w", s, errBadRef)
	}
	rule := refpolicy.Rule{Pattern: s[:i]}
	if _, err := refpolicy.ParsePattern(rule.Pattern); err != nil {
		return refpolicy.Rule{}, fmt.Errorf("ref %q: %w", s, err)
	}
	if i == len(s)-1 {
		return rule, nil
	}
	known := []refpolicy.Op{refpolicy.NoPush, refpolicy.NoForcePush, refpolicy.VerifySig, refpolicy.NoRead}
	for name := range strings.SplitSeq(s[i+1:], ",") {
		if !slices.Contains(known, refpolicy.Op(name)) {
			// A server would refuse every write to the ref for an op it does not know.
			return refpolicy.Rule{}, fmt.Errorf("ref %q: %q: %w", s, name, errBadRef)
		}
		rule.Ops = append(rule.Ops, refpolicy.Op(name))
	}
	return rule, nil
}
