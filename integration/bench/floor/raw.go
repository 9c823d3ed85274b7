package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/gitstore/ledger"
)

// rawRedis stores batches in a Redis by a script that does nothing else: nothing is
// checked, ordered or remembered.
type rawRedis struct {
	client *redis.Client
}

var rawBatch = redis.NewScript(`
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
if ARGV[1] ~= '' then redis.call('XADD', KEYS[2], '*', 'd', ARGV[1]) end
return 1`)

func openRawRedis(address string) *rawRedis {
	return &rawRedis{redis.NewClient(&redis.Options{Addr: address, PoolSize: 128, Protocol: 2, DisableIdentity: true})}
}

func (r *rawRedis) Apply(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
	args := make([]any, 1, 1+2*len(b.Sets))
	args[0] = b.Log
	for _, set := range b.Sets {
		args = append(args, set.Key, set.Value)
	}
	return ledger.Result{}, rawBatch.Run(ctx, r.client, []string{"raw:{bench}:values", "raw:{bench}:log"}, args...).Err()
}

func (r *rawRedis) Close() error { return r.client.Close() }
