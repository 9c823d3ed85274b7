package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// indexedPack is an adopted pack: what the client sent stands first in it, then
// what git appended to complete a thin pack.
type indexedPack struct {
	info     packs.Info
	sent     []placed
	appended []refpolicy.OID
	backward bool  // a delta stands before its base, both of the client
	deep     error // ErrBadObject: deltas are over the limit on depth
}

// placed is an entry of a pack.
type placed struct {
	oid refpolicy.OID
	at  int64
}

// adoptIndexed takes over the pack that index-pack made in the folder. Until it is
// registered nobody knows it.
func (r *Repo) adoptIndexed(ctx context.Context, folder, name string, scan *packScan) (indexedPack, error) {
	base := filepath.Join(folder, "pack", name)
	file, err := os.Open(base + ".pack")
	if err != nil {
		return indexedPack{}, err
	}
	defer file.Close()
	info, err := r.dir.Adopt(ctx, base+".pack", base+".idx")
	if errors.Is(err, packs.ErrPackBroken) {
		// git takes an object twice in one pack; our readers, like those of fsck, do not.
		return indexedPack{}, &unpackError{packFault("an object comes twice").Error()}
	}
	if err != nil {
		return indexedPack{}, err
	}
	got, err := r.indexed(info, scan.count)
	if err == nil && len(got.appended) > 0 {
		got.backward, err = hasBackward(file, got.sent)
	}
	if err == nil && scan.mayBeDeep() {
		got.deep, err = checkDepth(file, got.sent, scan.limits.DeltaDepth)
	}
	if err != nil {
		r.removeIncoming(info.Name)
	}
	return got, err
}

// indexed parts the entries of a pack in the order of its file; those of the client
// are the first count.
func (r *Repo) indexed(info packs.Info, count int) (indexedPack, error) {
	p, err := r.dir.Pack(info.Name)
	if err != nil {
		return indexedPack{}, err
	}
	defer p.Release()
	all := make([]placed, 0, p.Count())
	p.ForEach(func(oid refpolicy.OID, at int64) bool {
		all = append(all, placed{oid, at})
		return true
	})
	slices.SortFunc(all, func(a, b placed) int { return int(a.at - b.at) })
	count = min(count, len(all))
	got := indexedPack{info: info, sent: all[:count]}
	for _, e := range all[count:] {
		got.appended = append(got.appended, e.oid)
	}
	return got, nil
}

// hasBackward looks for a delta by id whose base, by the same client, comes later in
// the pack. No git writes such a pack. Whether index-pack can complete a thin one
// depends on whether that base exists in the store, which must not show.
func hasBackward(file io.ReaderAt, sent []placed) (bool, error) {
	places := make(map[refpolicy.OID]int64, len(sent))
	for _, e := range sent {
		places[e.oid] = e.at
	}
	for _, e := range sent {
		base, isDelta, err := baseOf(file, e, places)
		if err != nil {
			return false, err
		}
		if isDelta && base > e.at {
			return true, nil
		}
	}
	return false, nil
}

// baseOf is where the base of an entry stands; isDelta is false for one that has none
// or whose base is not among the places.
func baseOf(file io.ReaderAt, e placed, places map[refpolicy.OID]int64) (base int64, isDelta bool, err error) {
	var head [10 + 20]byte
	n, err := file.ReadAt(head[:], e.at)
	if err != nil && err != io.EOF {
		return 0, false, fmt.Errorf("read pushed pack: %w", err)
	}
	p := &packParser{data: head[:n]}
	typ, _, err := readEntryHead(p)
	if err == nil && typ == ofsDelta {
		base, err = readBaseOffset(p, e.at)
	}
	if err != nil {
		return 0, false, fmt.Errorf("read pushed pack: %w", err)
	}
	if typ != refDelta {
		return base, typ == ofsDelta, nil
	}
	var oid refpolicy.OID
	copy(oid[:], head[p.pos:n])
	base, isDelta = places[oid]
	return base, isDelta, nil
}

// checkDepth is ErrBadObject if more than limit deltas stand on each other.
func checkDepth(file io.ReaderAt, sent []placed, limit int) (deep, err error) {
	places := make(map[refpolicy.OID]int64, len(sent))
	for _, e := range sent {
		places[e.oid] = e.at
	}
	bases := make(map[int64]int64, len(sent)) // of deltas, by where they stand
	for _, e := range sent {
		base, isDelta, err := baseOf(file, e, places)
		if err != nil {
			return nil, err
		}
		if isDelta {
			bases[e.at] = base
		}
	}
	depths := make(map[int64]int, len(bases))
	var chain []int64
	for at := range bases {
		depth := 0
		for chain = chain[:0]; depth == 0; at = bases[at] {
			if _, isDelta := bases[at]; !isDelta {
				break
			}
			if depth = depths[at]; depth == 0 {
				chain = append(chain, at)
			}
		}
		if depth+len(chain) > limit {
			return tooDeep(limit), nil
		}
		for i := range chain {
			depth++
			depths[chain[len(chain)-1-i]] = depth
		}
	}
	return nil, nil
}

// removeIncoming removes a pack that was adopted and is not to be registered.
func (r *Repo) removeIncoming(name string) {
	if err := r.dir.Remove(name); err != nil {
		r.store.log.Warn("remove refused pack", "pack", name, "err", err)
	}
}
