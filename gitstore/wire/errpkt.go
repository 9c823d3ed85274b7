package wire

import (
	"io"
	"strings"
)

// maxReason bounds in bytes every text that is put into one line for a client.
const maxReason = 1000

// WriteError writes an ERR packet, with which a server ends a conversation
// before any other answer has begun. The text is made one clean line.
//
//	error-line = "ERR" SP explanation-text
func WriteError(w io.Writer, text string) error {
	return NewWriter(w).WriteString("ERR " + clipText(cleanText(text, false), maxReason))
}

// ParseError gives a *RemoteError if payload is that of an ERR packet, and nil if not.
func ParseError(payload []byte) error {
	text, ok := strings.CutPrefix(string(payload), "ERR ")
	if !ok {
		return nil
	}
	return &RemoteError{Text: strings.TrimSuffix(text, "\n")}
}
