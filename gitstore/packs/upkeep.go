package packs

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// Position is an object's place in the order of ids, from 0 to Count()-1: what is
// noted of each object of a pack takes no more than an array.
func (p *Pack) Position(id refpolicy.OID) (i int, ok bool) { return p.idx.find(id) }

// OID gives the id of the object at a position.
func (p *Pack) OID(i int) refpolicy.OID { return p.idx.oid(i) }

// ByOffset gives the ids of all objects in the order of the file, which is the
// fastest to read them all in.
func (p *Pack) ByOffset() []refpolicy.OID {
	type entry struct {
		off int64
		i   int
	}
	entries := make([]entry, p.idx.n)
	for i := range entries {
		off, _ := p.idx.offset(i) // checked when the idx was read
		entries[i] = entry{off, i}
	}
	slices.SortFunc(entries, func(a, b entry) int { return int(a.off - b.off) })
	ids := make([]refpolicy.OID, len(entries))
	for n, e := range entries {
		ids[n] = p.idx.oid(e.i)
	}
	return ids
}

// LargeBlobs gives the blobs whose entry in the file takes at least so many bytes:
// content that deflate has made little of, for which no delta was found.
func (p *Pack) LargeBlobs(least int64) ([]refpolicy.OID, error) {
	if p.size < least {
		return nil, nil
	}
	var large []refpolicy.OID
	ids := p.ByOffset()
	for n, id := range ids {
		end := p.size - packTrailLen
		i, _ := p.idx.find(id)
		off, _ := p.idx.offset(i) // checked when the idx was read
		if n+1 < len(ids) {
			next, _ := p.idx.find(ids[n+1])
			end, _ = p.idx.offset(next)
		}
		if end-off < least {
			continue
		}
		t, _, err := p.Header(id)
		if err != nil {
			return nil, err
		}
		if t == Blob {
			large = append(large, id)
		}
	}
	return large, nil
}

// Untouched reports whether all files of a pack are older than grace. It is for a
// janitor that has found files nobody knows; a pack without files is untouched.
func (d *Dir) Untouched(name string, grace time.Duration) (bool, error) {
	if err := CheckName(name); err != nil {
		return false, err
	}
	limit := time.Now().Add(-grace)
	for _, ext := range []string{".pack", ".idx"} {
		info, err := d.fs.Stat(d.path(name, ext))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return false, fmt.Errorf("look at pack %s: %w", name, err)
		case info.ModTime().After(limit):
			return false, nil
		}
	}
	return true, nil
}
