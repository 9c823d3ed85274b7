package gitstore

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// Ref is a ref as a caller sees it.
type Ref struct {
	Name      refpolicy.RefName
	OID       refpolicy.OID
	Peeled    refpolicy.OID // what an annotated tag points at in the end; zero for others
	CreatedAt time.Time
	UpdatedAt time.Time
	Writer    string // subject of the token that wrote the present value
}

// Ref returns one ref; ErrRefNotFound if there is none or the caller may not read it.
func (r *Repo) Ref(ctx context.Context, c Caller, name refpolicy.RefName) (Ref, error) {
	if !c.Policy.CanRead(name) {
		return Ref{}, fmt.Errorf("%w: %s", ErrRefNotFound, name)
	}
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return Ref{}, fmt.Errorf("read ref %s: %w", name, err)
	}
	defer v.Close()
	return refOf(ctx, v, name)
}

func refOf(ctx context.Context, v ledger.View, name refpolicy.RefName) (Ref, error) {
	b, err := v.Get(ctx, refKey(name))
	if errors.Is(err, ledger.ErrNotFound) {
		return Ref{}, fmt.Errorf("%w: %s", ErrRefNotFound, name)
	}
	if err != nil {
		return Ref{}, fmt.Errorf("read ref %s: %w", name, err)
	}
	rec, err := decodeRefRecord(b)
	if err != nil {
		return Ref{}, fmt.Errorf("read ref %s: %w", name, err)
	}
	return rec.ref(name), nil
}

// Refs lists the refs below prefix that the caller may read, in byte order of the
// stored names, at most limit (<= 0: all), after the name after ("" for the start).
func (r *Repo) Refs(ctx context.Context, c Caller, prefix string, after refpolicy.RefName, limit int) ([]Ref, error) {
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return nil, fmt.Errorf("list refs: %w", err)
	}
	defer v.Close()
	return listRefs(ctx, v, c, prefix, after, limit)
}

// peekRefs lists like Refs what may still be on its way to the disk, for preparing a change.
func (r *Repo) peekRefs(ctx context.Context, c Caller, prefix string) ([]Ref, error) {
	v, err := r.ledger.Peek(ctx, r.space)
	if err != nil {
		return nil, fmt.Errorf("list refs: %w", err)
	}
	defer v.Close()
	return listRefs(ctx, v, c, prefix, "", 0)
}

func listRefs(ctx context.Context, v ledger.View, c Caller, prefix string, after refpolicy.RefName, limit int) ([]Ref, error) {
	start := refKeys + prefix
	if after != "" {
		start = refKey(after) + "\x00"
	}
	var refs []Ref
	for {
		page, err := v.Scan(ctx, refKeys+prefix, start, ledger.BulkKeys)
		if err != nil {
			return nil, fmt.Errorf("list refs: %w", err)
		}
		for _, it := range page {
			name := refpolicy.RefName(strings.TrimPrefix(it.Key, refKeys))
			if !c.Policy.CanRead(name) {
				continue
			}
			rec, err := decodeRefRecord(it.Value)
			if err != nil {
				return nil, fmt.Errorf("read ref %s: %w", name, err)
			}
			refs = append(refs, rec.ref(name))
			if limit > 0 && len(refs) == limit {
				return refs, nil
			}
		}
		if len(page) < ledger.BulkKeys {
			return refs, nil
		}
		start = page[len(page)-1].Key + "\x00"
	}
}

// BranchPage is one page of branches in order of creation.
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
// limit is at least 1. Errors: ErrBadCursor.
func (r *Repo) Branches(ctx context.Context, c Caller, ephemeral bool, cursor string, limit int) (BranchPage, error) {
	prefix := createdPrefix(ephemeral)
	start := prefix
	if cursor != "" {
		after, err := decodeCursor(cursor, branchCursor)
		if err != nil {
			return BranchPage{}, err
		}
		start = prefix + after + "\x00"
	}
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return BranchPage{}, fmt.Errorf("list branches: %w", err)
	}
	defer v.Close()
	var page BranchPage
	for {
		items, err := v.Scan(ctx, prefix, start, limit+1)
		if err != nil {
			return BranchPage{}, fmt.Errorf("list branches: %w", err)
		}
		for _, it := range items {
			place := strings.TrimPrefix(it.Key, prefix)
			_, name, _ := strings.Cut(place, "/")
			if !c.Policy.CanRead(refpolicy.RefName(name)) {
				continue
			}
			if len(page.Branches) == limit {
				page.Next = page.Branches[limit-1].Cursor
				return page, nil
			}
			ref, err := refOf(ctx, v, refpolicy.RefName(name))
			if errors.Is(err, ErrRefNotFound) {
				continue // deleted between two reads of a view that is no snapshot
			}
			if err != nil {
				return BranchPage{}, err
			}
			page.Branches = append(page.Branches, Branch{ref, encodeCursor(branchCursor, place)})
		}
		if len(items) <= limit {
			return page, nil
		}
		start = items[len(items)-1].Key + "\x00"
	}
}

// Cursors are URL-safe base64 of a kind, which carries the version, and the last key.
const (
	branchCursor = "b1:"
	repoCursor   = "r1:"
)

func encodeCursor(kind, key string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(kind + key))
}

func decodeCursor(cursor, kind string) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return "", fmt.Errorf("%w: not base64", ErrBadCursor)
	}
	key, ok := strings.CutPrefix(string(b), kind)
	if !ok {
		return "", fmt.Errorf("%w: of another call", ErrBadCursor)
	}
	return key, nil
}
