package ledger

import "fmt"

// Validate reports what is wrong with b before an engine tries it: ErrTooLarge
// or ErrInvalidBatch with the reason. Engines call it first.
func (b *Batch) Validate() error {
	if b.Space == "" {
		return fmt.Errorf("%w: no space", ErrInvalidBatch)
	}
	keys := len(b.Checks) + len(b.Deletes) + len(b.Sets) + len(b.Adds)
	if keys > MaxBatchKeys {
		return fmt.Errorf("%w: %d keys, at most %d", ErrTooLarge, keys, MaxBatchKeys)
	}
	size := len(b.Log)
	for i := range b.Checks {
		c := &b.Checks[i]
		if c.Kind < CheckEqual || c.Kind > CheckBefore {
			return fmt.Errorf("%w: check of unknown kind %d", ErrInvalidBatch, c.Kind)
		}
		if c.Kind != CheckBefore {
			if err := validKey(c.Key); err != nil {
				return err
			}
		}
		size += len(c.Key) + len(c.Value)
	}
	written := make(map[string]struct{}, len(b.Deletes)+len(b.Sets)+len(b.Adds))
	write := func(key string, n int) error {
		if err := validKey(key); err != nil {
			return err
		}
		if _, twice := written[key]; twice {
			return fmt.Errorf("%w: key %q written twice", ErrInvalidBatch, key)
		}
		written[key] = struct{}{}
		size += len(key) + n
		return nil
	}
	for _, k := range b.Deletes {
		if err := write(k, 0); err != nil {
			return err
		}
	}
	for _, s := range b.Sets {
		if err := write(s.Key, len(s.Value)); err != nil {
			return err
		}
	}
	for _, a := range b.Adds {
		if err := write(a.Key, 0); err != nil {
			return err
		}
	}
	if size > MaxBatchBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, MaxBatchBytes)
	}
	return nil
}

func validKey(k string) error {
	if k == "" || len(k) > MaxKeyBytes {
		return fmt.Errorf("%w: key of %d bytes, 1 to %d allowed", ErrInvalidBatch, len(k), MaxKeyBytes)
	}
	return nil
}
