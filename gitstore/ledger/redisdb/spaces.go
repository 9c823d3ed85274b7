package redisdb

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/gitstore/ledger"
)

var _ ledger.SpacesReader = (*DB)(nil)

// ReadSpaces implements ledger.SpacesReader.
func (d *DB) ReadSpaces(ctx context.Context, asked ...ledger.SpaceKeys) ([][][]byte, error) {
	if d.closed.Load() {
		return nil, ledger.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read spaces: %w", err)
	}
	limited, cancel := d.limited(ctx, 0, 0)
	defer cancel()
	cmds := make([]*redis.SliceCmd, len(asked))
	calls := make([]call, len(asked))
	for i, a := range asked {
		cmd, size := getMany(limited, keysOf(a.Space), a.Keys)
		cmds[i], calls[i] = cmd, d.reads.begin(limited, cmd, size)
	}
	values := make([][][]byte, len(asked))
	var failed error
	for i, a := range asked {
		if err := calls[i].wait(limited); err != nil && failed == nil {
			failed = d.fail(ctx, "get keys in", a.Space, err)
		}
		if failed == nil {
			values[i] = valuesOf(cmds[i])
		}
	}
	if failed != nil {
		return nil, failed
	}
	return values, nil
}
