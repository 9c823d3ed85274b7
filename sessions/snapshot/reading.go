package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// A reader is one of the two ways to read a repo's space: what may not be durable yet,
// for preparing a batch that follows it, and what is.
type reader struct {
	space ledger.Space
	keys  func(ctx context.Context, s ledger.Space, keys ...string) ([][]byte, error)
	open  func(ctx context.Context, s ledger.Space) (ledger.View, error)
}

func (k *Keeper) peeks(repo RepoID) reader {
	return reader{ledger.RepoSpace(repo.ID), k.Ledger.PeekKeys, k.Ledger.Peek}
}

func (k *Keeper) reads(repo RepoID) reader {
	return reader{ledger.RepoSpace(repo.ID), k.Ledger.ReadKeys, k.Ledger.Read}
}

func (r reader) get(ctx context.Context, keys ...string) ([][]byte, error) {
	got, err := r.keys(ctx, r.space, keys...)
	if err != nil {
		return nil, fmt.Errorf("read snapshots: %w", err)
	}
	return got, nil
}

// scan gives up to limit items below prefix, from start on.
func (r reader) scan(ctx context.Context, prefix, start string, limit int) ([]ledger.Item, error) {
	v, err := r.open(ctx, r.space)
	if err != nil {
		return nil, fmt.Errorf("read snapshots: %w", err)
	}
	defer v.Close()
	items, err := v.Scan(ctx, prefix, start, limit)
	if err != nil {
		return nil, fmt.Errorf("scan snapshots: %w", err)
	}
	return items, nil
}

// record reads one record; one that is not there is no error.
func (r reader) record(ctx context.Context, id string) (stored, error) {
	got, err := r.get(ctx, recordKey(id))
	if err != nil {
		return stored{}, err
	}
	return decodeRecord(got[0])
}

// records reads records by id, in their order; those that are gone do not exist.
func (r reader) records(ctx context.Context, ids []string) ([]stored, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = recordKey(id)
	}
	got, err := r.get(ctx, keys...)
	if err != nil {
		return nil, err
	}
	all := make([]stored, len(ids))
	for i, raw := range got {
		if all[i], err = decodeRecord(raw); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (r reader) standing(ctx context.Context, session string) (storedStanding, error) {
	got, err := r.get(ctx, standingKey(session))
	if err != nil {
		return storedStanding{}, err
	}
	return decodeStanding(session, got[0])
}

// keptPage is how many kept snapshots are read at once.
const keptPage = 64

// kept calls each for the snapshots of a session that have a commit, newest first, until
// it says stop.
func (r reader) kept(ctx context.Context, session string, each func(stored) (stop bool, err error)) error {
	prefix, start := keptPrefix(session), ""
	for {
		items, err := r.scan(ctx, prefix, start, keptPage)
		if err != nil || len(items) == 0 {
			return err
		}
		all, err := r.records(ctx, idsOf(prefix, items))
		if err != nil {
			return err
		}
		for _, s := range all {
			if !s.exists() {
				continue
			}
			if stop, err := each(s); err != nil || stop {
				return err
			}
		}
		if len(items) < keptPage {
			return nil
		}
		start = items[len(items)-1].Key + "\x00"
	}
}

// newest is the newest ready snapshot of a session besides one; it need not exist.
func (r reader) newest(ctx context.Context, session string, besides OID) (found stored, err error) {
	err = r.kept(ctx, session, func(s stored) (bool, error) {
		if s.State != Ready || s.Commit == besides {
			return false, nil
		}
		found = s
		return true, nil
	})
	return found, err
}

// idsOf are the ids that places below prefix name.
func idsOf(prefix string, items []ledger.Item) []string {
	ids := make([]string, len(items))
	for i, it := range items {
		ids[i] = it.Key[len(prefix)+whenLength:]
	}
	return ids
}

// known is the *ledger.RepeatedError of a call that was made before: storeKey is where
// its answer would be, empty for a call that may not be repeated.
func (r reader) known(ctx context.Context, storeKey string) error {
	if storeKey == "" {
		return nil
	}
	got, err := r.get(ctx, storeKey)
	if err != nil {
		return err
	}
	return ledger.Repeated(got[0])
}

// counters are what the repo is charged with, and how many snapshots it keeps.
func (r reader) counters(ctx context.Context) (bytes, count int64, err error) {
	got, err := r.get(ctx, bytesKey, countKey)
	if err != nil {
		return 0, 0, err
	}
	for i, into := range []*int64{&bytes, &count} {
		if got[i] == nil {
			continue
		}
		if *into, err = strconv.ParseInt(string(got[i]), 10, 64); err != nil {
			return 0, 0, fmt.Errorf("decode counter of snapshots: %w", err)
		}
	}
	return bytes, count, nil
}

// room is a *FullError if there is none for a snapshot of so many more bytes.
func (k *Keeper) room(ctx context.Context, by reader, more int64) error {
	bytes, count, err := by.counters(ctx)
	switch {
	case err != nil:
		return err
	case count+1 > int64(k.Limits.MaxCount):
		return &FullError{What: "number of snapshots", Slots: true, Quota: int64(k.Limits.MaxCount), Use: count + 1}
	case k.Limits.Quota > 0 && bytes+more > k.Limits.Quota:
		return &FullError{What: "quota of snapshot bytes", Quota: k.Limits.Quota, Use: bytes + more}
	}
	return nil
}

func (k *Keeper) now(ctx context.Context) (time.Time, error) {
	now, err := k.Ledger.Now(ctx)
	if err != nil {
		return now, fmt.Errorf("read the ledger's clock: %w", err)
	}
	return now, nil
}

// changeTries is how often a batch is made anew when what it was made from has changed.
const changeTries = 64

// change applies what an intent fills in, without moving a ref, and anew whenever what
// it was made from has changed meanwhile.
func (k *Keeper) change(ctx context.Context, repo RepoID, by Actor, in intent) error {
	for range changeTries {
		now, err := k.now(ctx)
		if err != nil {
			return err
		}
		g := &guarding{k: k, q: GuardRequest{Repo: repo, Actor: by, Now: now, Intent: in}, by: k.reads(repo)}
		if err := in.fill(ctx, g); err != nil {
			return err
		}
		g.tidy()
		b := ledger.Batch{Space: ledger.RepoSpace(repo.ID)}
		b.Carry(g.a.Rider)
		if len(b.Sets)+len(b.Deletes)+len(b.Adds) == 0 && g.a.Type == "" {
			return nil // there is nothing to change
		}
		b.Log = logEntry{Type: g.a.Type, Actor: by, Session: g.a.Session, Data: g.a.Data}.encode()
		_, err = k.Ledger.Apply(ctx, b)
		var failed *ledger.CheckError
		if errors.As(err, &failed) {
			continue
		}
		if err != nil {
			return fmt.Errorf("change snapshots: %w", err)
		}
		k.looks.note(repo, g.due)
		return nil
	}
	return fmt.Errorf("change snapshots: %w: they keep changing", ledger.ErrUnavailable)
}
