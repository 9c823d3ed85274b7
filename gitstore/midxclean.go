package gitstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// registeredIndex is an index as the ledger lists it.
type registeredIndex struct {
	name string
	rec  indexRecord
	raw  []byte
}

// indexRecords reads the records of all indexes. One that cannot be read counts as
// condemned when nobody knows, so it goes when it is not in use.
func (r *Repo) indexRecords(ctx context.Context) (list []registeredIndex, err error) {
	err = r.eachPage(ctx, indexKeys, func(items []ledger.Item) error {
		for _, it := range items {
			rec, err := decodeIndexRecord(it.Value)
			if err != nil {
				rec = indexRecord{State: packCondemned}
			}
			list = append(list, registeredIndex{strings.TrimPrefix(it.Key, indexKeys), rec, it.Value})
		}
		return nil
	})
	return list, err
}

// removeIndexes removes the folders of indexes that were condemned longer ago than
// grace and that no process of this store uses, those of dead ones, and old ones that
// no record names. Where other nodes may have processes that use one, the grace is
// never less than what packs are given by themselves.
func (r *Repo) removeIndexes(ctx context.Context, grace time.Duration) error {
	if r.store.shared {
		grace = max(grace, r.store.limits.PackGrace)
	}
	there, err := r.dir.Indexes()
	if err != nil {
		return err
	}
	list, err := r.indexRecords(ctx)
	if err != nil {
		return fmt.Errorf("remove indexes: %w", err)
	}
	now, err := r.ledger.Now(ctx)
	if err != nil {
		return fmt.Errorf("remove indexes: %w", err)
	}
	known := map[string]bool{}
	for _, x := range list {
		known[x.name] = true
		if err := r.removeIndexDue(ctx, x, now, grace, slices.Contains(there, x.name)); err != nil {
			return fmt.Errorf("remove index %s: %w", x.name, err)
		}
	}
	for _, name := range there {
		if known[name] {
			continue
		}
		if idle, err := r.dir.IndexUntouched(name, sharedGrace); err != nil || !idle {
			if err != nil {
				return err
			}
			continue
		}
		if err := r.discardIndex(ctx, name); err != nil {
			return fmt.Errorf("remove unregistered index %s: %w", name, err)
		}
	}
	return nil
}

// removeIndexDue takes the next step with one index, if it is due: as with packs, it
// is first put on record as dead, then its folder goes, and much later the record.
func (r *Repo) removeIndexDue(ctx context.Context, x registeredIndex, now time.Time, grace time.Duration, there bool) error {
	switch {
	case x.rec.State == packCondemned && now.Sub(x.rec.At) >= grace:
		if r.store.indexes.used(r.id, x.name) {
			return nil
		}
		dead := indexRecord{State: packDead, At: now}
		if ok, err := r.changedIndex(ctx, x, []ledger.Set{{Key: indexKey(x.name), Value: mustJSON(dead)}}, nil); !ok || err != nil {
			return err // somebody else is at it
		}
		return r.dir.RemoveIndex(x.name)
	case x.rec.State == packDead && there:
		return r.dir.RemoveIndex(x.name)
	case x.rec.State == packDead && now.Sub(x.rec.At) > deadMemory:
		_, err := r.changedIndex(ctx, x, nil, []string{indexKey(x.name)})
		return err
	}
	return nil
}

// changedIndex applies a batch that holds only while an index's record is as it was
// read and the index is not the one in use.
func (r *Repo) changedIndex(ctx context.Context, x registeredIndex, sets []ledger.Set, deletes []string) (bool, error) {
	pointer, err := readKey(ctx, r.ledger.ReadKeys, r.space, indexPointer)
	if err != nil || string(pointer) == x.name {
		return false, err
	}
	check := ledger.Absent(indexPointer)
	if pointer != nil {
		check = ledger.Equal(indexPointer, pointer)
	}
	_, err = r.ledger.Apply(ctx, ledger.Batch{
		Space: r.space, Checks: []ledger.Check{ledger.Equal(indexKey(x.name), x.raw), check}, Sets: sets, Deletes: deletes,
	})
	var other *ledger.CheckError
	if errors.As(err, &other) {
		return false, nil
	}
	return err == nil, err
}

// discardIndex removes an index folder after a batch has made sure that it is not
// registered and never will be.
func (r *Repo) discardIndex(ctx context.Context, name string) error {
	now, err := r.ledger.Now(ctx)
	if err != nil {
		return err
	}
	_, err = r.ledger.Apply(ctx, ledger.Batch{
		Space:  r.space,
		Checks: []ledger.Check{ledger.Absent(indexKey(name))},
		Sets:   []ledger.Set{{Key: indexKey(name), Value: mustJSON(indexRecord{State: packDead, At: now})}},
	})
	var check *ledger.CheckError
	if errors.As(err, &check) {
		if rec, derr := decodeIndexRecord(check.Present); derr != nil || rec.State != packDead {
			return derr // registered after all
		}
		err = nil // dead already, but its folder was left
	}
	if err != nil {
		return err
	}
	return r.dir.RemoveIndex(name)
}

// dropIndex removes the folder of an index whose making ended with err, unless it has
// been registered nevertheless. What cannot be found out now is left to the next
// opening of the repo, or to upkeep. The work may be cut short: the clean-up is not.
func (r *Repo) dropIndex(ctx context.Context, name string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropPatience)
	defer cancel()
	var unsure unsureError
	if errors.As(err, &unsure) {
		err = r.discardIndex(ctx, name)
	} else {
		err = r.dir.RemoveIndex(name)
	}
	if err != nil {
		r.store.log.Warn("remove unregistered index", "repo", r.id, "index", name, "err", err)
	}
}

// tidyIndexes removes the index folders that no record names when nothing can be
// under way.
func (r *Repo) tidyIndexes(ctx context.Context) error {
	there, err := r.dir.Indexes()
	if err != nil || len(there) == 0 {
		return err
	}
	list, err := r.indexRecords(ctx)
	if err != nil {
		return err
	}
	for _, name := range there {
		registered := func(x registeredIndex) bool { return x.name == name && x.rec.State != packDead }
		if slices.ContainsFunc(list, registered) {
			continue
		}
		if err := r.discardIndex(ctx, name); err != nil {
			return fmt.Errorf("remove unregistered index %s: %w", name, err)
		}
	}
	return nil
}
