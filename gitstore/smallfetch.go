package gitstore

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/gitstore/wire"
	"github.com/headgate/headgate/refpolicy"
)

// A fetch of the few commits that a client has not seen yet is answered without a
// git process: what they changed is walked in step with their parents' trees, and the
// stored entries are sent as they are, without looking for deltas. Above these
// limits git's deltas are worth their time.
const (
	smallFetchCommits = 1000
	smallFetchObjects = 5000
	smallFetchBytes   = 1 << 20 // of entries
	smallFetchWork    = 300_000 // entries of trees looked at
)

// isSmall reports whether a v2 request is of a form that fetchSmall can answer.
func isSmall(q *wire.FetchRequest) bool {
	return len(q.Wants) > 0 && len(q.Haves) > 0 && len(q.Haves) <= sharedHaves && q.Filter == "" &&
		len(q.Shallow) == 0 && !q.Deepens() && (q.Done || !q.WaitForDone)
}

// fetchSmall answers a request for little that is new, and reports whether it has:
// otherwise nothing was written and git has to answer. packedRefs are the annotated
// tags that the client wants with the commits they name.
func (r *Repo) fetchSmall(ctx context.Context, c Caller, q GitRequest, f fetch, packedRefs []byte) (bool, error) {
	begin := time.Now()
	common, pack, err := r.smallPack(ctx, c, f, packedRefs)
	if errors.Is(err, ErrObjectNotFound) {
		return false, nil // below a dead commit that the client still has something may be gone
	}
	if err != nil || pack == nil {
		return false, err
	}
	if q.Freed != nil {
		q.Freed()
	}
	var acks []refpolicy.OID
	if f.acks {
		acks = common
	}
	err = sendSmall(q, acks, pack)
	r.store.observe("small fetch", time.Since(begin))
	return true, err
}

// smallPack makes the pack of a small fetch, and tells which of the haves it builds
// on; the pack is nil if git has to make it.
func (r *Repo) smallPack(ctx context.Context, c Caller, f fetch, packedRefs []byte) (common []refpolicy.OID, pack []byte, err error) {
	if common, err = r.commonHaves(ctx, c, f.haves); err != nil || len(common) == 0 {
		return nil, nil, err
	}
	s := &smallPack{r: r, g: graph{r, noFresh}, seen: map[refpolicy.OID]bool{}}
	fits, err := s.collect(ctx, f.wants, common, packedRefs)
	if err != nil || !fits {
		return nil, nil, err
	}
	pack, err = s.pack(ctx)
	return common, pack, err
}

// commonHaves are the commits of haves that the repo has and the caller may read.
func (r *Repo) commonHaves(ctx context.Context, c Caller, haves []refpolicy.OID) ([]refpolicy.OID, error) {
	readable, err := r.readableAmong(ctx, c, haves)
	if err != nil {
		return nil, fmt.Errorf("check haves: %w", err)
	}
	var common []refpolicy.OID
	for _, oid := range haves {
		if !readable[oid] {
			continue
		}
		typ, _, err := r.header(ctx, oid)
		if err != nil {
			return nil, err
		}
		if typ == CommitObject {
			common = append(common, oid)
		}
	}
	return common, nil
}

// smallPack collects the objects of a small fetch.
type smallPack struct {
	r     *Repo
	g     graph
	seen  map[refpolicy.OID]bool
	order []refpolicy.OID
	work  int // entries of trees looked at
}

func (s *smallPack) tooLarge() bool {
	return len(s.order) > smallFetchObjects || s.work > smallFetchWork
}

func (s *smallPack) add(oid refpolicy.OID) bool {
	if s.seen[oid] || s.tooLarge() {
		return false
	}
	s.seen[oid] = true
	s.order = append(s.order, oid)
	return true
}

// collect finds all that wants reach and common does not. It reports false when that
// is too much, or when a want has nothing in common with what the client has, so
// that git would ask the client for more.
func (s *smallPack) collect(ctx context.Context, wants, common []refpolicy.OID, packedRefs []byte) (bool, error) {
	commits, ok, err := s.newCommits(ctx, wants, common)
	if err != nil || !ok {
		return false, err
	}
	for _, oid := range commits {
		if bytes.Contains(packedRefs, []byte("^"+oid.String())) {
			return false, nil // an annotated tag goes with it
		}
		s.add(oid)
	}
	for _, oid := range commits {
		h, err := s.g.commit(ctx, oid)
		if err != nil {
			return false, err
		}
		bases := make([]refpolicy.OID, len(h.parents))
		for i, p := range h.parents {
			parent, err := s.g.commit(ctx, p)
			if err != nil {
				return false, err
			}
			bases[i] = parent.tree
		}
		if err := s.tree(ctx, h.tree, bases); err != nil {
			return false, err
		}
		if s.tooLarge() {
			return false, nil
		}
	}
	return true, nil
}

// newCommits are the commits that wants reach and common does not, newest first.
func (s *smallPack) newCommits(ctx context.Context, wants, common []refpolicy.OID) ([]refpolicy.OID, bool, error) {
	w := walk{g: s.g, paint: map[refpolicy.OID]uint8{}}
	for _, oid := range wants {
		typ, _, err := s.r.header(ctx, oid)
		if err != nil || typ != CommitObject {
			return nil, false, err
		}
		if err := w.add(ctx, oid, paintTip); err != nil {
			return nil, false, err
		}
	}
	for _, oid := range common {
		if err := w.add(ctx, oid, paintTarget|paintStale); err != nil {
			return nil, false, err
		}
	}
	var met []refpolicy.OID
	for steps := 0; w.live > 0; steps++ {
		c, flags := w.pop()
		if flags&paintStale == 0 {
			met = append(met, c.oid)
		}
		if steps > 2*smallFetchCommits || flags&paintStale == 0 && len(c.parents) == 0 {
			return nil, false, nil
		}
		for _, p := range c.parents {
			if err := w.add(ctx, p, flags); err != nil {
				return nil, false, err
			}
		}
	}
	commits := met[:0]
	for _, oid := range met {
		if w.paint[oid]&paintStale == 0 { // with skewed dates it may have been met too early
			commits = append(commits, oid)
		}
	}
	return commits, len(commits) <= smallFetchCommits, nil
}

// tree adds what is in a tree and not at the same place in one of bases, which the
// client has or gets.
func (s *smallPack) tree(ctx context.Context, oid refpolicy.OID, bases []refpolicy.OID) error {
	for _, b := range bases {
		if b == oid {
			return nil
		}
	}
	if !s.add(oid) {
		return nil
	}
	entries, err := s.entries(ctx, oid)
	if err != nil {
		return err
	}
	before := make([]map[string]treeEntry, len(bases))
	for i, b := range bases {
		list, err := s.entries(ctx, b)
		if err != nil {
			return err
		}
		before[i] = make(map[string]treeEntry, len(list))
		for _, e := range list {
			before[i][e.name] = e
		}
	}
	for _, e := range entries {
		if err := s.entry(ctx, e, before); err != nil {
			return err
		}
	}
	return nil
}

// entry adds what an entry of a tree leads to, unless a tree of before has it.
func (s *smallPack) entry(ctx context.Context, e treeEntry, before []map[string]treeEntry) error {
	if e.mode == ModeSubmodule {
		return nil
	}
	var bases []refpolicy.OID
	for _, b := range before {
		old, ok := b[e.name]
		switch {
		case ok && old.oid == e.oid:
			return nil
		case ok && old.isTree():
			bases = append(bases, old.oid)
		}
	}
	if e.isTree() {
		return s.tree(ctx, e.oid, bases)
	}
	s.add(e.oid)
	return nil
}

func (s *smallPack) entries(ctx context.Context, oid refpolicy.OID) ([]treeEntry, error) {
	list, err := s.r.treeEntries(ctx, oid)
	s.work += len(list)
	return list, err
}

// smallFetchRead is how many objects are read at once: nobody writes meanwhile, and
// what is too large is seen before all of it is in memory.
const smallFetchRead = 256

// pack is the pack of what was collected; nil if it would be too large.
func (s *smallPack) pack(ctx context.Context) ([]byte, error) {
	pack := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), uint32(len(s.order)))
	for oids := range slices.Chunk(s.order, smallFetchRead) {
		var err error
		if pack, err = s.appendTo(ctx, pack, oids); err != nil || pack == nil {
			return nil, err
		}
	}
	sum := sha1.Sum(pack)
	return append(pack, sum[:]...), nil
}

// appendTo appends objects to a pack; nil if it would be too large.
func (s *smallPack) appendTo(ctx context.Context, pack []byte, oids []refpolicy.OID) ([]byte, error) {
	keys := make([]string, len(oids))
	for i, oid := range oids {
		keys[i] = hotKey(oid)
	}
	hot, err := s.r.ledger.PeekKeys(ctx, s.r.space, keys...)
	if err != nil {
		return nil, fmt.Errorf("read hot objects: %w", err)
	}
	for i, oid := range oids {
		entry, err := s.stored(ctx, oid, hot[i])
		if err != nil || entry == nil {
			return nil, err
		}
		if len(pack)+len(entry.zdata) > smallFetchBytes {
			return nil, nil
		}
		pack = packs.AppendHead(pack, packs.Type(entry.typ), entry.size)
		pack = append(pack, entry.zdata...)
	}
	return pack, nil
}

// stored is an object as it stands in a pack: raw is its hot value, nil if it is cold.
// It is nil for one that is too large.
func (s *smallPack) stored(ctx context.Context, oid refpolicy.OID, raw []byte) (*hotObject, error) {
	if raw == nil {
		_, size, err := s.r.header(ctx, oid)
		if err != nil || size > smallFetchBytes {
			return nil, err
		}
		o, err := s.r.object(ctx, oid)
		if err != nil {
			return nil, err
		}
		raw = encodeHot(NewObject{OID: oid, Type: o.typ, Data: o.data}, 0)
	}
	h, err := decodeHot(raw)
	return &h, err
}

// sendSmall writes the answer to a v2 fetch: acknowledgments if the client waits for
// them, then the pack.
func sendSmall(q GitRequest, acks []refpolicy.OID, pack []byte) error {
	var b bytes.Buffer
	b.Grow(len(pack) + len(pack)/1000 + 64*len(acks) + 256)
	w := wire.NewWriter(&b)
	if len(acks) > 0 {
		lines := []string{"acknowledgments\n"}
		for _, oid := range acks {
			lines = append(lines, "ACK "+oid.String()+"\n")
		}
		for _, line := range append(lines, "ready\n") {
			if err := w.WriteString(line); err != nil {
				return err
			}
		}
		if err := w.Delim(); err != nil {
			return err
		}
	}
	if err := w.WriteString("packfile\n"); err != nil {
		return err
	}
	side := wire.NewSideband(&b, wire.Sideband64k)
	if _, err := side.Write(pack); err != nil {
		return err
	}
	if err := side.Flush(); err != nil {
		return err
	}
	if _, err := q.Out.Write(b.Bytes()); err != nil {
		return fmt.Errorf("send pack: %w", err)
	}
	return nil
}
