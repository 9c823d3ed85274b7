package sessions

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

const (
	// fullLook is how often every repo that has sessions is looked at: another node
	// may have brought something forward there and died.
	fullLook = time.Minute
	markPage = 500
)

// Run reaps until ctx ends, whose error it returns. It wakes up when the first look
// that it knows of is due, sooner when this process brings one forward, and every
// ReapEvery at the latest.
func (k *Keeper) Run(ctx context.Context) error {
	var full time.Time // when all repos were looked at last
	for {
		wait := k.Limits.ReapEvery
		if now, err := k.Ledger.Now(ctx); err != nil {
			k.trouble(ctx, "read the ledger's clock", err)
		} else {
			if now.Sub(full) >= fullLook {
				if err := k.noteMarked(ctx, now); err != nil {
					k.trouble(ctx, "look for repos with sessions", err)
				} else {
					full = now
				}
			}
			wait = k.round(ctx, now)
		}
		if err := k.rest(ctx, wait); err != nil {
			return err
		}
	}
}

// round reaps in the repos that are due, and tells how long to rest.
func (k *Keeper) round(ctx context.Context, now time.Time) time.Duration {
	due, first := k.looks.take(now)
	for _, repo := range due {
		next, err := k.Reap(ctx, repo)
		if err != nil {
			k.trouble(ctx, "reap", err)
			next = now.Add(k.Limits.ReapEvery)
		}
		k.looks.note(repo, next)
		first = earliest(first, next)
	}
	if first.IsZero() {
		return k.Limits.ReapEvery
	}
	return max(time.Millisecond, min(first.Sub(now), k.Limits.ReapEvery))
}

func (k *Keeper) rest(ctx context.Context, wait time.Duration) error {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-k.looks.sooner:
	case <-ctx.Done():
	}
	return ctx.Err()
}

func (k *Keeper) trouble(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		k.Logger.WarnContext(ctx, what, "err", err)
	}
}

// noteMarked makes every repo that has, or had, sessions due now, and takes the marks
// of those away that are no more. A mark that this process knows of and that is not
// there was lost with other writes of the ledger: it is written again.
func (k *Keeper) noteMarked(ctx context.Context, now time.Time) error {
	v, err := k.Ledger.Read(ctx, ledger.ServerSpace)
	if err != nil {
		return fmt.Errorf("read marks: %w", err)
	}
	defer v.Close()
	found := map[string]bool{}
	for start := ""; ; {
		items, err := v.Scan(ctx, markKeys, start, markPage)
		if err != nil {
			return fmt.Errorf("read marks: %w", err)
		}
		for _, it := range items {
			var repo Repo
			if err := json.Unmarshal(it.Value, &repo); err != nil {
				return fmt.Errorf("decode mark of repo %s: %w", strings.TrimPrefix(it.Key, markKeys), err)
			}
			found[repo.ID] = true
			if err := k.noteRepo(ctx, repo, now); err != nil {
				return err
			}
		}
		if len(items) < markPage {
			return k.markAgain(ctx, found, now)
		}
		start = items[markPage-1].Key + "\x00"
	}
}

// markAgain writes the marks that this process knows of and that were not found.
func (k *Keeper) markAgain(ctx context.Context, found map[string]bool, now time.Time) error {
	var lost []Repo
	k.marked.Range(func(_, repo any) bool {
		if repo := repo.(Repo); !found[repo.ID] {
			lost = append(lost, repo)
		}
		return true
	})
	for _, repo := range lost {
		if err := k.writeMark(ctx, repo); err != nil {
			return err
		}
		if err := k.noteRepo(ctx, repo, now); err != nil {
			return err
		}
	}
	return nil
}

// noteRepo makes a repo due. One that was deleted has no key left, and its id never
// comes back: its mark goes.
func (k *Keeper) noteRepo(ctx context.Context, repo Repo, now time.Time) error {
	v, err := k.Ledger.Read(ctx, ledger.RepoSpace(repo.ID))
	if err != nil {
		return fmt.Errorf("look at repo %s: %w", repo.ID, err)
	}
	defer v.Close()
	any, err := v.Scan(ctx, "", "", 1)
	if err != nil {
		return fmt.Errorf("look at repo %s: %w", repo.ID, err)
	}
	if len(any) > 0 {
		k.looks.note(repo, now)
		return nil
	}
	b := ledger.Batch{Space: ledger.ServerSpace, Deletes: []string{markKey(repo.ID)}}
	if _, err := k.Ledger.Apply(ctx, b); err != nil {
		return fmt.Errorf("drop mark of repo %s: %w", repo.ID, err)
	}
	k.marked.Delete(repo.ID)
	return nil
}
