package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Errors of asking.
var (
	// ErrBadURL: the server's address is not http://HOST or https://HOST.
	ErrBadURL = errors.New("the server's address is not of the form http://HOST:PORT or https://HOST:PORT")
	// ErrCut: the answer ended before its end. Nothing of it may be taken for whole.
	ErrCut = errors.New("the server's answer was cut")
	// ErrSilent: the server has told nothing for very long.
	ErrSilent = errors.New("the server is silent")
	// ErrUnknownKey: the server's operator key is another one.
	ErrUnknownKey = errors.New("the server does not know this operator key")
	// ErrBadAnswer: what came is not what a server sends.
	ErrBadAnswer = errors.New("the server's answer makes no sense")
)

var (
	errOutOfPlace = fmt.Errorf("%w: an event out of its place", ErrBadAnswer)
	errNotTaken   = errors.New("nobody reads on")
)

// A ServerError is a server's refusal, or its word that the work has failed.
type ServerError struct {
	Status int    // of the answer; 0: told after the work had begun
	Code   string // as in the API's error bodies
	Text   string
	Again  time.Duration   // when the server says that it may be tried again; 0: it says nothing
	Body   json.RawMessage // the facts that go with the code; nil: there is no JSON
}

func (e *ServerError) Error() string {
	return "the server says: " + e.Text
}
