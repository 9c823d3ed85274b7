package snapshot

import (
	"bytes"
	"context"
	"fmt"
)

// parentsOf gives the parents of a commit.
func parentsOf(ctx context.Context, repo Repo, commit OID) (parents []OID, err error) {
	data, err := objectAs(ctx, repo, "commit", commit)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(data) {
		id, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte{'\n'}), []byte("parent "))
		if !ok {
			if len(parents) > 0 || len(line) == 1 {
				break
			}
			continue
		}
		parent, err := ParseOID(string(id))
		if err != nil {
			return nil, fmt.Errorf("%w: commit %s: %w", ErrDamaged, commit, err)
		}
		parents = append(parents, parent)
	}
	return parents, nil
}
