package httpapi

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/sessions/snapshot"
)

// A snapshotPack is a pack of the store in the words of snapshots.
type snapshotPack struct {
	*gitstore.SnapshotPack
	// vouched is set where package snapshot itself has made all that is in it.
	vouched bool
}

var (
	_ snapshot.Pack  = (*snapshotPack)(nil)
	_ snapshot.Stage = snapshotStage{}
)

// AddChunk implements snapshot.Pack.
func (p *snapshotPack) AddChunk(content []byte) (snapshot.OID, error) {
	id, err := p.SnapshotPack.AddChunk(content)
	return snapshot.OID(id), err
}

// AddObject implements snapshot.Pack.
func (p *snapshotPack) AddObject(typ string, data []byte) (snapshot.OID, error) {
	for _, t := range []gitstore.ObjectType{gitstore.CommitObject, gitstore.TreeObject, gitstore.BlobObject} {
		if t.String() == typ {
			id, err := p.SnapshotPack.AddObject(t, data)
			return snapshot.OID(id), err
		}
	}
	return snapshot.OID{}, fmt.Errorf("add object: %q is no type of a snapshot's objects", typ)
}

// Chunk implements snapshot.Pack.
func (p *snapshotPack) Chunk(id snapshot.OID, buf []byte) ([]byte, error) {
	got, err := p.SnapshotPack.Chunk(refpolicy.OID(id), buf)
	return got, snapshotError(err)
}

// Has implements snapshot.Pack.
func (p *snapshotPack) Has(id snapshot.OID) bool { return p.SnapshotPack.Has(refpolicy.OID(id)) }

// Finish implements snapshot.Pack.
func (p *snapshotPack) Finish(ctx context.Context) error {
	return snapshotError(p.SnapshotPack.Finish(ctx))
}

var errForeignPack = errors.New("move refs: the pack is none of this store, or not finished")

// bring puts the pack of a move into an update. A move without one leads to what is
// stored and kept, which the door looks at: the caller was found to be one who may
// delete, and need not reach the snapshot that is the last one then.
func bring(u *gitstore.Update, m snapshot.Move) error {
	if m.Pack == nil {
		u.Proved = true
		for _, c := range u.Changes {
			if !c.New.IsZero() && c.New != c.Old {
				u.Leans = append(u.Leans, c.New)
			}
		}
		return nil
	}
	p, ok := m.Pack.(*snapshotPack)
	if !ok || p.Incoming() == nil {
		return errForeignPack
	}
	u.Pack, u.Vouched = p.Incoming(), p.vouched
	return nil
}

// A snapshotStage is a stage of the store in the words of snapshots.
type snapshotStage struct{ *gitstore.SnapshotStage }

func stageKeyOf(c snapshot.Chunk) gitstore.StageKey {
	return gitstore.StageKey{Hash: c.Hash, Length: c.Length}
}

// Add implements snapshot.Stage.
func (s snapshotStage) Add(c snapshot.Chunk, blob []byte) (snapshot.OID, error) {
	id, err := s.SnapshotStage.Add(stageKeyOf(c), blob)
	return snapshot.OID(id), err
}

func stageKeys(chunks []snapshot.Chunk) []gitstore.StageKey {
	keys := make([]gitstore.StageKey, len(chunks))
	for i, c := range chunks {
		keys[i] = stageKeyOf(c)
	}
	return keys
}

// Sizes implements snapshot.Stage.
func (s snapshotStage) Sizes(chunks []snapshot.Chunk) []int {
	return s.SnapshotStage.Sizes(stageKeys(chunks))
}

// Has implements snapshot.Stage.
func (s snapshotStage) Has(chunks []snapshot.Chunk) []snapshot.OID {
	ids := s.SnapshotStage.Has(stageKeys(chunks))
	found := make([]snapshot.OID, len(ids))
	for i, id := range ids {
		found[i] = snapshot.OID(id)
	}
	return found
}

// Pack implements snapshot.Stage.
func (s snapshotStage) Pack(ctx context.Context) (snapshot.Pack, error) {
	p, err := s.SnapshotStage.Pack(ctx)
	if err != nil {
		return nil, snapshotError(err)
	}
	return &snapshotPack{SnapshotPack: p, vouched: true}, nil
}
