package gitstore

import (
	"context"
	"fmt"
	"os"

	"github.com/headgate/headgate/gitstore/gitcmd"
)

// newFilters bounds the changed-path filters that one index computes anew: each takes
// a diff of its commit. The others come from the graph before; what is over the
// bound has its turn with the next index.
const newFilters = 100_000

// writeCommitGraph writes the graph of all commits that tips lead to into an index
// folder, with the filters that tell which commits may have changed a path. The index
// in use is read along, so that what it knows is not computed again.
func (r *Repo) writeCommitGraph(ctx context.Context, name string, tips *tipsFile) error {
	in, err := os.Open(tips.path)
	if err != nil {
		return fmt.Errorf("write commit-graph: %w", err)
	}
	defer in.Close()
	cmd := gitcmd.Cmd{
		Args:   []string{"commit-graph", "write", "--stdin-commits", "--changed-paths", "--no-progress", fmt.Sprintf("--max-new-filters=%d", newFilters)},
		GitDir: r.dir.Root(), ObjectDir: r.dir.IndexPath(name), Stdin: in, Timeout: transferTimeout,
	}
	old, release := r.useIndex(ctx)
	defer release()
	if old != "" {
		cmd.Alternates = []string{old}
	}
	return r.store.runLow(ctx, cmd)
}
