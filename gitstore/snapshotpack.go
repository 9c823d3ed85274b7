package gitstore

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// kindSnapshot are chunks of memory images with the trees and commits over them, all
// stored as they are.
const kindSnapshot = string(packs.KindSnapshot)

// ErrDamaged: what is on disk is not what was written there.
var ErrDamaged = packs.ErrPackBroken

// A SnapshotPack takes the new objects of a snapshot. It is safe for concurrent use.
// End it by Abort, which does nothing once the pack was registered.
type SnapshotPack struct {
	r  *Repo
	w  *packs.StoredWriter
	in atomic.Pointer[IncomingPack] // once it is finished, or was taken over
	// read is a pack that was taken over whole; w is nil then.
	read    *packs.Pack
	aborted atomic.Bool
}

// NewSnapshotPack begins a pack that nobody knows of.
func (r *Repo) NewSnapshotPack(ctx context.Context) (*SnapshotPack, error) {
	w, err := r.dir.NewStoredWriter(ctx)
	if err != nil {
		return nil, r.orGone(fmt.Errorf("begin snapshot pack: %w", err))
	}
	return &SnapshotPack{r: r, w: w}, nil
}

// errWhole: a pack that came whole takes nothing more.
var errWhole = fmt.Errorf("%w: it came whole", packs.ErrWriterDone)

// AddChunk adds a blob as it is, without deflating it. What was added before is not
// written again.
func (p *SnapshotPack) AddChunk(content []byte) (refpolicy.OID, error) {
	if p.w == nil {
		return refpolicy.OID{}, errWhole
	}
	return p.w.AddChunk(content)
}

// AddObject adds a commit, tree or small blob.
func (p *SnapshotPack) AddObject(t ObjectType, data []byte) (refpolicy.OID, error) {
	if p.w == nil {
		return refpolicy.OID{}, errWhole
	}
	return p.w.AddObject(packs.Type(t), data)
}

// Chunk appends what was added before to buf, read back from the file:
// ErrObjectNotFound, ErrDamaged.
func (p *SnapshotPack) Chunk(oid refpolicy.OID, buf []byte) (got []byte, err error) {
	if p.w != nil {
		got, err = p.w.Append(oid, buf)
	} else {
		_, got, err = p.read.Append(oid, maxWhole, buf)
	}
	if errors.Is(err, packs.ErrNotFound) {
		err = fmt.Errorf("%w: %s", ErrObjectNotFound, oid)
	}
	return got, err
}

// Has reports whether the object was added.
func (p *SnapshotPack) Has(oid refpolicy.OID) bool {
	if p.w == nil {
		return p.read.Has(oid)
	}
	return p.w.Has(oid)
}

// Bytes is the size of the pack so far.
func (p *SnapshotPack) Bytes() int64 {
	if p.w == nil {
		return p.read.Size()
	}
	return p.w.Size()
}

// Objects is how many were added.
func (p *SnapshotPack) Objects() int {
	if p.w == nil {
		return p.read.Count()
	}
	return p.w.Count()
}

// Finish makes the pack durable and reads all of it again from the file: a byte that is
// not as it was when its object's id was made is ErrDamaged.
func (p *SnapshotPack) Finish(ctx context.Context) error {
	if p.w == nil {
		return p.r.orGone(p.read.Check(ctx))
	}
	info, err := p.w.Finish(ctx)
	if err != nil {
		return p.r.orGone(fmt.Errorf("finish snapshot pack: %w", err))
	}
	p.in.Store(&IncomingPack{Info: info, Kind: kindSnapshot, Kept: true})
	return nil
}

// Incoming is the finished pack for Update.Pack, which may be tried as often as one
// likes; nil before Finish.
func (p *SnapshotPack) Incoming() *IncomingPack { return p.in.Load() }

// Abort removes the pack unless an update has registered it.
func (p *SnapshotPack) Abort() {
	if p.aborted.Swap(true) {
		return
	}
	if p.read != nil {
		p.read.Release()
	}
	in := p.in.Load()
	switch {
	case in == nil:
		if err := p.w.Abort(); err != nil {
			p.r.store.log.Warn("remove snapshot pack", "repo", p.r.id, "err", err)
		}
	case !in.registered.Load():
		// It may be registered after all, when nobody knows what became of its batch.
		p.r.dropPack(context.Background(), in.Name, unsureError{errAborted})
	}
}

var errAborted = errors.New("snapshot pack was aborted")
