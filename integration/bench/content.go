package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
)

// noise are bytes that nothing compresses.
func noise(seed uint64, n int) []byte {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	b := make([]byte, n)
	rand.NewChaCha8(key).Read(b)
	return b
}

// states is text like that which agents keep: lines of JSON with words that come
// again and numbers that do not. zlib makes about a fifth of it.
func states(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 17))
	var b bytes.Buffer
	b.Grow(n + 256)
	for step := 0; b.Len() < n; step++ {
		fmt.Fprintf(&b, `{"step":%d,"tool":"%s","path":"src/%s/%s.go","tokens":%d,"digest":"%016x","ok":true}`+"\n",
			step, word(r), word(r), word(r), r.IntN(9000), r.Uint64())
	}
	b.Truncate(n)
	return b.Bytes()
}

var words = []string{
	"read", "write", "search", "plan", "session", "branch", "commit", "ledger", "token", "policy", "stream",
	"buffer", "object", "parent", "handler", "request", "answer", "window", "limit", "cursor", "index", "writer",
}

func word(r *rand.Rand) string { return words[r.IntN(len(words))] }
