package ledger

import (
	"fmt"
	"time"
)

// CheckKind says what a Check demands.
type CheckKind uint8

// The kinds of check. The zero value is no check and makes a batch invalid.
const (
	CheckEqual        CheckKind = iota + 1 // Key holds exactly Value
	CheckAbsent                            // Key does not exist
	CheckAbsentPrefix                      // no key begins with Key
	CheckAtMost                            // the integer under Key is <= Max after the batch's Adds
	CheckBefore                            // the ledger's clock is before Time
)

// A Check is one condition of a Batch. Make it with Equal, Absent, AbsentPrefix,
// AtMost or Before.
type Check struct {
	Kind  CheckKind
	Key   string
	Value []byte
	Max   int64
	Time  time.Time
}

// Equal holds while key has exactly value.
func Equal(key string, value []byte) Check {
	return Check{Kind: CheckEqual, Key: key, Value: value}
}

// Absent holds while key does not exist.
func Absent(key string) Check { return Check{Kind: CheckAbsent, Key: key} }

// AbsentPrefix holds while no key begins with prefix. It sees keys that appear
// between preparing a batch and applying it (phantoms), since it is evaluated inside the step.
func AbsentPrefix(prefix string) Check { return Check{Kind: CheckAbsentPrefix, Key: prefix} }

// AtMost holds if the counter under key is at most limit once the batch's Adds are done.
func AtMost(key string, limit int64) Check {
	return Check{Kind: CheckAtMost, Key: key, Max: limit}
}

// Before holds while the ledger's clock is before t.
func Before(t time.Time) Check { return Check{Kind: CheckBefore, Time: t} }

// A CheckError says that a batch was refused because a check did not hold.
type CheckError struct {
	Check Check
	// Key is the key that stands in the way: Check.Key, or for AbsentPrefix the
	// first key found below it; empty for Before.
	Key string
	// Present is what stands under Key, nil if nothing does. For AtMost it is the
	// decimal value the counter would have had; for Before the clock (RFC 3339).
	Present []byte
}

func (e *CheckError) Error() string {
	switch e.Check.Kind {
	case CheckEqual:
		if e.Present == nil {
			return fmt.Sprintf("check equal %q: key is absent", e.Key)
		}
		return fmt.Sprintf("check equal %q: another value stands there", e.Key)
	case CheckAbsent:
		return fmt.Sprintf("check absent %q: key exists", e.Key)
	case CheckAbsentPrefix:
		return fmt.Sprintf("check absent prefix %q: %q exists", e.Check.Key, e.Key)
	case CheckAtMost:
		return fmt.Sprintf("check at most %d in %q: would be %s", e.Check.Max, e.Key, e.Present)
	case CheckBefore:
		return fmt.Sprintf("check before %s: it is %s", e.Check.Time.Format(time.RFC3339), e.Present)
	}
	return "check of unknown kind"
}
