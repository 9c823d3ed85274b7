package gitstore

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// A FindingKind is a kind of damage.
type FindingKind string

// The kinds of damage that Fsck tells apart.
const (
	FindRepoMissing    FindingKind = "repo-missing"    // a repo whose folder is not there
	FindRepoIncomplete FindingKind = "repo-incomplete" // a part of its folder is not there; made again when it is opened or looked after
	FindRepoRecord     FindingKind = "repo-record"     // a repo that its org names and whose own record is not there or cannot be read
	FindRepoUnreadable FindingKind = "repo-unreadable" // a repo that cannot be opened
	FindRepoUnknown    FindingKind = "repo-unknown"    // a folder of no repo that an org names

	FindPackMissing   FindingKind = "pack-missing"   // a registered pack without its files
	FindPackBroken    FindingKind = "pack-broken"    // a registered pack that cannot be opened
	FindPackReplaced  FindingKind = "pack-replaced"  // another file than the one that is open has a registered pack's name
	FindPackUnlinked  FindingKind = "pack-unlinked"  // a registered pack that git does not see; linked again by who needs it
	FindPackRecord    FindingKind = "pack-record"    // a record that cannot be read or does not fit its pack
	FindPackUnknown   FindingKind = "pack-unknown"   // files that no record names; harmless, removed by upkeep when old
	FindObjectBroken  FindingKind = "object-broken"  // an object that is not what its id says
	FindObjectMissing FindingKind = "object-missing" // an object that a ref or pin leads to and that is nowhere
	FindHotBroken     FindingKind = "hot-broken"     // a hot object that cannot be read or is not what its key says
	FindRef           FindingKind = "ref"            // a ref's record that cannot be read or is wrong
	FindIndex         FindingKind = "index"          // tip, created, born or pinned do not agree with what they index
	FindPin           FindingKind = "pin"            // a pin's record that cannot be read
)

// A Finding is one piece of damage.
type Finding struct {
	Kind    FindingKind
	Subject string // the pack, object, ref, pin or key
	Detail  string
}

func (f Finding) String() string { return fmt.Sprintf("%s %s: %s", f.Kind, f.Subject, f.Detail) }

// maxFindings bounds how much is told of one kind; of the rest the number is.
const maxFindings = 1_000

// Fsck compares a repo's ledger with its packs as they stand on disk, whatever is open,
// reads and hashes every object of both tiers, follows the whole history of every ref
// and pin, and holds the indexes against what they index. What it finds is told, each
// thing once, nothing is repaired. Writes may go on meanwhile; the error is for what
// kept it from looking.
func (s *Store) Fsck(ctx context.Context, r *Repo) ([]Finding, error) {
	ctx, end, err := s.work(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	f := &fsck{store: s, id: r.id}
	there, err := f.disk(ctx)
	if err == nil && there {
		err = f.repo(ctx, r)
	}
	return f.all(), r.orGone(err)
}

// repo looks at all of a repo whose folder is there.
func (f *fsck) repo(ctx context.Context, r *Repo) error {
	// Nobody of this process replaces packs while they are looked at.
	r.upkeep.Lock()
	defer r.upkeep.Unlock()
	r.examined.Add(1)
	defer r.examined.Add(-1)
	f.r = r
	for _, look := range []func(context.Context) error{f.packs, f.unknownPacks, f.hot, f.history, f.indexes, f.index, f.log} {
		if err := look(ctx); err != nil {
			return fmt.Errorf("fsck: %w", err)
		}
	}
	return nil
}

type fsck struct {
	store    *Store
	id       string // of the repo
	r        *Repo  // nil until it is opened
	findings []Finding
	good     []livePack // packs that could be opened
	// damaged are objects that were found broken, with the places of their findings.
	damaged map[refpolicy.OID]int

	told   map[[2]string]bool  // kind and subject of findings; packs, objects and what the folder lacks are told once
	counts map[FindingKind]int // of all findings, told or too many
}

func (f *fsck) find(kind FindingKind, subject, format string, args ...any) {
	if f.counts == nil {
		f.counts, f.told = map[FindingKind]int{}, map[[2]string]bool{}
	}
	f.told[[2]string{string(kind), subject}] = true
	if f.counts[kind]++; f.counts[kind] <= maxFindings {
		f.findings = append(f.findings, Finding{kind, subject, fmt.Sprintf(format, args...)})
	}
}

// findOnce tells of a subject that has not been told of under the same kind.
func (f *fsck) findOnce(kind FindingKind, subject, format string, args ...any) {
	if !f.told[[2]string{string(kind), subject}] {
		f.find(kind, subject, format, args...)
	}
}

// all gives what was found, with the number of what was too much to be told.
func (f *fsck) all() []Finding {
	all := f.findings
	for _, kind := range slices.Sorted(maps.Keys(f.counts)) {
		if more := f.counts[kind] - maxFindings; more > 0 {
			all = append(all, Finding{kind, "", fmt.Sprintf("and %d more", more)})
		}
	}
	return all
}

// packs looks at every registered pack and all that is in it. A record that cannot be
// read is told and passed over, which is why the list is read here by itself.
func (f *fsck) packs(ctx context.Context) error {
	return f.r.eachPage(ctx, packKeys, func(items []ledger.Item) error {
		for _, it := range items {
			name := strings.TrimPrefix(it.Key, packKeys)
			rec, err := decodePackRecord(it.Value)
			switch {
			case err != nil:
				f.findOnce(FindPackRecord, name, "%v", err)
			case rec.State == packLive:
				if err := f.pack(ctx, livePack{name, rec, it.Value}); err != nil {
					return err
				}
			case rec.State != packCondemned && rec.State != packDead:
				f.find(FindPackRecord, name, "unknown state %q", rec.State)
			}
		}
		return nil
	})
}

func (f *fsck) pack(ctx context.Context, l livePack) error {
	p, err := f.r.dir.Fresh(l.name)
	switch {
	case errors.Is(err, packs.ErrPackMissing), errors.Is(err, packs.ErrBadName):
		if f.stillLive(ctx, l) {
			f.findOnce(FindPackMissing, l.name, "its files are not there")
		}
		return nil
	case errors.Is(err, packs.ErrPackBroken):
		f.find(FindPackBroken, l.name, "%v", err)
		return nil
	case err != nil:
		return err
	}
	defer p.Release()
	f.good = append(f.good, l)
	if p.Size() != l.rec.Size || p.Count() != l.rec.Objects {
		f.find(FindPackRecord, l.name, "%d bytes, %d objects on record, %d and %d in the file", l.rec.Size, l.rec.Objects, p.Size(), p.Count())
	}
	if other, err := f.r.dir.Replaced(l.name); err == nil && other {
		f.find(FindPackReplaced, l.name, "another file was open before")
	}
	for _, oid := range p.ByOffset() {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if err := verifyPacked(p, oid); err != nil {
			f.findDamaged(oid, "in pack %s: %v", l.name, err)
		}
	}
	return nil
}

// findDamaged tells of an object in a pack; history adds what leads to it.
func (f *fsck) findDamaged(oid refpolicy.OID, format string, args ...any) {
	before := len(f.findings)
	f.find(FindObjectBroken, oid.String(), format, args...)
	if len(f.findings) == before {
		return // too many
	}
	if f.damaged == nil {
		f.damaged = map[refpolicy.OID]int{}
	}
	f.damaged[oid] = before
}

// stillLive asks again about a pack whose files are not there: another process may
// have replaced and removed it since the list was read.
func (f *fsck) stillLive(ctx context.Context, l livePack) bool {
	raw, err := readKey(ctx, f.store.ledger.ReadKeys, ledger.RepoSpace(f.id), packKey(l.name))
	return err != nil || string(raw) == string(l.raw)
}

// verifyPacked reads an object as a stream and hashes it.
func verifyPacked(p *packs.Pack, oid refpolicy.OID) error {
	t, size, body, err := p.Open(oid)
	if err != nil {
		return err
	}
	defer body.Close()
	h := newHash(ObjectType(t), size)
	if _, err := io.Copy(h, body); err != nil {
		return err
	}
	if got := refpolicy.OID(h.Sum(nil)); got != oid {
		return fmt.Errorf("its bytes are those of %s", got)
	}
	return nil
}

// newHash begins git's hash of an object.
func newHash(t ObjectType, size int64) hash.Hash {
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", t, size)
	return h
}

// unknownPacks tells of files without a record.
func (f *fsck) unknownPacks(ctx context.Context) error {
	files, err := f.r.dir.Files()
	if err != nil {
		return err
	}
	for _, name := range files {
		raw, err := readKey(ctx, f.r.ledger.ReadKeys, f.r.space, packKey(name))
		if err != nil {
			return err
		}
		if raw == nil {
			f.find(FindPackUnknown, name, "no record names it")
		}
	}
	return nil
}

// hot decodes and hashes every hot object.
func (f *fsck) hot(ctx context.Context) error {
	return f.r.eachPage(ctx, hotKeys, func(items []ledger.Item) error {
		for _, it := range items {
			oid := hotOID(it.Key)
			h, err := decodeHot(it.Value)
			if err == nil {
				err = h.verify(oid)
			}
			if err != nil {
				f.find(FindHotBroken, oid.String(), "%v", err)
			}
		}
		return nil
	})
}

func (h hotObject) verify(oid refpolicy.OID) error {
	if h.size < 0 || h.size > maxWhole {
		return fmt.Errorf("size %d", h.size)
	}
	data, err := h.inflate()
	if err != nil {
		return err
	}
	if got := hashObject(h.typ, data); got != oid {
		return fmt.Errorf("its bytes are those of %s", got)
	}
	return nil
}

// history follows everything that refs and pins lead to.
func (f *fsck) history(ctx context.Context) error {
	m, err := f.marks(ctx)
	if err != nil {
		return err
	}
	defer m.close()
	m.lenient = true // what is wrong with the list has been told
	root := ""
	m.missing = func(l link) error {
		f.findOnce(FindObjectMissing, l.oid.String(), "%s leads to it", root)
		m.loose[l.oid] = true // it is not looked for again
		return nil
	}
	m.broken = func(l link, err error) error {
		f.findOnce(FindObjectBroken, l.oid.String(), "%s leads to it: %v", root, err)
		return nil
	}
	m.met = func(oid refpolicy.OID) {
		if n, ok := f.damaged[oid]; ok {
			f.findings[n].Detail += "; " + root + " leads to it"
		}
	}
	err = f.r.eachPage(ctx, refKeys, func(items []ledger.Item) error {
		for _, it := range items {
			root = strings.TrimPrefix(it.Key, refKeys)
			rec, err := decodeRefRecord(it.Value)
			if err != nil {
				f.find(FindRef, root, "%v", err)
				continue
			}
			if strings.HasPrefix(root, snapshotRefs) {
				root += " (snapshot " + rec.oid.String() + ")"
			}
			if err := m.walk(ctx, rec.oid); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	pins, err := f.r.pinsNow(ctx)
	if err != nil {
		return nil // indexes tells which pin
	}
	for _, p := range pins {
		if root = "pin of " + p.OID.String(); strings.HasPrefix(p.Holder, snapshotHolder) {
			root = "pin " + p.Holder + " (snapshot " + p.OID.String() + ")"
		}
		if err := m.walk(ctx, p.OID); err != nil {
			return err
		}
	}
	return nil
}

const (
	// snapshotRefs are where the last snapshots of sessions are, and snapshotHolder
	// begins the holders of the pins that keep each of them.
	snapshotRefs   = refpolicy.StatePrefix + "refs/snapshots/"
	snapshotHolder = "snapshot:"
)

// marks opens the packs that were found good, without those that another process has
// replaced and removed since.
func (f *fsck) marks(ctx context.Context) (*marks, error) {
	for try := 1; ; try++ {
		m, err := f.r.newMarks(f.good)
		if !errors.Is(err, packs.ErrPackMissing) || try == listTries {
			return m, err
		}
		f.good = slices.DeleteFunc(f.good, func(l livePack) bool { return !f.stillLive(ctx, l) })
	}
}
