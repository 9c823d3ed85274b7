// Package integration holds the tests over the whole: it builds the program,
// starts it on a free port with an org's key, and drives it with an HTTP client,
// the real git, a real Redis and the npm package that customers use.
//
// A server is one running process, a remote is a git URL with a token in it, a
// clone is a working copy with a home of its own. Names of tests carry the ids of
// what they show: acceptance, behaviour (PI-12), case (7.3).
//
// layers_test.go holds the rooms and what each may import. setup.sh installs what
// the tests need; test.sh runs everything as CI does.
package integration
