package sessions

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

const (
	// sweepPage keeps a sweep's batch small: two keys for each item of two lists.
	sweepPage = ledger.BulkKeys / 4
	// sweepGrain is how long what is due may lie, so that a sweep finds more than one.
	sweepGrain = time.Minute
)

// sweepTokens removes records of tokens that have expired by now, and revocations
// that no token needs any more: at most one batch. Next is when there is more to do;
// zero: there is nothing.
func (k *Keeper) sweepTokens(ctx context.Context, repo Repo, now time.Time) (next time.Time, err error) {
	v, err := k.Ledger.Read(ctx, ledger.RepoSpace(repo.ID))
	if err != nil {
		return next, fmt.Errorf("sweep tokens: %w", err)
	}
	defer v.Close()
	var deletes []string
	for _, list := range []string{tokenDueKeys, revokedDueKeys} {
		items, err := v.Scan(ctx, list, list, sweepPage+1)
		if err != nil {
			return next, fmt.Errorf("sweep tokens: %w", err)
		}
		for i, it := range items {
			at, rest, ok := parseWhen(it.Key[len(list):])
			if !ok {
				return next, fmt.Errorf("sweep tokens: %q is no key of ours", it.Key)
			}
			if at.After(now) {
				next = earliest(next, at.Add(sweepGrain))
				break
			}
			if i == sweepPage {
				next = now
				break
			}
			deletes = append(deletes, it.Key, sweptKey(list, rest, it.Value))
		}
	}
	if len(deletes) == 0 {
		return next, nil
	}
	if _, err := k.Ledger.Apply(ctx, ledger.Batch{Space: ledger.RepoSpace(repo.ID), Deletes: deletes}); err != nil {
		return next, fmt.Errorf("sweep tokens: %w", err)
	}
	return next, nil
}

// sweptKey is what an item of a list of due things stands for.
func sweptKey(list, rest string, value []byte) string {
	if list == revokedDueKeys {
		return revokedKey(rest)
	}
	return tokenPrefix(string(value)) + rest
}

// tokenKeys are keys of what the tokens of an ended session have left, at most limit.
func (k *Keeper) tokenKeys(ctx context.Context, v ledger.View, id string, limit int) ([]string, error) {
	items, err := v.Scan(ctx, tokenPrefix(id), "", max(limit/2, 1))
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	keys := make([]string, 0, 2*len(items))
	for _, it := range items {
		_, tid, err := decodeToken(it.Value)
		if err != nil {
			return nil, err
		}
		keys = append(keys, it.Key, tokenDueKey(tid))
	}
	return keys, nil
}
