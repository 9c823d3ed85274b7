// Package seal is the customer's side of a sealed save: what is saved is encrypted
// before it leaves the runner, and headgate stores bytes that it cannot read.
//
// Words. The capture key is the customer's key pair; a runner needs the public half
// alone. The server key is headgate's key pair for sealing. The data key is 32 random
// bytes of one session, by which chunks are encrypted. The envelope is what is stored
// beside the chunks: the data key, wrapped twice.
//
// # Chunks
//
// The same content under the same data key is the same sealed chunk, so that what
// has not changed is stored once within a session, and nowhere else. A sealed chunk:
//
//	chunk   = nonce ciphertext            ; AES-256-GCM, tag at its end
//	nonce   = first 12 bytes of HMAC-SHA-256(nonce key, plain)
//	plain   = form content                ; form 0: as it is, 1: one zstd frame of it
//
// Encryption, nonce and authentication keys are drawn from the data key by HKDF-SHA-256.
// A nonce comes of all that is encrypted under it, so two different plaintexts share one only if the HMAC does.
// Who sees the chunks learns which are equal, which are zeros, and how well each shrinks.
//
// # Envelopes
//
//	wrapped = HPKE(server key, HPKE(capture key, data key))
//
// in RFC 9180's base mode with DHKEM(X25519, HKDF-SHA-256), HKDF-SHA-256 and
// AES-256-GCM. The server takes off the outer layer for who may read the snapshot, the
// customer the inner one: neither can alone. The envelope's mac binds it to the hash
// of what was saved, so that a storage which swaps chunks or manifests is noticed.
package seal
