package ledger

import (
	"fmt"
	"slices"
)

// Validate reports what is wrong with b before an engine tries it: ErrTooLarge
// or ErrInvalidBatch with the reason. Engines call it first.
func (b *Batch) Validate() error {
	if err := b.Space.Validate(); err != nil {
		return err
	}
	if len(b.ID) > MaxKeyBytes {
		return fmt.Errorf("%w: id of %d bytes, at most %d", ErrInvalidBatch, len(b.ID), MaxKeyBytes)
	}
	keys := len(b.Checks) + len(b.Deletes) + len(b.Sets) + len(b.Adds)
	if keys > MaxBatchKeys {
		return fmt.Errorf("%w: %d keys, at most %d", ErrTooLarge, keys, MaxBatchKeys)
	}
	size, err := b.size()
	if err != nil {
		return err
	}
	if size > MaxBatchBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, MaxBatchBytes)
	}
	return b.validKeys()
}

// Validate reports whether s can name a space: 1 to MaxSpaceBytes bytes.
func (s Space) Validate() error {
	if s == "" || len(s) > MaxSpaceBytes {
		return fmt.Errorf("%w: space of %d bytes, 1 to %d allowed", ErrInvalidBatch, len(s), MaxSpaceBytes)
	}
	return nil
}

// size adds up b's bytes and looks at the kinds of its checks on the way.
func (b *Batch) size() (int, error) {
	size := len(b.Log)
	for i := range b.Checks {
		c := &b.Checks[i]
		if c.Kind < CheckEqual || c.Kind > CheckBefore {
			return 0, fmt.Errorf("%w: check of unknown kind %d", ErrInvalidBatch, c.Kind)
		}
		if c.Kind != CheckBefore {
			if err := validKey(c.Key); err != nil {
				return 0, err
			}
		}
		size += len(c.Key) + len(c.Value)
	}
	for _, k := range b.Deletes {
		size += len(k)
	}
	for i := range b.Sets {
		size += len(b.Sets[i].Key) + len(b.Sets[i].Value)
	}
	for i := range b.Adds {
		size += len(b.Adds[i].Key)
	}
	return size, nil
}

// validKeys wants every written key in its limits and written once, and counters
// under AtMost changed by Adds alone.
func (b *Batch) validKeys() error {
	n := len(b.Deletes) + len(b.Sets) + len(b.Adds)
	written := make([]string, 0, n)
	written = append(written, b.Deletes...)
	for i := range b.Sets {
		written = append(written, b.Sets[i].Key)
	}
	for i := range b.Checks {
		if c := &b.Checks[i]; c.Kind == CheckAtMost && slices.Contains(written, c.Key) {
			return fmt.Errorf("%w: AtMost on key %q, which the batch sets or deletes", ErrInvalidBatch, c.Key)
		}
	}
	for i := range b.Adds {
		written = append(written, b.Adds[i].Key)
	}
	for _, k := range written {
		if err := validKey(k); err != nil {
			return err
		}
	}
	slices.Sort(written)
	for i := 1; i < n; i++ {
		if written[i] == written[i-1] {
			return fmt.Errorf("%w: key %q written twice", ErrInvalidBatch, written[i])
		}
	}
	return nil
}

func validKey(k string) error {
	if k == "" || len(k) > MaxKeyBytes {
		return fmt.Errorf("%w: key of %d bytes, 1 to %d allowed", ErrInvalidBatch, len(k), MaxKeyBytes)
	}
	return nil
}
