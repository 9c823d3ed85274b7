package ledger

import "context"

// Known is what stood under some keys of one space at one moment, nil for an absent
// key. It may be behind by the time it is used, as Peek's may be ahead: it is for
// preparing a batch that checks it, and nothing read from it may be told.
type Known map[string][]byte

// Values gives the values of keys in their order if all are known. They are shared.
func (k Known) Values(keys ...string) (values [][]byte, ok bool) {
	if len(k) == 0 {
		return nil, false
	}
	values = make([][]byte, len(keys))
	for i, key := range keys {
		if values[i], ok = k[key]; !ok {
			return nil, false
		}
	}
	return values, true
}

// Before is a way to read that asks read only for keys of which not all are known, and
// then for all, so that what it gives is of one moment.
func (k Known) Before(read func(context.Context, Space, ...string) ([][]byte, error)) func(context.Context, Space, ...string) ([][]byte, error) {
	return func(ctx context.Context, s Space, keys ...string) ([][]byte, error) {
		if values, ok := k.Values(keys...); ok {
			return values, nil
		}
		return read(ctx, s, keys...)
	}
}
