package gitstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// A LogEvent is an entry of a repo's log as a caller may see it. What it refers to is
// shared with others and must not be changed.
type LogEvent struct {
	Seq     uint64 // its number in the log; numbers have no gaps, what a caller is shown may have
	At      time.Time
	Type    string
	Actor   Actor
	Changes []LogChange
	Session string          // the session it is about; may be empty
	Data    json.RawMessage // what else there is to say, by Type; may be nil
}

// EventResync is the type of an event that says: what came before is not known here any
// more, or no longer holds; this is how things stand. Its Data is a Resync. One that is
// made because After is unknown has the number of the newest entry; one in the log, of
// a ledger that lost writes, has its own.
const EventResync = "resync"

// Resync is the Data of an event of type EventResync.
type Resync struct {
	Refs      []ResyncRef `json:"refs"`      // those that the caller may read, in byte order
	Truncated bool        `json:"truncated"` // there are more refs than are told
	AsOf      uint64      `json:"as_of"`     // the state holds all entries up to this one
}

// ResyncRef is where a ref is.
type ResyncRef struct {
	Ref refpolicy.RefName `json:"ref"`
	SHA refpolicy.OID     `json:"sha"`
}

// EventQuery says which events are asked for.
type EventQuery struct {
	After   uint64            // those numbered above it
	Session string            // those about one session; empty: all
	Ref     refpolicy.RefName // the session's ref: a resync then tells of that alone
	Limit   int               // at most so many events; 0: 100, never more than 1,000
}

// EventPage is what was found.
type EventPage struct {
	Events []LogEvent
	// Last is the number of the newest entry that was looked at: reading goes on after
	// it, also when there was nothing for the caller.
	Last   uint64
	Newest uint64 // number of the newest entry of the log
	More   bool   // there are entries after Last
}

// Bounds of one call of Events.
const (
	eventsDefault = 100
	eventsMost    = 1_000
	eventsLooked  = 4_000   // entries looked at, whoever may see them
	eventsBytes   = 8 << 20 // of entries looked at; the one that goes beyond is the last
	resyncRefs    = 1_000
)

// Events gives entries of the log after a number, oldest first, as far as the caller may
// read the refs they are about: changes of others are left out, and an entry of which
// nothing is left. What one call costs is bounded, whatever is left out; Last says how
// far it came. A number that the log does not know, because it is older than all that
// is kept or newer than all there is, gives a single EventResync. Errors: ErrRepoNotFound.
func (r *Repo) Events(ctx context.Context, c Caller, q EventQuery) (EventPage, error) {
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return EventPage{}, fmt.Errorf("read events: %w", err)
	}
	defer v.Close()
	newest, err := v.LastSeq(ctx)
	if err != nil {
		return EventPage{}, fmt.Errorf("read events: %w", err)
	}
	w := eventWalk{r: r, v: v, c: c, q: q, page: EventPage{Last: q.After, Newest: newest}}
	if q.After <= newest {
		err = w.run(ctx)
	}
	if q.After > newest || errors.Is(err, ledger.ErrLogTrimmed) {
		err = w.resync(ctx)
	}
	if err != nil {
		return EventPage{}, r.orGone(fmt.Errorf("read events: %w", err))
	}
	w.page.Newest = max(newest, w.page.Last) // a view may be read afresh by each call
	w.page.More = w.page.Last < newest
	return w.page, nil
}

// WatchEvents returns a channel that gets a value when there may be new events, on
// whatever node they came about; wake-ups are merged. It is closed when ctx ends or the
// ledger is closed.
func (r *Repo) WatchEvents(ctx context.Context) (<-chan struct{}, error) {
	wake, err := r.ledger.Watch(ctx, r.space)
	if err != nil {
		return nil, fmt.Errorf("watch events: %w", err)
	}
	return wake, nil
}

// eventWalk is one call of Events.
type eventWalk struct {
	r      *Repo
	v      ledger.View
	c      Caller
	q      EventQuery
	page   EventPage
	looked int
	bytes  int
}

func (w *eventWalk) limit() int {
	if w.q.Limit <= 0 {
		return eventsDefault
	}
	return min(w.q.Limit, eventsMost)
}

// run looks at entries until there are enough events, or enough was looked at.
func (w *eventWalk) run(ctx context.Context) error {
	limit, step := w.limit(), firstLogStep
	for w.page.Last < w.page.Newest && w.looked < eventsLooked && w.bytes < eventsBytes {
		entries, err := w.r.logged(ctx, w.v, w.page.Last, step.entries())
		if err != nil {
			return w.unlessFound(err)
		}
		if len(entries) == 0 {
			return nil
		}
		before := w.bytes
		for _, e := range entries {
			if len(w.page.Events) == limit || w.bytes >= eventsBytes {
				return nil
			}
			if err := w.look(ctx, e); err != nil {
				return err
			}
		}
		step = step.next(w.bytes - before)
	}
	return nil
}

// unlessFound is nil for a log that was trimmed under the call, if that has come
// somewhere: the next call sees to the rest.
func (w *eventWalk) unlessFound(err error) error {
	if errors.Is(err, ledger.ErrLogTrimmed) && w.page.Last > w.q.After {
		return nil
	}
	return err
}

// look takes an entry into the page if it is for the caller.
func (w *eventWalk) look(ctx context.Context, e *logged) error {
	w.page.Last = e.Seq
	w.looked++
	w.bytes += e.size
	if e.Type == EventResync {
		ev := e.LogEvent
		ev.Changes, ev.Session = nil, ""
		var err error
		if ev.Data, err = w.state(ctx); err == nil {
			w.page.Events = append(w.page.Events, ev)
		}
		return err
	}
	if ev, ok := e.of(w.q.Session); ok {
		if ev, ok = ev.readableBy(w.c.Policy); ok {
			w.page.Events = append(w.page.Events, ev.LogEvent)
		}
	}
	return nil
}

// resync makes the page tell the present state alone.
func (w *eventWalk) resync(ctx context.Context) error {
	got, err := readKey(ctx, w.r.ledger.ReadKeys, w.r.space, metaKey)
	if err == nil && got == nil {
		err = ErrRepoNotFound
	}
	if err != nil {
		return err
	}
	at, err := w.r.ledger.Now(ctx)
	if err != nil {
		return err
	}
	data, err := w.state(ctx)
	if err != nil {
		return err
	}
	w.page.Events = []LogEvent{{Seq: w.page.Newest, At: at, Type: EventResync, Data: data}}
	w.page.Last = w.page.Newest
	return nil
}

// state is what a resync tells: the refs are read after the newest number was.
func (w *eventWalk) state(ctx context.Context) (json.RawMessage, error) {
	s := Resync{Refs: []ResyncRef{}, AsOf: w.page.Newest}
	if w.q.Ref != "" {
		ref, err := w.r.Ref(ctx, w.c, w.q.Ref)
		if err == nil {
			s.Refs = append(s.Refs, ResyncRef{ref.Name, ref.OID})
		} else if !errors.Is(err, ErrRefNotFound) {
			return nil, err
		}
		return mustJSON(s), nil
	}
	refs, err := w.r.Refs(ctx, w.c, refpolicy.RefsPrefix, "", resyncRefs+1)
	if err != nil {
		return nil, err
	}
	if s.Truncated = len(refs) > resyncRefs; s.Truncated {
		refs = refs[:resyncRefs]
	}
	for _, ref := range refs {
		s.Refs = append(s.Refs, ResyncRef{ref.Name, ref.OID})
	}
	return mustJSON(s), nil
}
