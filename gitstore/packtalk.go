package gitstore

import (
	"bytes"
	"sync"
)

// talkMost is how many bytes of what git says wait for a client.
const talkMost = 16 << 10

// A talkBuffer keeps what git says of its progress until a client can have it. What
// git complains of is not for clients: it may hold paths of the server.
type talkBuffer struct {
	more chan struct{} // has an element when there may be something to take

	mu   sync.Mutex // guards what follows
	said []byte     // lines for the client
	line []byte     // begun and not ended
}

// Write takes what git says. It never fails and never waits.
func (t *talkBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for rest := p; len(rest) > 0; {
		n := bytes.IndexAny(rest, "\r\n") + 1
		if n == 0 {
			t.line = append(t.line, rest[:min(len(rest), talkMost-len(t.line))]...)
			break
		}
		t.line = append(t.line, rest[:n]...)
		if len(t.said)+len(t.line) <= talkMost && !isComplaint(t.line) {
			t.said = append(t.said, t.line...)
		}
		t.line, rest = t.line[:0], rest[n:]
	}
	select {
	case t.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func isComplaint(line []byte) bool {
	for _, word := range []string{"error:", "fatal:", "warning:", "hint:", "BUG:"} {
		if bytes.HasPrefix(line, []byte(word)) {
			return true
		}
	}
	return false
}

// take gives all whole lines that were said since the last call.
func (t *talkBuffer) take() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	said := t.said
	t.said = nil
	return said
}
