package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The keys of answers that are kept for repeated calls, in the space that the call changes.
const (
	onceKeys    = "once/"     // once/<key> -> the answer
	onceDueKeys = "once-due/" // once-due/<when, 8 bytes><key>: when it may be forgotten
)

// OnceMemory is how long an answer is kept for a repeated call.
const OnceMemory = 24 * time.Hour

// A Once makes a call that changes a space repeatable: its answer is stored in the
// batch of the change itself, and a call whose key is known changes nothing but
// fails with a *RepeatedError. That wins over everything else the call could fail with.
type Once[T any] struct {
	// Key names the call; at most 256 bytes. Who may repeat whose call is up to
	// whoever makes it.
	Key string
	// Answer makes what is stored, of the call's result as it will be. It is asked
	// before the batch is applied, again whenever the batch is made anew.
	Answer func(result T) ([]byte, error)
}

// A RepeatedError says that a call with this key was made before.
type RepeatedError struct {
	Stored []byte // what its Answer gave
}

func (e *RepeatedError) Error() string { return "repeated call: its answer is stored" }

// StoreKey is where the answer is kept; empty for a nil Once.
func (o *Once[T]) StoreKey() string {
	if o == nil {
		return ""
	}
	return onceKeys + o.Key
}

// Rider is what stores the answer, and fails when the key is known by then: read
// StoreKey again. A nil Once demands and stores nothing.
func (o *Once[T]) Rider(result T, now time.Time) (Rider, error) {
	if o == nil {
		return Rider{}, nil
	}
	answer, err := o.Answer(result)
	if err != nil {
		return Rider{}, fmt.Errorf("make answer to keep: %w", err)
	}
	due := onceDueKey(now.Add(OnceMemory), o.Key)
	return Rider{
		Checks: []Check{Absent(o.StoreKey())},
		Sets:   []Set{{Key: o.StoreKey(), Value: answer}, {Key: due}},
	}, nil
}

// Repeated is the *RepeatedError for what was read under StoreKey, nil for nothing.
func Repeated(stored []byte) error {
	if stored == nil {
		return nil
	}
	return &RepeatedError{Stored: stored}
}

// IsRepeated gives the stored answer that err tells of.
func IsRepeated(err error) (stored []byte, ok bool) {
	var repeated *RepeatedError
	if !errors.As(err, &repeated) {
		return nil, false
	}
	return repeated.Stored, true
}

func onceDueKey(at time.Time, key string) string {
	return onceDueKeys + string(binary.BigEndian.AppendUint64(nil, uint64(at.UnixMicro()))) + key
}

// OnceDue are the bounds between which a view's Range finds the answers that may be
// forgotten by now; ForgetOnce makes the batch that forgets them.
func OnceDue(now time.Time) (from, to string) {
	return onceDueKeys, onceDueKey(now, "")
}

// ForgetOnce is what forgets the answers that items, found between the bounds of
// OnceDue, stand for.
func ForgetOnce(items []Item) Rider {
	var r Rider
	for _, it := range items {
		due, ok := strings.CutPrefix(it.Key, onceDueKeys)
		if !ok || len(due) < 8 {
			continue
		}
		r.Deletes = append(r.Deletes, it.Key, onceKeys+due[8:])
	}
	return r
}
