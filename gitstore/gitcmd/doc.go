// Package gitcmd runs the installed git as a sealed process.
//
// A Runner starts git with an environment built from nothing: no variable of
// the server's own environment, no system or user configuration, no hook, no
// credential helper and no transport can reach it. A Cmd says what to run; a
// Process is one that is running. Every process leads a process group of its
// own, and the whole group dies with its context, its time limit or its Wait.
//
// Slots for processes are shared out fairly; see ShareOf.
//
// Sealing holds against whoever controls the environment or the objects. It does
// not make arguments safe: a caller never lets an argument begin with what a
// client sent, and puts client text behind "--" or "--end-of-options".
package gitcmd
