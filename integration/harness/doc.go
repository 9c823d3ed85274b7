// Package harness builds the program, runs it as a process of its own, and speaks
// to it: an org's keys, an HTTP client, real git with a clean home, a test CA. It
// is for tests and benchmark programs; what goes wrong comes back as an error.
package harness
