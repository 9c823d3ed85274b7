package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// How much of a repo's log is where. The newest entries are in the ledger: those of
// Limits.LogAge, at most about Limits.LogEntries of them. Older ones are in segments,
// for Limits.LogArchiveAge. Each step of moving them can be repeated, and a crash after
// any of them loses and doubles nothing: a segment is written, and is a file that nobody
// knows; a batch registers it, and everything in it is in both places; the ledger drops
// what is registered. Of several processes that do it at once one's batch is applied.

// archivedKey holds the number up to which the log is in segments. They may begin later.
const archivedKey = "log/archived"

// lossKey changes when the ledger turns out to have lost writes (the rooms above write
// it): what was read before is then no part of the log any more.
const lossKey = "epoch-base"

const (
	// logSlack is the part of a bound by which the ledger may exceed it, so that segments
	// are not many and small.
	logSlack = 20
	// registerWithin bounds how long after its beginning a segment may be registered: a
	// file that is older and was not is removed.
	registerWithin = time.Hour
	// logLookEvery is how often a log that did not grow is looked at.
	logLookEvery = time.Hour
)

// A logLook is when a log was looked at, and what was its newest entry.
type logLook struct {
	seq uint64
	at  time.Time
}

// logState is what there is to decide on.
type logState struct {
	gen      []byte // nil: there is no repo
	raw      []byte // of archivedKey
	loss     []byte // of lossKey
	archived uint64
	newest   uint64
	now      time.Time
}

func (r *Repo) logState(ctx context.Context) (st logState, err error) {
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return st, err
	}
	defer v.Close()
	got, err := v.GetMany(ctx, genKey, archivedKey, lossKey)
	if err != nil {
		return st, err
	}
	if st.gen, st.raw, st.loss = got[0], got[1], got[2]; st.raw != nil {
		if st.archived, err = strconv.ParseUint(string(st.raw), 10, 64); err != nil {
			return st, fmt.Errorf("read %s: %w", archivedKey, err)
		}
	}
	if st.newest, err = v.LastSeq(ctx); err != nil {
		return st, err
	}
	st.now, err = r.ledger.Now(ctx)
	return st, err
}

// keepLog moves what is old out of the ledger, and removes what is too old, if anything
// is: log entries and stored answers. It asks the ledger only whether the log has grown,
// and the rest when it has, or once an hour.
func (r *Repo) keepLog(ctx context.Context) error {
	st, err := r.logState(ctx)
	if err != nil || st.gen == nil {
		return err
	}
	if last, ok := r.store.logLooks.get(r.id); ok && last.seq == st.newest && st.now.Sub(last.at) < logLookEvery {
		return nil
	}
	due, err := r.logDue(ctx, st)
	if err == nil && due {
		r.upkeep.Lock()
		defer r.upkeep.Unlock()
		var release func()
		if release, err = r.lease(ctx, false); err != nil || release == nil {
			return err
		}
		defer release()
		err = r.tendLog(ctx)
	}
	if err == nil {
		r.store.logLooks.put(r.id, logLook{st.newest, st.now}, 1)
	}
	return err
}

// logDue reports whether there is anything for tendLog.
func (r *Repo) logDue(ctx context.Context, st logState) (bool, error) {
	if st.newest > st.archived && st.newest-st.archived > uint64(r.store.limits.LogEntries) {
		return true, nil
	}
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return false, err
	}
	defer v.Close()
	age := r.store.limits.LogAge
	oldest, err := v.Log(ctx, st.archived, 1)
	if errors.Is(err, ledger.ErrLogTrimmed) {
		return false, nil // another process is at it
	}
	if err != nil || len(oldest) > 0 && st.now.Sub(oldest[0].At) > age+age/logSlack {
		return err == nil, err
	}
	if _, ok, err := r.oldestSegment(ctx, v, st.now); ok || err != nil {
		return ok, err
	}
	from, to := ledger.OnceDue(st.now)
	answers, err := v.Range(ctx, from, to, 1)
	return len(answers) > 0, err
}

// tendLog does all that keepLog is for. The caller holds r.upkeep, which keeps a prune
// of this process away: it reads the log back to its beginning. Another's reads on in
// the segments.
func (r *Repo) tendLog(ctx context.Context) error {
	for {
		more, err := r.archive(ctx)
		if err != nil {
			return fmt.Errorf("move old log: %w", err)
		}
		if !more {
			break
		}
	}
	if err := r.removeSegments(ctx); err != nil {
		return fmt.Errorf("remove old log: %w", err)
	}
	if err := r.sweepSegments(ctx, sharedGrace); err != nil {
		return fmt.Errorf("remove old log: %w", err)
	}
	return r.store.forgetAnswers(ctx, r.space)
}

// archive moves one segment out of the ledger; more is false when nothing is due.
func (r *Repo) archive(ctx context.Context) (more bool, err error) {
	st, err := r.logState(ctx)
	if err != nil || st.gen == nil {
		return false, err
	}
	if st.archived > 0 { // what a crash kept from being dropped
		if err := r.ledger.TrimLog(ctx, r.space, st.archived+1); err != nil {
			return false, err
		}
	}
	w, err := r.segmentOf(ctx, st)
	if errors.Is(err, ledger.ErrLogTrimmed) {
		return false, nil // another process is at it
	}
	if w == nil || err != nil {
		return false, err
	}
	rec, err := w.finish()
	if err = errors.Join(err, w.close()); err != nil {
		return false, err
	}
	applied, err := r.registerSegment(ctx, st, rec)
	if err != nil || !applied {
		return false, err
	}
	return true, r.ledger.TrimLog(ctx, r.space, rec.Last+1)
}

// upTo is the number up to which entries are too many for the ledger.
func (st logState) upTo(most uint64) uint64 {
	if st.newest <= st.archived || st.newest-st.archived <= most {
		return 0
	}
	return st.newest - (most - most/logSlack)
}

// segmentOf writes those entries that are next to leave the ledger; nil for none.
func (r *Repo) segmentOf(ctx context.Context, st logState) (w *segmentWriter, err error) {
	upTo := st.upTo(uint64(r.store.limits.LogEntries))
	before := st.now.Add(-r.store.limits.LogAge)
	defer func() {
		if err != nil && w != nil {
			err = errors.Join(err, w.close())
			w = nil
		}
	}()
	err = r.eachLogged(ctx, st.archived, func(e ledger.Entry) (bool, error) {
		if e.Seq > upTo && !e.At.Before(before) {
			return false, nil
		}
		if w != nil && e.Seq != w.rec.Last+1 {
			return false, nil // after lost writes the numbers went on far above; a segment has no gap
		}
		if w == nil {
			if w, err = r.store.newSegment(r.id, e.Seq); err != nil {
				return false, err
			}
		}
		err := w.add(e)
		return !w.full(), err
	})
	return w, err
}

// eachLogged calls fn with the ledger's entries after a number until it gives false. Each
// page is read through a view of its own.
func (r *Repo) eachLogged(ctx context.Context, after uint64, fn func(ledger.Entry) (bool, error)) error {
	for step := firstLogStep; ; {
		entries, err := r.logPage(ctx, after, step.entries())
		if err != nil || len(entries) == 0 {
			return err
		}
		size := 0
		for _, e := range entries {
			if more, err := fn(e); err != nil || !more {
				return err
			}
			after, size = e.Seq, size+len(e.Data)
		}
		step = step.next(size)
	}
}

func (r *Repo) logPage(ctx context.Context, after uint64, limit int) ([]ledger.Entry, error) {
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return v.Log(ctx, after, limit)
}

// A logStep is how many entries are read at once. How long they are is known when they
// are read: few while they are long.
type logStep int

const (
	firstLogStep logStep = 8
	logStepBytes         = 512 << 10
)

func (s logStep) entries() int { return int(s) }

func (s logStep) next(size int) logStep {
	if size < logStepBytes {
		return min(2*s, ledger.BulkKeys)
	}
	return max(s/2, 1)
}

// registerSegment makes a segment exist; false: another process came first.
func (r *Repo) registerSegment(ctx context.Context, st logState, rec segmentRecord) (bool, error) {
	for gen := st.gen; ; {
		_, err := r.ledger.Apply(ctx, ledger.Batch{
			Space:  r.space,
			Checks: []ledger.Check{asRead(archivedKey, st.raw), asRead(lossKey, st.loss), ledger.Before(st.now.Add(registerWithin)), ledger.Equal(genKey, gen)},
			Sets: []ledger.Set{
				{Key: segmentKey(rec.Last), Value: mustJSON(rec)},
				{Key: archivedKey, Value: strconv.AppendUint(nil, rec.Last, 10)},
			},
		})
		var check *ledger.CheckError
		if !errors.As(err, &check) {
			return err == nil, err // a file of which nothing is sure is left to sweepSegments
		}
		if genMoved(err) && check.Present != nil {
			gen = check.Present // a prune has begun
			continue
		}
		err = r.store.fs.Remove(r.store.segmentPath(r.id, rec.Name))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil // with the whole repo
		}
		return false, err
	}
}

// asRead demands what was read under a key, nil for nothing.
func asRead(key string, value []byte) ledger.Check {
	if value == nil {
		return ledger.Absent(key)
	}
	return ledger.Equal(key, value)
}
