package gitstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// SnapshotObject reads a commit, a tree or a small blob of a snapshot whole, past the
// caches. It is not asked who may read it. ErrObjectNotFound, ErrDamaged, ErrTooLarge.
func (r *Repo) SnapshotObject(ctx context.Context, oid refpolicy.OID) (t ObjectType, data []byte, err error) {
	if oid == emptyTree {
		return TreeObject, nil, nil
	}
	return r.readStored(ctx, oid, nil)
}

// SnapshotChunk appends a blob to buf as it stands on disk now: whoever hashes it knows
// what a restore would read. Errors as of SnapshotObject.
func (r *Repo) SnapshotChunk(ctx context.Context, oid refpolicy.OID, buf []byte) ([]byte, error) {
	t, got, err := r.readStored(ctx, oid, buf)
	if err == nil && t != BlobObject {
		return buf, fmt.Errorf("%w: %s is a %s, not a blob", ErrObjectNotFound, oid, t)
	}
	return got, err
}

// readStored appends an object, of which the checksum but not the id was compared.
func (r *Repo) readStored(ctx context.Context, oid refpolicy.OID, buf []byte) (t ObjectType, got []byte, err error) {
	got = buf
	err = r.locate(ctx, oid, func(p *packs.Pack, h hotObject) error {
		if p == nil {
			data, err := h.inflate()
			t, got = h.typ, append(buf, data...)
			return err
		}
		typ, b, err := p.Append(oid, maxWhole, buf)
		if errors.Is(err, packs.ErrTooLarge) {
			return fmt.Errorf("%w: object %s is over %d bytes", ErrTooLarge, oid, maxWhole)
		}
		t, got = ObjectType(typ), b
		return err
	})
	return t, got, r.orGone(err)
}

// SnapshotSizes tells how many bytes objects have, without reading them: ErrObjectNotFound.
// It is not asked who may read them.
func (r *Repo) SnapshotSizes(ctx context.Context, ids []refpolicy.OID) ([]int64, error) {
	sizes := make([]int64, len(ids))
	for i, oid := range ids {
		var err error
		if _, sizes[i], err = r.header(ctx, oid); err != nil {
			return nil, r.orGone(err)
		}
	}
	return sizes, nil
}
