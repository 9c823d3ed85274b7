package gitstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// answersEvery is how often the spaces of orgs and of the server are swept of stored
// answers; those of repos are when they are looked after.
const answersEvery = 6 * time.Hour

// forgetAnswers removes the answers of a space that were kept for repeated calls long enough.
func (s *Store) forgetAnswers(ctx context.Context, space ledger.Space) error {
	for {
		more, err := s.forgetSome(ctx, space)
		if err != nil {
			return fmt.Errorf("forget stored answers of %s: %w", space, err)
		}
		if !more {
			return nil
		}
	}
}

// forgetSome removes as many as one batch of bulk work may: two keys stand for each.
func (s *Store) forgetSome(ctx context.Context, space ledger.Space) (more bool, err error) {
	const most = ledger.BulkKeys / 2
	now, err := s.ledger.Now(ctx)
	if err != nil {
		return false, err
	}
	v, err := s.ledger.Read(ctx, space)
	if err != nil {
		return false, err
	}
	defer v.Close()
	from, to := ledger.OnceDue(now)
	items, err := v.Range(ctx, from, to, most)
	if err != nil || len(items) == 0 {
		return false, err
	}
	rider := ledger.ForgetOnce(items)
	if len(rider.Deletes) == 0 {
		return false, fmt.Errorf("%w: key %.60q", ErrInvalid, items[0].Key)
	}
	_, err = s.ledger.Apply(ctx, ledger.Batch{Space: space, Deletes: rider.Deletes})
	return len(items) == most, err
}

// forgetAllAnswers does it for the spaces of orgs and of the server.
func (s *Store) forgetAllAnswers(ctx context.Context) error {
	bulk, ok := s.ledger.(ledger.Bulk)
	if !ok {
		return s.forgetAnswers(ctx, ledger.ServerSpace)
	}
	spaces := []ledger.Space{ledger.ServerSpace}
	err := bulk.Spaces(ctx, func(space ledger.Space) error {
		if strings.HasPrefix(string(space), orgSpaces) {
			spaces = append(spaces, space)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list orgs: %w", err)
	}
	for _, space := range spaces {
		if err := s.forgetAnswers(ctx, space); err != nil {
			return err
		}
	}
	return nil
}
