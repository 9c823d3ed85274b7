package gitstore

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// repoName is what a repo is called by.
type repoName struct{ org, name string }

// foundAtOnce gives a repo that was found under its name before. That the name is still
// its own, and its record still the one known, is read each time, both at once; if either
// is not so it is nil, and the repo has to be looked for.
func (s *Store) foundAtOnce(ctx context.Context, org, name string) (*Repo, error) {
	l, ok := s.ledger.(ledger.SpacesReader)
	if !ok {
		return nil, nil
	}
	id, ok := s.named.Load(repoName{org, name})
	if !ok {
		return nil, nil
	}
	r, err := s.cached(id.(string))
	if r == nil || err != nil {
		s.named.Delete(repoName{org, name})
		return nil, err
	}
	got, err := l.ReadSpaces(ctx,
		ledger.SpaceKeys{Space: ledger.OrgSpace(org), Keys: []string{nameKey(name)}},
		ledger.SpaceKeys{Space: r.space, Keys: []string{metaKey}})
	if err != nil {
		return nil, fmt.Errorf("find repo: %w", err)
	}
	m := r.meta.Load()
	if string(got[0][0]) != r.id || m == nil || !bytes.Equal(m.raw, got[1][0]) {
		s.named.Delete(repoName{org, name})
		return nil, nil
	}
	r.usedAt.Store(time.Now().UnixNano())
	return r, nil
}

// unname forgets under which name a repo was found that is not kept open any more.
func (s *Store) unname(r *Repo) {
	if m := r.meta.Load(); m != nil {
		s.named.CompareAndDelete(repoName{m.info.Org, m.info.Name}, r.id)
	}
}
