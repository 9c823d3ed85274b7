package sigcheck

import "errors"

// What VerifyCommit answers for a commit that does not pass; the text says more.
var (
	// ErrUnsigned: the commit carries no signature.
	ErrUnsigned = errors.New("commit is not signed")
	// ErrUntrusted: the signature is by a key that is not registered, or that is
	// revoked, expired, or registered for another time or purpose.
	ErrUntrusted = errors.New("commit is signed by an untrusted key")
	// ErrBadSignature: the signature is malformed, too weak, or not of this content.
	ErrBadSignature = errors.New("commit has a bad signature")
)

// ErrBadKey: a key or a line of allowed_signers cannot be registered.
var ErrBadKey = errors.New("bad signing key")
