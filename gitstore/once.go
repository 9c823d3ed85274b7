package gitstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/gitstore/ledger"
)

// Once gives the answer that a call on the repo left under a Once's StoreKey, nil for
// none. It is durable: whoever is given it may be told.
func (r *Repo) Once(ctx context.Context, storeKey string) ([]byte, error) {
	return r.store.once(ctx, r.space, storeKey)
}

// OrgOnce is Repo.Once for calls that make or remove a repo of org.
func (s *Store) OrgOnce(ctx context.Context, org, storeKey string) ([]byte, error) {
	return s.once(ctx, ledger.OrgSpace(org), storeKey)
}

// once waits for what is being synced only if there is an answer: what is not there
// even among that is not there.
func (s *Store) once(ctx context.Context, space ledger.Space, storeKey string) ([]byte, error) {
	stored, err := readKey(ctx, s.ledger.PeekKeys, space, storeKey)
	if err == nil && stored != nil {
		stored, err = readKey(ctx, s.ledger.ReadKeys, space, storeKey)
	}
	if err != nil {
		return nil, fmt.Errorf("read stored answer: %w", err)
	}
	return stored, nil
}

// orRepeated tells of a call that was refused or failed that it had been made before,
// if it had: another call of its key may have come in between and be the reason. Whose
// batch may have been applied all the same keeps its error, since files hang on it.
func (s *Store) orRepeated(ctx context.Context, space ledger.Space, storeKey string, err error) error {
	var unsure unsureError
	if err == nil || storeKey == "" || errors.As(err, &unsure) {
		return err
	}
	if _, known := ledger.IsRepeated(err); known {
		return err
	}
	stored, rerr := s.once(ctx, space, storeKey)
	if rerr != nil || stored == nil {
		return err
	}
	return ledger.Repeated(stored)
}

func (r *Repo) orRepeated(ctx context.Context, storeKey string, err error) error {
	return r.store.orRepeated(ctx, r.space, storeKey, err)
}

// onceOf lets an update keep the answer of the call that it is made for.
func onceOf[T any](o *ledger.Once[T], result func(UpdateResult) T) *ledger.Once[UpdateResult] {
	if o == nil {
		return nil
	}
	return &ledger.Once[UpdateResult]{
		Key:    o.Key,
		Answer: func(u UpdateResult) ([]byte, error) { return o.Answer(result(u)) },
	}
}
