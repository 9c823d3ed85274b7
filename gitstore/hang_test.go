package gitstore

import (
	"testing"
	"time"
)

// hangs fails a fuzz target that works on one input for longer than any may take.
// Call what it gives at the end.
func hangs(t *testing.T) (done func()) {
	t.Helper()
	const most = 2 * time.Second
	begun := time.Now()
	timer := time.AfterFunc(10*most, func() { panic("a fuzz target hangs") })
	return func() {
		timer.Stop()
		if took := time.Since(begun); took > most {
			t.Errorf("one input took %s, want less than %s", took, most)
		}
	}
}
