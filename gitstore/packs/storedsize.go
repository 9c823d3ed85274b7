package packs

import "github.com/headgate/headgate/refpolicy"

// StoredSize is how many bytes of the pack an object's entry takes. Errors:
// ErrNotFound, a *BrokenError.
func (p *Pack) StoredSize(id refpolicy.OID) (int64, error) {
	off, ok := p.Find(id)
	if !ok {
		return 0, ErrNotFound
	}
	end, err := p.entryEnd(off)
	if err != nil {
		return 0, p.broken(err)
	}
	return end - off, nil
}
