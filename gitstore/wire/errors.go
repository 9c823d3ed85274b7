package wire

import (
	"errors"
	"fmt"
	"strings"
)

// Errors of framing.
var (
	// ErrBadLength: the four digits before a pkt-line are no hex number, or one that no pkt-line may have.
	ErrBadLength = errors.New("bad pkt-line length")
	// ErrPacketTooLong: a payload to be written does not fit into one pkt-line.
	ErrPacketTooLong = errors.New("pkt-line payload too long")
	// ErrTooLarge: a message has more bytes or more entries than it may have. See LimitError.
	ErrTooLarge = errors.New("message too large")
)

// A LimitError names the bound that a message has crossed. It is ErrTooLarge.
type LimitError struct {
	What  string // plural noun: "bytes", "wants", "ref updates"
	Limit int64
}

func (e *LimitError) Error() string { return fmt.Sprintf("more than %d %s", e.Limit, e.What) }

// Is makes every LimitError match ErrTooLarge.
func (e *LimitError) Is(target error) bool { return target == ErrTooLarge }

// A ProtocolError is a message that does not follow the grammar. Its text may be sent to the client.
type ProtocolError struct{ Text string }

func (e *ProtocolError) Error() string { return e.Text }

// protocolErrorf quotes what came from outside with %q, so that it stays short and printable.
func protocolErrorf(format string, args ...any) error {
	return &ProtocolError{Text: fmt.Sprintf(format, args...)}
}

// An UnsupportedError is a well-formed request for something that is not
// offered, such as want-ref or a push certificate. Its text may be sent to the client.
type UnsupportedError struct{ Feature string }

func (e *UnsupportedError) Error() string { return e.Feature + " is not supported" }

// An UnknownCommandError is a protocol v2 request for a command that is neither ls-refs nor fetch.
type UnknownCommandError struct{ Command string }

func (e *UnknownCommandError) Error() string { return "invalid command " + quote(e.Command) }

// A DuplicateRefError names the refs that one push wants to change more than
// once. Git refuses these with "multiple updates for ref not allowed".
type DuplicateRefError struct{ Refs []string }

func (e *DuplicateRefError) Error() string {
	quoted := make([]string, len(e.Refs))
	for i, ref := range e.Refs {
		quoted[i] = quote(ref)
	}
	return clipText("multiple updates for ref not allowed: "+strings.Join(quoted, ", "), maxReason)
}

// A RemoteError is what the other side said in an ERR packet or on sideband 3.
type RemoteError struct{ Text string }

func (e *RemoteError) Error() string { return "remote: " + e.Text }

// ErrorText gives the text of err that a client may be told, and false if err
// is not about what the client sent.
func ErrorText(err error) (string, bool) {
	var (
		protocol    *ProtocolError
		unsupported *UnsupportedError
		unknown     *UnknownCommandError
		limit       *LimitError
		duplicate   *DuplicateRefError
	)
	switch {
	case errors.As(err, &protocol):
		return protocol.Error(), true
	case errors.As(err, &unsupported):
		return unsupported.Error(), true
	case errors.As(err, &unknown):
		return unknown.Error(), true
	case errors.As(err, &limit):
		return limit.Error(), true
	case errors.As(err, &duplicate):
		return duplicate.Error(), true
	case errors.Is(err, ErrBadLength):
		return ErrBadLength.Error(), true
	}
	return "", false
}

// quote shows at most 80 bytes of what a client sent, all of it printable.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q...", s[:most])
	}
	return fmt.Sprintf("%q", s)
}
