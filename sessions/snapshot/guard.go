package snapshot

import (
	"context"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// An intent is what a call of this package moves refs for, or changes records. It may be
// asked several times, for each batch that is tried; the last one counts, so it leaves
// its result in itself anew each time.
type intent interface {
	fill(ctx context.Context, g *guarding) error
}

// guarding is one answer of the guard in the making.
type guarding struct {
	k   *Keeper
	q   GuardRequest
	by  reader
	a   GuardAnswer
	due time.Time // the earliest look that it asks for; zero: none
}

// Guard is asked about every change of refs, as sessions' is, and answers for the refs of
// snapshots and bases: only this Keeper's own calls move them. What may not be durable
// yet can only let a change pass, since the batch checks it.
func (k *Keeper) Guard(ctx context.Context, q GuardRequest) (a GuardAnswer, err error) {
	in, ours := q.Intent.(intent)
	if !ours {
		return GuardAnswer{}, byHand(q.Changes)
	}
	for _, by := range []reader{k.peeks(q.Repo), k.reads(q.Repo)} {
		g := &guarding{k: k, q: q, by: by}
		if err = in.fill(ctx, g); err == nil {
			g.tidy()
			k.looks.note(q.Repo, g.due)
			return g.a, nil
		}
	}
	return GuardAnswer{}, err
}

// byHand refuses changes of refs that are the Keeper's alone.
func byHand(changes []Change) error {
	for _, c := range changes {
		switch {
		case c.Old == c.New: // it only demands its value
		case strings.HasPrefix(c.Ref+"/", RefPrefix):
			return ErrByHand
		case strings.HasPrefix(c.Ref+"/", BasePrefix):
			return ErrBase
		}
	}
	return nil
}

// put writes a record, with when the reaper has to look at it.
func (g *guarding) put(old stored, r record, due time.Time) record {
	r.Due = due
	g.due = earliest(g.due, due)
	g.a.Rider.Join(put(old, r))
	return r
}

// event says what the log entry tells.
func (g *guarding) event(kind, session string, data eventData) {
	g.a.Type, g.a.Session, g.a.Data = kind, session, mustJSON(data)
}

// ride stores the answer of a call that may be repeated.
func ride[T any](g *guarding, once *ledger.Once[T], result T) error {
	rider, err := once.Rider(result, g.q.Now)
	if err != nil {
		return err
	}
	g.a.Rider.Join(rider)
	return nil
}

// tidy takes out checks that are made twice, and adds up counters that are changed twice.
func (g *guarding) tidy() {
	g.a.Checks = unique(g.a.Checks)
	var adds []ledger.Add
	at := map[string]int{}
	for _, a := range g.a.Adds {
		if i, ok := at[a.Key]; ok {
			adds[i].Delta += a.Delta
			continue
		}
		at[a.Key] = len(adds)
		adds = append(adds, a)
	}
	g.a.Adds = adds
}

func unique(checks []ledger.Check) (out []ledger.Check) {
	seen := map[string]bool{}
	for _, c := range checks {
		id := string(rune(c.Kind)) + c.Key
		if !seen[id] {
			out = append(out, c)
		}
		seen[id] = true
	}
	return out
}
