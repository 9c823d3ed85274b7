package gitstore

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
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
	raw, err := readKey(ctx, r.ledger.ReadKeys, r.space, refKey(name))
	if err != nil {
		return Ref{}, fmt.Errorf("read ref %s: %w", name, err)
	}
	return decodeRef(name, raw)
}

// Heads tells where refs are, in their order and all at one moment: the zero Ref for
// one that is not there. It is not asked who may read them.
func (r *Repo) Heads(ctx context.Context, names ...refpolicy.RefName) ([]Ref, error) {
	keys := make([]string, len(names))
	for n, name := range names {
		keys[n] = refKey(name)
	}
	raw, err := r.ledger.ReadKeys(ctx, r.space, keys...)
	if err != nil {
		return nil, fmt.Errorf("read refs: %w", err)
	}
	refs := make([]Ref, len(names))
	for n, name := range names {
		if raw[n] == nil {
			continue
		}
		if refs[n], err = decodeRef(name, raw[n]); err != nil {
			return nil, err
		}
	}
	return refs, nil
}

func refOf(ctx context.Context, v ledger.View, name refpolicy.RefName) (Ref, error) {
	b, err := v.Get(ctx, refKey(name))
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return Ref{}, fmt.Errorf("read ref %s: %w", name, err)
	}
	return decodeRef(name, b)
}

// decodeRef reads what stands under a ref's key; ErrRefNotFound if that is nothing.
func decodeRef(name refpolicy.RefName, raw []byte) (Ref, error) {
	if raw == nil {
		return Ref{}, fmt.Errorf("%w: %s", ErrRefNotFound, name)
	}
	rec, err := decodeRefRecord(raw)
	if err != nil {
		return Ref{}, fmt.Errorf("read ref %s: %w", name, err)
	}
	return rec.ref(name), nil
}

// Refs lists the refs below prefix, which begins with refs/, that the caller may
// read, in byte order of the stored names, at most limit (<= 0: all), after the name
// after ("" for the start). It reads no others.
func (r *Repo) Refs(ctx context.Context, c Caller, prefix string, after refpolicy.RefName, limit int) ([]Ref, error) {
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return nil, fmt.Errorf("list refs: %w", err)
	}
	defer v.Close()
	names := nameRanges{namesBelow(prefix)}.and(readableNames(c.Policy)).after(after)
	page := ledger.BulkKeys
	if limit > 0 {
		page = min(page, limit)
	}
	var refs []Ref
	for ref, err := range namedRefs(ctx, v, names, page) {
		if err != nil {
			return nil, fmt.Errorf("list refs: %w", err)
		}
		if refs = append(refs, ref); len(refs) == limit {
			break
		}
	}
	return refs, nil
}

// namedRefs yields the refs of a view whose names are asked for, in their order.
func namedRefs(ctx context.Context, v ledger.View, names nameRanges, page int) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		for it, err := range namedItems(ctx, v, refKeys, names, page) {
			var ref Ref
			if err == nil {
				ref, err = decodeRef(refpolicy.RefName(it.Key[len(refKeys):]), it.Value)
			}
			if !yield(ref, err) || err != nil {
				return
			}
		}
	}
}

// Cursors are URL-safe base64 of a kind, which carries the version, and the last key.
const (
	branchCursor      = "b1:"
	namedBranchCursor = "n1:"
	repoCursor        = "r1:"
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
