package gitstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// BranchPage is one page of branches.
type BranchPage struct {
	Branches []Branch
	Next     string // cursor of the next page; empty on the last
}

// Branch is a branch in a page, with the cursor that goes on after it.
type Branch struct {
	Ref
	Cursor string
}

// Branches lists the ordinary or the ephemeral branches in order of (created, name).
// limit is at least 1. What a page costs depends on its size alone for a caller who
// may read all, and on the branches it may read for one who may not, or, if these
// are more than a few, on how thinly they are spread over the others. Errors: ErrBadCursor.
func (r *Repo) Branches(ctx context.Context, c Caller, ephemeral bool, cursor string, limit int) (BranchPage, error) {
	after := ""
	if cursor != "" {
		var err error
		if after, err = decodeCursor(cursor, branchCursor); err != nil {
			return BranchPage{}, err
		}
	}
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return BranchPage{}, fmt.Errorf("list branches: %w", err)
	}
	defer v.Close()
	l := branchListing{v: v, c: c, prefix: createdPrefix(ephemeral), after: after, limit: limit}
	page, err := l.run(ctx, branchNames(ephemeral))
	if err != nil {
		return BranchPage{}, fmt.Errorf("list branches: %w", err)
	}
	return page, nil
}

// BranchesBelow lists the branches whose short names begin with prefix, in byte order
// of their names. What a page costs depends on its size alone. limit is at least 1.
// Errors: ErrBadCursor.
func (r *Repo) BranchesBelow(ctx context.Context, c Caller, ephemeral bool, prefix, cursor string, limit int) (BranchPage, error) {
	var after refpolicy.RefName
	if cursor != "" {
		name, err := decodeCursor(cursor, namedBranchCursor)
		if err != nil {
			return BranchPage{}, err
		}
		after = refpolicy.RefName(name)
	}
	refs, err := r.Refs(ctx, c, branchNames(ephemeral).from+prefix, after, limit+1)
	if err != nil {
		return BranchPage{}, err
	}
	var page BranchPage
	for n, ref := range refs {
		if n == limit {
			page.Next = page.Branches[n-1].Cursor
			break
		}
		page.Branches = append(page.Branches, Branch{ref, encodeCursor(namedBranchCursor, string(ref.Name))})
	}
	return page, nil
}

// branchNames are the stored names of one namespace's branches.
func branchNames(ephemeral bool) nameRange {
	if ephemeral {
		return namesBelow(refpolicy.EphemeralBranchPrefix)
	}
	return namesBelow(refpolicy.BranchPrefix)
}

// branchListing is a page of branches in order of creation on its way.
type branchListing struct {
	v      ledger.View
	c      Caller
	prefix string // of the keys in order of creation
	after  string // the place behind which the page begins; "": the first
	limit  int
}

// placedBranch is a branch with its place in order of creation.
type placedBranch struct {
	place string
	ref   Ref
}

// run reads branches by their names and in order of creation in turn, and is done
// when one of both is: the first is short for who may read few, the second for who
// may read most. Who may read all needs no other than the second.
func (l *branchListing) run(ctx context.Context, all nameRange) (BranchPage, error) {
	names := nameRanges{all}.and(readableNames(l.c.Policy))
	everything := len(names) == 1 && names[0] == all
	named := &branchesNamed{branchListing: l, names: names}
	created := &branchesCreated{branchListing: l, start: l.prefix, step: ledger.BulkKeys}
	if everything {
		created.step = l.limit + 1
	}
	if l.after != "" {
		created.start = l.prefix + l.after + "\x00"
	}
	for ctx.Err() == nil {
		if !everything {
			if done, err := named.next(ctx); done || err != nil {
				return l.page(named.found), err
			}
		}
		if done, err := created.next(ctx); done || err != nil {
			return l.page(created.found), err
		}
	}
	return BranchPage{}, context.Cause(ctx)
}

// page makes a page of at most limit branches; one more says that others follow.
func (l *branchListing) page(found []placedBranch) BranchPage {
	var page BranchPage
	for n, p := range found {
		if n == l.limit {
			page.Next = page.Branches[n-1].Cursor
			break
		}
		page.Branches = append(page.Branches, Branch{p.ref, encodeCursor(branchCursor, p.place)})
	}
	return page
}

// branchesCreated reads in order of creation and passes over what may not be read.
type branchesCreated struct {
	*branchListing
	start string
	step  int
	found []placedBranch
}

// next reads a step further; done when the page is full or nothing is left.
func (b *branchesCreated) next(ctx context.Context) (done bool, err error) {
	items, err := b.v.Scan(ctx, b.prefix, b.start, b.step)
	if err != nil {
		return false, err
	}
	var places, keys []string
	for _, it := range items {
		place := strings.TrimPrefix(it.Key, b.prefix)
		_, name, _ := strings.Cut(place, "/")
		if b.c.Policy.CanRead(refpolicy.RefName(name)) && len(b.found)+len(keys) <= b.limit {
			places, keys = append(places, place), append(keys, refKeys+name)
		}
	}
	values, err := b.v.GetMany(ctx, keys...)
	if err != nil {
		return false, err
	}
	for n, raw := range values {
		if raw == nil {
			continue // deleted between two reads of a view that is no snapshot
		}
		ref, err := decodeRef(refpolicy.RefName(keys[n][len(refKeys):]), raw)
		if err != nil {
			return false, err
		}
		b.found = append(b.found, placedBranch{places[n], ref})
	}
	if len(b.found) > b.limit || len(items) < b.step {
		return true, nil
	}
	b.start = items[len(items)-1].Key + "\x00"
	return false, nil
}

// branchesNamed reads what may be read by name and keeps the first in order of creation.
type branchesNamed struct {
	*branchListing
	names nameRanges
	found []placedBranch
}

// next reads a step further; done when no name is left.
func (b *branchesNamed) next(ctx context.Context) (done bool, err error) {
	for read := 0; read < ledger.BulkKeys && len(b.names) > 0; {
		items, left, err := nextItems(ctx, b.v, refKeys, b.names, ledger.BulkKeys)
		if err != nil {
			return false, err
		}
		if err := b.take(items); err != nil {
			return false, err
		}
		b.names, read = left, read+len(items)
	}
	slices.SortFunc(b.found, func(x, y placedBranch) int { return cmp.Compare(x.place, y.place) })
	b.found = b.found[:min(len(b.found), b.limit+1)]
	return len(b.names) == 0, nil
}

// take keeps the branches behind the one that the page begins after.
func (b *branchesNamed) take(items []ledger.Item) error {
	for _, it := range items {
		ref, err := decodeRef(refpolicy.RefName(it.Key[len(refKeys):]), it.Value)
		if err != nil {
			return err
		}
		key, _ := createdKey(ref.Name, ref.CreatedAt)
		if place := strings.TrimPrefix(key, b.prefix); place > b.after {
			b.found = append(b.found, placedBranch{place, ref})
		}
	}
	return nil
}
