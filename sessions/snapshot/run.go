package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

const (
	// fullLook is how often every repo that has snapshots is looked at: another node may
	// have brought something forward there and died.
	fullLook = time.Minute
	markPage = 500
)

// Run lets go of what nothing keeps any more, until ctx ends, whose error it returns. It
// wakes up when the first look that it knows of is due, sooner when this process brings
// one forward, and every ReapEvery at the latest.
func (k *Keeper) Run(ctx context.Context) error {
	var full time.Time // when all repos were looked at last
	for {
		wait := k.Limits.ReapEvery
		if now, err := k.now(ctx); err != nil {
			k.trouble(ctx, "reap snapshots", err)
		} else {
			if now.Sub(full) >= fullLook {
				if err := k.noteMarked(ctx, now); err != nil {
					k.trouble(ctx, "look for repos with snapshots", err)
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
			k.trouble(ctx, "reap snapshots", err)
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

// mark writes down for the reaper, once, that the repo has snapshots. A repo's id is
// never used again.
func (k *Keeper) mark(ctx context.Context, repo RepoID) error {
	if k.looks.isMarked(repo.ID) {
		return nil
	}
	if err := k.writeMark(ctx, repo); err != nil {
		return err
	}
	k.looks.mark(repo)
	return nil
}

func (k *Keeper) writeMark(ctx context.Context, repo RepoID) error {
	key := markKey(repo.ID)
	got, err := k.Ledger.ReadKeys(ctx, ledger.ServerSpace, key)
	if err != nil {
		return fmt.Errorf("read mark of repo %s: %w", repo.ID, err)
	}
	if got[0] != nil {
		return nil
	}
	b := ledger.Batch{Space: ledger.ServerSpace, Sets: []ledger.Set{{Key: key, Value: mustJSON(repo)}}}
	if _, err := k.Ledger.Apply(ctx, b); err != nil {
		return fmt.Errorf("mark repo %s: %w", repo.ID, err)
	}
	return nil
}

// noteMarked makes every repo that has, or had, snapshots due now, and takes the marks of
// those away that are no more. A mark that this process knows of and that is not there
// was lost with other writes of the ledger: it is written again.
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
			var repo RepoID
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
	for _, repo := range k.looks.allMarked() {
		if found[repo.ID] {
			continue
		}
		if err := k.writeMark(ctx, repo); err != nil {
			return err
		}
		if err := k.noteRepo(ctx, repo, now); err != nil {
			return err
		}
	}
	return nil
}

// noteRepo makes a repo due. One that was deleted has no key left, and its id never comes
// back: its mark goes.
func (k *Keeper) noteRepo(ctx context.Context, repo RepoID, now time.Time) error {
	any, err := k.reads(repo).scan(ctx, "", "", 1)
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
	k.looks.unmark(repo.ID)
	return nil
}
