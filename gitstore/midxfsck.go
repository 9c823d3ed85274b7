package gitstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/gitstore/packs"
)

// The kinds of damage of an index. Both are healed by themselves: the index is put out
// of use when a fetch would need it, and written anew by upkeep.
const (
	FindMultiPackIndex FindingKind = "multi-pack-index" // the index in use, its record or one of its files is not what it should be
	FindCommitGraph    FindingKind = "commit-graph"     // git finds the commit-graph of the index in use wrong
)

// index looks at the index in use: its record, its files, the packs that its file
// names, and what git finds in it.
func (f *fsck) index(ctx context.Context) error {
	pointer, err := readKey(ctx, f.r.ledger.ReadKeys, f.r.space, indexPointer)
	if err != nil || pointer == nil {
		return err
	}
	name := string(pointer)
	raw, err := readKey(ctx, f.r.ledger.ReadKeys, f.r.space, indexKey(name))
	if err != nil {
		return err
	}
	err = f.lookIntoIndex(ctx, name, raw)
	if err == nil || ctx.Err() != nil {
		return err
	}
	// Another process may have replaced it while it was looked at.
	now, rerr := readKey(ctx, f.r.ledger.ReadKeys, f.r.space, indexPointer)
	if rerr != nil || string(now) != name {
		return rerr
	}
	var broken brokenIndex
	if errors.As(err, &broken) {
		f.find(broken.kind, name, "%v", broken.error)
		return nil
	}
	return err
}

// brokenIndex is damage found, and not what kept one from looking.
type brokenIndex struct {
	kind FindingKind
	error
}

func (f *fsck) lookIntoIndex(ctx context.Context, name string, raw []byte) error {
	rec, err := decodeIndexRecord(raw)
	if err == nil && rec.State != packLive {
		err = fmt.Errorf("its record says %q", rec.State)
	}
	if err != nil {
		return brokenIndex{FindMultiPackIndex, err}
	}
	named, err := f.r.dir.IndexedPacks(name)
	if err == nil {
		err = f.r.dir.VerifyIndex(name, rec.Packs, rec.Files)
	}
	if err == nil && !slices.Equal(named, slices.Sorted(slices.Values(rec.Packs))) {
		err = fmt.Errorf("%w: it names packs %v, its record %v", packs.ErrIndexBroken, named, rec.Packs)
	}
	if err != nil {
		return brokenIndex{FindMultiPackIndex, err}
	}
	errs := f.r.gitVerifyIndex(ctx, name, rec)
	if len(errs) == 0 {
		return nil
	}
	var exit *gitcmd.ExitError
	switch {
	case !errors.As(errs[0], &exit):
		return errs[0]
	case exit.Name == "commit-graph":
		return brokenIndex{FindCommitGraph, errs[0]}
	}
	return brokenIndex{FindMultiPackIndex, errs[0]}
}
