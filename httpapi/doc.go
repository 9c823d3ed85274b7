// Package httpapi speaks HTTP for headgate: the API under /api on both route sets
// and in both vocabularies, git's smart HTTP, and health. A handler reads, checks,
// makes one call down and writes; what a client is told about an error is decided
// by problemOf alone. An exchange is one request with its answer; a request is an
// exchange that was let in: it has a principal and, for most routes, an open repo.
package httpapi
