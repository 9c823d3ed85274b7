package pebbledb

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/headgate/headgate/gitstore/ledger"
)

// manyKeys is from where keys that are read together are bulk work: they are looked
// for with one iterator, which goes on from where it is, and are not remembered.
const manyKeys = 32

// A finder finds keys of one space among everything applied when it was made. It is
// cheapest if they are asked for in order. Close it.
type finder struct {
	base, end []byte
	it        *pebble.Iterator
	key       []byte
	narrow    bool // the iterator's bounds are those of one prefix
}

func newFinder(r pebble.Reader, base []byte) (*finder, error) {
	end := after(base)
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: base, UpperBound: end})
	if err != nil {
		return nil, fmt.Errorf("%w: read keys: %w", ledger.ErrUnavailable, err)
	}
	return &finder{base: base, end: end, it: it}, nil
}

// value is what stands under key; nil for nothing.
func (f *finder) value(key string) ([]byte, error) {
	f.key = appendKey(f.key[:0], f.base, key)
	if f.narrow {
		f.it.SetBounds(f.base, f.end)
		f.narrow = false
	}
	if !f.it.SeekPrefixGE(f.key) { // a whole key is its own prefix: the tables' filters are asked first
		return nil, f.err()
	}
	return append([]byte{}, f.it.Value()...), f.err()
}

// below is the first key that begins with prefix, with its value; "" for none.
func (f *finder) below(prefix string) (key string, value []byte, err error) {
	f.key = appendKey(f.key[:0], f.base, prefix)
	f.it.SetBounds(f.key, after(f.key))
	f.narrow = true
	if !f.it.First() {
		return "", nil, f.err()
	}
	key = string(f.it.Key()[len(f.key)-len(prefix):])
	return key, append([]byte{}, f.it.Value()...), f.err()
}

func (f *finder) err() error {
	if err := f.it.Error(); err != nil {
		return fmt.Errorf("%w: read keys: %w", ledger.ErrUnavailable, err)
	}
	return nil
}

func (f *finder) close() error {
	if err := f.it.Close(); err != nil {
		return fmt.Errorf("%w: read keys: %w", ledger.ErrUnavailable, err)
	}
	return nil
}
