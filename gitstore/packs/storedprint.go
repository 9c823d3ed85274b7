package packs

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"sync"
)

// An entryPrint tells whether an entry that was read back is what was written: AES-GCM's
// authenticator over its bytes, under a key that this process made and shows to nobody.
// It is a universal hash: for an entry that differs in any way, chosen or by accident,
// without knowing the key, the odds of the same print are below 2^-100. It is made where
// the object's id is, from the same bytes, and takes a small part of the time of SHA-1.
// It never leaves the process.
type entryPrint [16]byte

var entryPrinter = sync.OnceValue(func() cipher.AEAD {
	var key [16]byte
	_, _ = rand.Read(key[:]) // never fails: crypto/rand ends the program instead
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic("packs: cipher: " + err.Error()) // the key's length is a constant
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic("packs: cipher: " + err.Error())
	}
	return aead
})

func printOf(raw []byte) (p entryPrint) {
	var nonce [12]byte // one for all: no print is ever shown
	entryPrinter().Seal(p[:0], nonce[:], nil, raw)
	return p
}
