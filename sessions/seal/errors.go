package seal

import "errors"

var (
	// ErrBadKey: not an X25519 key in PEM (SubjectPublicKeyInfo or PKCS#8).
	ErrBadKey = errors.New("not an X25519 key in PEM")
	// ErrBadEnvelope: an envelope that this version does not know, or that is malformed.
	ErrBadEnvelope = errors.New("malformed envelope")
	// ErrWrongKey: the key does not open it, or it was tampered with.
	ErrWrongKey = errors.New("the key does not open the envelope")
	// ErrUnknownKey: the server has no sealing key of that id.
	ErrUnknownKey = errors.New("no such sealing key")
	// ErrTampered: a sealed chunk, or the whole, is not what was sealed.
	ErrTampered = errors.New("sealed bytes were changed")
)
