// Package refpolicy holds the words and decisions about refs: object ids, ref
// names, patterns, and what a token's rules say of a change or a read. It is
// pure: no I/O, no clock, nothing of ours below it.
package refpolicy
