// Package sigcheck verifies the signatures of commits against an org's registered
// signing keys: OpenPGP public keys and lines of ssh's allowed_signers. It takes
// the raw content of a commit object, so nothing of ours stands below it.
//
// What git verify-commit accepts with the same keys is accepted, but for what is
// weak or ambiguous: SHA-1 and MD5 digests, DSA, RSA keys under 2048 bits, more
// than one signature in a commit, text after a signature, certificates, and
// security keys used without touch.
package sigcheck
