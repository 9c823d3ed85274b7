package packs

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/headgate/headgate/refpolicy"
)

// Append appends an object's content to buf as it stands in the file now, its entry
// held to the idx's checksum: for who hashes it himself, a stored entry costs one read
// and no more. Errors: ErrNotFound, a *TooLargeError if it has over most bytes, a
// *BrokenError.
func (p *Pack) Append(id refpolicy.OID, most int64, buf []byte) (Type, []byte, error) {
	i, ok := p.idx.find(id)
	if !ok {
		return 0, buf, ErrNotFound
	}
	off, _ := p.idx.offset(i)
	end, err := p.entryEnd(off)
	if err != nil {
		return 0, buf, p.broken(err)
	}
	// A stored entry is longer than its object, by little.
	if over := most/1024 + maxHead + 64; end-off <= most+over {
		typ, got, err := appendEntry(p.f, off, end, p.idx.crc(i), buf)
		switch {
		case err == nil && int64(len(got)-len(buf)) > most:
			return 0, buf, &TooLargeError{OID: id, Size: int64(len(got) - len(buf))}
		case err == nil:
			return typ, got, nil
		case !errors.Is(err, errNotStored):
			return 0, buf, p.broken(err)
		}
	}
	typ, data, err := p.Object(id, most)
	return typ, append(buf, data...), err
}

// wholeLimit is up to which size an object is checked in memory.
const wholeLimit = 1 << 20

// Check reads the pack and holds every object to its id. Errors: a *BrokenError, a
// *TooLargeError for a delta that cannot be decoded in memory.
func (p *Pack) Check(ctx context.Context) error {
	var buf []byte
	for _, id := range p.ByOffset() {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		typ, got, err := p.Append(id, wholeLimit, buf[:0])
		if errors.Is(err, ErrTooLarge) {
			err = p.checkLarge(id)
		} else if err == nil {
			if buf = got; objectID(typ, got) != id {
				err = p.broken(fmt.Errorf("object %s: %w", id, errObject))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *Pack) checkLarge(id refpolicy.OID) error {
	_, _, r, err := p.Open(id)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, r)
	return errors.Join(err, r.Close())
}
