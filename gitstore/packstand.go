package gitstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/headgate/headgate/gitstore/packs"
)

// Pack files have several links: their registered name, git's, and those of indexes.
// Whichever is lost is made again from the others by whoever finds it missing: a reader,
// the start of a git process, upkeep. A Looking store brings nothing back.

// openDir opens a repo's folder.
func (s *Store) openDir(id string) (*packs.Dir, error) {
	return packs.Open(s.repoDir(id), packs.Options{
		FS: s.fs, Codec: codec{}, Cache: s.bases, Owner: s.scratch.owner(), Looking: s.looking,
	})
}

// mendFolder makes anew what a repo's folder lacks of that which all have.
func (s *Store) mendFolder(id string) error {
	if s.looking {
		return nil
	}
	mended, err := packs.MendDir(s.repoDir(id), packs.Options{FS: s.fs})
	if len(mended) > 0 {
		s.log.Warn("repo folder mended", "repo", id, "made", strings.Join(mended, " "))
	}
	return err
}

// mend makes sure before upkeep that the folder is whole and that every registered pack
// has its files and is in git's sight, as far as that can be done. What was given up
// before is tried again.
func (r *Repo) mend(ctx context.Context) error {
	if err := r.store.mendFolder(r.id); err != nil {
		return r.orGone(fmt.Errorf("mend repo: %w", err))
	}
	if err := r.loadPacks(ctx); err != nil {
		return err
	}
	r.packsMu.Lock()
	r.lost = nil
	r.packsMu.Unlock()
	r.standAll()
	return nil
}

// standAll looks at the links of all packs and makes those again that are gone.
func (r *Repo) standAll() {
	r.packsMu.Lock()
	defer r.packsMu.Unlock()
	for _, name := range r.packNames() {
		if r.linked[name] && !r.dir.Linked(name) {
			delete(r.linked, name)
		}
	}
	r.linkAll(r.packNames())
}

// linkAll lets git see registered packs. Our own readers do without: a full disk must
// not keep them from reading. allLinked tries again. What fails is told once, until it
// has gone well. Called with packsMu held.
func (r *Repo) linkAll(names []string) {
	if r.store.looking {
		return // allLinked does, for a git process that needs it
	}
	for _, name := range names {
		err := r.link(name)
		if err == nil || r.lost[name] || errors.Is(err, errOvertaken) {
			continue
		}
		if r.lost == nil {
			r.lost = map[string]bool{}
		}
		r.lost[name] = true
		r.store.log.Warn("link pack", "repo", r.id, "err", err)
	}
}

// link lets git see a registered pack, whose own files it brings back if need be.
// Called with packsMu held.
func (r *Repo) link(name string) error {
	if r.linked[name] {
		return nil
	}
	err := r.dir.Link(name)
	if errors.Is(err, packs.ErrPackMissing) && !r.lost[name] && r.examined.Load() == 0 && !r.store.looking {
		if err = r.bringBack(name); err == nil {
			err = r.dir.Link(name)
		}
	}
	if err != nil {
		return err
	}
	if r.linked == nil {
		r.linked = map[string]bool{}
	}
	r.linked[name] = true
	delete(r.lost, name)
	return nil
}

// bringBack gives a live pack its files again from other links of theirs.
func (r *Repo) bringBack(name string) error {
	raw, err := readKey(r.store.life, r.ledger.ReadKeys, r.space, packKey(name))
	if err != nil {
		return err
	}
	if raw == nil {
		return fmt.Errorf("%w: %w: it has no record", packs.ErrPackMissing, errOvertaken)
	}
	rec, err := decodePackRecord(raw)
	if err == nil && rec.State != packLive {
		err = fmt.Errorf("%w: %w: it is %s", packs.ErrPackMissing, errOvertaken, rec.State)
	}
	if err == nil {
		err = r.dir.BringBack(name, rec.Size)
	}
	if err != nil {
		return err
	}
	r.store.log.Warn("pack brought back from another link", "repo", r.id, "pack", name)
	return nil
}
