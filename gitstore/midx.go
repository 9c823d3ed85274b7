package gitstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
)

// An index is what git keeps over many packs: a multi-pack-index with bitmaps, by
// which a whole clone is answered without walking, and a commit-graph. It stands in a
// folder of its own with links to the packs it names (packs.Dir.NewIndex), so that
// they are there as long as it is, merged or pruned away elsewhere or not; git
// processes get the folder as one more alternate. What is in no index is found in the
// packs and the hot tier as ever: an index may be old, and only saves work.
//
// One batch registers an index and condemns the one before. Of two that are written
// at the same time, on whatever nodes, one batch is refused and its folder goes. A
// condemned index is removed as packs are: after a grace, and not while a process of
// this store uses it (midxuse.go). Every folder has a name of its own, so nobody ever
// writes over what another one reads. A crash leaves a folder that no record names.

// indexRecord is what stands under index/<name>. Which one is in use stands under
// gc/index.
type indexRecord struct {
	State   string            `json:"state"` // those of packs
	Packs   []string          `json:"packs"` // what it names
	Objects int               `json:"objects"`
	Files   []packs.IndexFile `json:"files"`
	MadeAt  time.Time         `json:"made_at"`     // the ledger's clock
	At      time.Time         `json:"at,omitzero"` // when it was condemned or found dead
}

func decodeIndexRecord(b []byte) (rec indexRecord, err error) {
	if err := json.Unmarshal(b, &rec); err != nil {
		return rec, fmt.Errorf("decode index record: %w", err)
	}
	return rec, nil
}

// bitmaps reports whether git was able to write them: it is not when a listed pack
// was not closed, which the next index may find otherwise.
func (x indexRecord) bitmaps() bool { return slices.ContainsFunc(x.Files, packs.IndexFile.IsBitmap) }

const (
	// indexShare is the part of the indexed objects, one in so many, that may come or
	// go before an index is written anew. With it, all the indexes ever written over a
	// repo that grows cost a few times what the last one does.
	indexShare = 8
	// indexPatience is how long an index may name packs that have been replaced, whose
	// files its links keep, although few objects have come since.
	indexPatience = 15 * time.Minute
)

// indexNeed says whether a repo with these live packs wants a new index, and, if not
// yet, whether time alone will make it want one.
func indexNeed(old *indexRecord, list []livePack, now time.Time, least int, force bool) (need, later bool) {
	if len(list) == 0 {
		return false, false
	}
	objects, named := 0, map[string]bool{}
	for _, p := range list {
		objects += p.rec.Objects
		named[p.name] = true
	}
	if old == nil {
		return force || objects >= least, false
	}
	stale := slices.ContainsFunc(old.Packs, func(name string) bool { return !named[name] })
	changed := max(objects-old.Objects, old.Objects-objects)
	switch {
	case force:
		return stale || len(old.Packs) != len(list) || !old.bitmaps(), false
	case changed >= max(least, old.Objects/indexShare):
		return true, false
	case stale:
		return now.Sub(old.MadeAt) >= indexPatience, true
	}
	return false, false
}

// writeIndex writes a new index if there is need of one; with force, if there is any
// difference to what the old one names.
func (r *Repo) writeIndex(ctx context.Context, force bool) (written bool, err error) {
	seen := r.packList.Load()
	pointer, old, err := r.currentIndex(ctx)
	if err != nil {
		return false, fmt.Errorf("write index: %w", err)
	}
	_, list, err := r.livePacks(ctx)
	if err != nil {
		return false, fmt.Errorf("write index: %w", err)
	}
	// No clone and no fetch asks for a chunk.
	list = slices.DeleteFunc(list, func(p livePack) bool { return p.rec.Kind == kindSnapshot })
	now, err := r.ledger.Now(ctx)
	if err != nil {
		return false, fmt.Errorf("write index: %w", err)
	}
	force = force || pointer != nil && old == nil // it cannot go on without a record
	need, later := indexNeed(old, list, now, r.store.limits.IndexObjects, force)
	if need {
		err = r.makeIndex(ctx, pointer, list, now)
		if errors.Is(err, packs.ErrPackMissing) || replaced(err) {
			return false, errOvertaken
		}
		if err != nil {
			return false, r.orGone(fmt.Errorf("write index: %w", err))
		}
	}
	r.indexSeen.Store(seen)
	r.indexLater.Store(later && !need)
	return need, nil
}

// indexDue tells without asking anybody whether an index may be wanted.
func (r *Repo) indexDue() bool {
	return r.indexSeen.Load() != r.packList.Load() || r.indexLater.Load() || r.store.indexes.doubted(r.id)
}

// currentIndex reads which index is in use and its record; nil if there is none, or
// its record cannot be read.
func (r *Repo) currentIndex(ctx context.Context) (pointer []byte, rec *indexRecord, err error) {
	pointer, err = readKey(ctx, r.ledger.ReadKeys, r.space, indexPointer)
	if err != nil || pointer == nil {
		return nil, nil, err
	}
	raw, err := readKey(ctx, r.ledger.ReadKeys, r.space, indexKey(string(pointer)))
	if err != nil || raw == nil {
		return pointer, nil, err
	}
	got, err := decodeIndexRecord(raw)
	if err != nil || got.State != packLive {
		return pointer, nil, nil
	}
	return pointer, &got, nil
}

// makeIndex writes an index over packs and puts it in the place of the one that
// pointer names.
func (r *Repo) makeIndex(ctx context.Context, pointer []byte, list []livePack, now time.Time) error {
	rec := indexRecord{State: packLive, MadeAt: now}
	for _, p := range list {
		rec.Packs = append(rec.Packs, p.name)
		rec.Objects += p.rec.Objects
	}
	name, err := r.dir.NewIndex(rec.Packs)
	if err != nil {
		return err
	}
	rec.Files, err = r.fillIndex(ctx, name, list)
	if err == nil {
		err = r.registerIndex(ctx, name, rec, pointer)
	}
	if err != nil {
		r.dropIndex(ctx, name, err)
	}
	return err
}

// fillIndex lets git write the files. It sees the packs in the folder and nothing
// else, so what it cannot find there is not in the index's packs.
func (r *Repo) fillIndex(ctx context.Context, name string, list []livePack) ([]packs.IndexFile, error) {
	tips, err := r.settledTips(ctx, list)
	if err != nil {
		return nil, err
	}
	defer tips.remove()
	if err := r.writeMultiPackIndex(ctx, name, list, tips); err != nil {
		return nil, err
	}
	if tips.count > 0 {
		if err := r.writeCommitGraph(ctx, name, tips); err != nil {
			return nil, err
		}
	}
	return r.dir.SealIndex(name)
}

// writeMultiPackIndex writes one with bitmaps, or without them if the tips turn out
// not to be settled whole.
func (r *Repo) writeMultiPackIndex(ctx context.Context, name string, list []livePack, tips *tipsFile) error {
	var lines strings.Builder
	for _, p := range list {
		lines.WriteString(p.name + ".idx\n")
	}
	args := []string{"multi-pack-index", "write", "--no-progress", "--stdin-packs", "--preferred-pack=" + preferredPack(list) + ".pack"}
	run := func(more ...string) error {
		return r.store.runLow(ctx, gitcmd.Cmd{
			Args: append(args[:len(args):len(args)], more...), GitDir: r.dir.Root(), ObjectDir: r.dir.IndexPath(name),
			Config: [][2]string{{"pack.writeBitmapLookupTable", "true"}},
			Stdin:  strings.NewReader(lines.String()), Timeout: transferTimeout,
		})
	}
	if tips.count > 0 {
		err := run("--bitmap", "--refs-snapshot="+tips.path)
		var exit *gitcmd.ExitError
		if err == nil || !errors.As(err, &exit) {
			return err
		}
		r.store.log.Info("write bitmaps", "repo", r.id, "err", err)
	}
	return run()
}

// preferredPack is the pack whose bytes git copies as they are into a whole clone.
func preferredPack(list []livePack) string {
	return slices.MaxFunc(list, func(a, b livePack) int {
		if a, b := a.rec.Kind == kindBlobs, b.rec.Kind == kindBlobs; a != b {
			return map[bool]int{true: -1, false: 1}[a]
		}
		return cmp.Compare(a.rec.Objects, b.rec.Objects)
	}).name
}

// registerIndex makes a durable index the one in use and condemns the one before.
func (r *Repo) registerIndex(ctx context.Context, name string, rec indexRecord, pointer []byte) error {
	b := ledger.Batch{Space: r.space, Checks: []ledger.Check{ledger.Absent(indexKey(name))}}
	b.Sets = []ledger.Set{{Key: indexKey(name), Value: mustJSON(rec)}, {Key: indexPointer, Value: []byte(name)}}
	if pointer == nil {
		// The prune generation exists as long as the repo does.
		gen, err := readKey(ctx, r.ledger.ReadKeys, r.space, genKey)
		if err != nil {
			return err
		}
		if gen == nil {
			return ErrRepoNotFound
		}
		b.Checks = append(b.Checks, ledger.Absent(indexPointer), ledger.Equal(genKey, gen))
	} else {
		b.Checks = append(b.Checks, ledger.Equal(indexPointer, pointer))
		check, set, err := r.condemnIndex(ctx, string(pointer))
		if err != nil {
			return err
		}
		b.Checks, b.Sets = append(b.Checks, check), append(b.Sets, set)
	}
	if _, err := r.applySure(ctx, b); err != nil {
		return fmt.Errorf("register index: %w", err)
	}
	return nil
}

// condemnIndex is the part of a batch that condemns an index, whatever its record is.
func (r *Repo) condemnIndex(ctx context.Context, name string) (check ledger.Check, set ledger.Set, err error) {
	key := indexKey(name)
	raw, err := readKey(ctx, r.ledger.ReadKeys, r.space, key)
	if err != nil {
		return check, set, err
	}
	now, err := r.ledger.Now(ctx)
	if err != nil {
		return check, set, err
	}
	check = ledger.Absent(key)
	var rec indexRecord
	if raw != nil {
		check = ledger.Equal(key, raw)
		rec, _ = decodeIndexRecord(raw) // one that cannot be read goes all the same
	}
	rec.State, rec.At = packCondemned, now
	return check, ledger.Set{Key: key, Value: mustJSON(rec)}, nil
}

// retireIndex takes an index out of use that is not what it should be.
func (r *Repo) retireIndex(ctx context.Context, name string) error {
	check, set, err := r.condemnIndex(ctx, name)
	if err == nil {
		_, err = r.ledger.Apply(ctx, ledger.Batch{
			Space:  r.space,
			Checks: []ledger.Check{ledger.Equal(indexPointer, []byte(name)), check},
			Sets:   []ledger.Set{set}, Deletes: []string{indexPointer},
		})
	}
	var other *ledger.CheckError
	if errors.As(err, &other) {
		err = nil // somebody else has replaced it
	}
	if err != nil {
		return fmt.Errorf("retire index %s: %w", name, err)
	}
	return nil
}
