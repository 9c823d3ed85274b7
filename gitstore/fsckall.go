package gitstore

import (
	"context"
	"errors"
)

// FsckAll is Fsck for all repos that want picks (nil: all); tell gets what was found in
// each, nothing for a sound one. A repo that is deleted meanwhile is passed over. An
// error of tell ends it.
func (s *Store) FsckAll(ctx context.Context, want func(RepoInfo) bool, tell func(RepoInfo, []Finding) error) error {
	return s.EachRepo(ctx, func(r *Repo) error {
		info := r.Info()
		if want != nil && !want(info) {
			return nil
		}
		findings, err := s.Fsck(ctx, r)
		if errors.Is(err, ErrRepoNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		return tell(info, findings)
	})
}
