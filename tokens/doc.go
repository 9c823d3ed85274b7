// Package tokens says who asks. A token is a JWT signed by a customer, or issued: by
// this server for a session. A key is a public key registered for an org; a Keyring
// holds the keys of all orgs; ServerKeys are the server's own. A Verifier turns a
// token into a Principal: the org, the repo, the scopes and the ref policy that the
// token gives. A scope is one right of a token; a policy only takes away. An Issuer
// turns a Grant into a token. A Denial is an org's word that some of its tokens are
// good no more; a DenyList keeps them.
//
// Two kinds of refusal leave this package. What wraps ErrUnauthorized says that
// nobody knows who asks (401). ErrNoRepoClaim, ErrMoreAsked and *ScopeError say that
// the asker is known and may not (403). No error and no method gives back any of a token's
// text; ShortHash is what a log may hold.
package tokens
