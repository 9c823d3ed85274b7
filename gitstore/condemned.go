package gitstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// deadMemory is how long the name of a pack that is gone stays on record: longer
// than a batch can be on its way that would register it.
const deadMemory = 24 * time.Hour

// removeCondemned removes the files of packs that were condemned longer ago than
// grace, and before any git process began that still reads in the repo; a grace that
// is not positive waits for none. It also removes those of packs on record as dead,
// and files that nobody has registered for very long. Every step can be repeated by anybody: a pack is first put on record as
// dead, then its files go, and much later the record.
func (r *Repo) removeCondemned(ctx context.Context, grace time.Duration) (removed int, err error) {
	// git finds in linked packs alone what it misses in those that go.
	if err := r.allLinked(ctx); err != nil {
		return 0, fmt.Errorf("remove packs: %w", err)
	}
	_, records, err := r.packRecords(ctx)
	if err != nil {
		return 0, fmt.Errorf("remove packs: %w", err)
	}
	now, err := r.ledger.Now(ctx)
	if err != nil {
		return 0, fmt.Errorf("remove packs: %w", err)
	}
	files, err := r.dir.Files()
	if err != nil {
		return 0, fmt.Errorf("remove packs: %w", err)
	}
	if grace > 0 {
		grace = max(grace, r.store.gitRuns.longest(r.id))
	}
	known := map[string]bool{}
	for _, p := range records {
		known[p.name] = true
		gone, err := r.removeDue(ctx, p, now, grace, slices.Contains(files, p.name))
		if err != nil {
			return removed, fmt.Errorf("remove pack %s: %w", p.name, err)
		}
		if gone {
			removed++
		}
	}
	return removed, r.removeUnknown(ctx, files, known)
}

// removeDue takes the next step with one pack, if it is due.
func (r *Repo) removeDue(ctx context.Context, p livePack, now time.Time, grace time.Duration, there bool) (gone bool, err error) {
	switch {
	case p.rec.State == packCondemned && now.Sub(p.rec.At) >= grace:
		rec := p.rec
		rec.State, rec.At = packDead, now
		if ok, err := r.changed(ctx, p, []ledger.Set{{Key: packKey(p.name), Value: mustJSON(rec)}}, nil); !ok || err != nil {
			return false, err // somebody else is at it
		}
		return true, r.removeFiles(p.name)
	case p.rec.State == packDead && there:
		return true, r.removeFiles(p.name)
	case p.rec.State == packDead && now.Sub(p.rec.At) > deadMemory:
		_, err := r.changed(ctx, p, nil, []string{packKey(p.name)})
		return false, err
	}
	return false, nil
}

// changed applies a batch that holds only while a pack's record is as it was read.
func (r *Repo) changed(ctx context.Context, p livePack, sets []ledger.Set, deletes []string) (bool, error) {
	_, err := r.ledger.Apply(ctx, ledger.Batch{
		Space: r.space, Checks: []ledger.Check{ledger.Equal(packKey(p.name), p.raw)}, Sets: sets, Deletes: deletes,
	})
	var check *ledger.CheckError
	if errors.As(err, &check) {
		return false, nil
	}
	return err == nil, err
}

// removeFiles removes a dead pack. Who has it open reads on. What was read from it is
// forgotten, be it dead or not.
func (r *Repo) removeFiles(name string) error {
	if p, err := r.dir.Pack(name); err == nil {
		p.ForEach(func(oid refpolicy.OID, _ int64) bool {
			r.store.cache.drop(objectID{r.id, oid})
			r.store.commits.drop(objectID{r.id, oid})
			return true
		})
		p.Release()
	}
	r.packsMu.Lock()
	old := slices.DeleteFunc(slices.Clone(r.condemned()), func(n string) bool { return n == name })
	r.oldPacks.Store(&old)
	delete(r.linked, name)
	r.packsMu.Unlock()
	return r.dir.Remove(name)
}

// removeUnknown removes files without a record that are older than any write under way.
func (r *Repo) removeUnknown(ctx context.Context, files []string, known map[string]bool) error {
	for _, name := range files {
		if known[name] {
			continue
		}
		if idle, err := r.dir.Untouched(name, sharedGrace); err != nil || !idle {
			if err != nil {
				return err
			}
			continue
		}
		if err := r.discardPack(ctx, name); err != nil {
			return fmt.Errorf("remove unregistered pack %s: %w", name, err)
		}
	}
	_, err := r.dir.Sweep(sharedGrace)
	return err
}
