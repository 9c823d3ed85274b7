package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
)

// disk holds what stands on disk against the ledger, before the repo is opened: that
// makes links again. there is false if the repo's folder is not.
func (f *fsck) disk(ctx context.Context) (there bool, err error) {
	o := packs.Options{FS: f.store.fs, Looking: true}
	lacking, err := packs.CheckDir(f.store.repoDir(f.id), o)
	if errors.Is(err, fs.ErrNotExist) {
		if !f.store.dropped(ctx, f.id) {
			f.find(FindRepoMissing, f.id, "its folder is not there")
		}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("fsck: %w", err)
	}
	for _, part := range lacking {
		f.find(FindRepoIncomplete, part, "it is not in the folder of %s", f.id)
	}
	dir, err := packs.Open(f.store.repoDir(f.id), o)
	if err != nil {
		return false, fmt.Errorf("fsck: %w", err)
	}
	defer dir.Close()
	if err := f.standing(ctx, dir); err != nil {
		return false, fmt.Errorf("fsck: %w", err)
	}
	return true, nil
}

// standing looks for the files and links of every registered pack.
func (f *fsck) standing(ctx context.Context, dir *packs.Dir) error {
	v, err := f.store.ledger.Read(ctx, ledger.RepoSpace(f.id))
	if err != nil {
		return err
	}
	defer v.Close()
	records, err := scanAll(ctx, v, packKeys)
	if err != nil {
		return err
	}
	var odd []livePack
	for _, it := range records {
		name := strings.TrimPrefix(it.Key, packKeys)
		rec, err := decodePackRecord(it.Value)
		switch {
		case err != nil:
			f.find(FindPackRecord, name, "%v", err)
		case rec.State == packLive && !dir.Linked(name):
			odd = append(odd, livePack{name, rec, it.Value})
		}
	}
	if len(odd) == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(linkPatience):
	}
	for _, l := range odd {
		f.stands(ctx, dir, l)
	}
	return nil
}

// linkPatience is how long a pack may be registered and not be linked yet.
const linkPatience = 250 * time.Millisecond

func (f *fsck) stands(ctx context.Context, dir *packs.Dir, l livePack) {
	missing, err := dir.Missing(l.name)
	linked := dir.Linked(l.name)
	if err == nil && linked || !f.stillLive(ctx, l) {
		return
	}
	switch {
	case err != nil:
		f.find(FindPackMissing, l.name, "%v", err)
	case len(missing) > 0:
		f.find(FindPackMissing, l.name, "not there: %s", strings.Join(missing, ", "))
	case !f.underWay(dir, l.name):
		f.find(FindPackUnlinked, l.name, "git does not see it")
	}
}

// underWay reports whether an open repo is just taking a registered pack into its list,
// which links it.
func (f *fsck) underWay(dir *packs.Dir, name string) bool {
	r, err := f.store.cached(f.id)
	if r == nil || err != nil {
		return false
	}
	r.packsMu.Lock()
	defer r.packsMu.Unlock()
	return !slices.Contains(r.packNames(), name) || dir.Linked(name)
}
