//go:build !linux

package gitcmd

import "io"

// widen does nothing: only Linux lets the size of a pipe be chosen.
func widen(io.Reader) {}
