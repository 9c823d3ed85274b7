package gitstore

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// logged is an entry of the log, decoded.
type logged struct {
	LogEvent
	size  int
	names entryNames
	odd   bool // it cannot be told whom it concerns
}

// entryNames are what the data of an entry says of its own about whom it concerns.
// Whoever logs an entry about a session puts the session's ref or branch here: else its
// data, and without a change of the ref all of it, is for those alone who read everything.
type entryNames struct {
	Ref    refpolicy.RefName   `json:"ref"`
	Branch string              `json:"branch"` // short name of the session's branch
	Refs   []refpolicy.RefName `json:"refs"`   // others that the data tells of
	Ended  []string            `json:"ended"`  // the sessions that ended in one batch
	Cause  string              `json:"cause"`  // why they did

	// Of an entry about the repo's record.
	OldDefaultBranch string `json:"old_default_branch"`
	DefaultBranch    string `json:"default_branch"`
}

// own is the ref of the session that the entry is about; empty if it is not named.
func (n entryNames) own() refpolicy.RefName {
	if n.Ref == "" && n.Branch != "" {
		return refpolicy.RefName(refpolicy.EphemeralBranchPrefix + n.Branch)
	}
	return n.Ref
}

// all are the refs that are named.
func (n entryNames) all() []refpolicy.RefName {
	names := slices.Clone(n.Refs)
	if own := n.own(); own != "" {
		names = append(names, own)
	}
	for _, short := range []string{n.OldDefaultBranch, n.DefaultBranch} {
		if short != "" {
			names = append(names, refpolicy.RefName(refpolicy.BranchPrefix+short))
		}
	}
	return names
}

// entryUnknown is the type of an event whose entry cannot be read.
const entryUnknown = "unknown"

// decodeLogged reads an entry. One that is of no form known here must not keep readers
// from those behind it: it is shown to who may read everything alone.
func decodeLogged(e ledger.Entry) *logged {
	var form LogEntry
	l := &logged{size: len(e.Data), LogEvent: LogEvent{Seq: e.Seq, At: e.At, Type: entryUnknown}}
	if err := json.Unmarshal(e.Data, &form); err != nil {
		l.odd = true
		return l
	}
	l.Type, l.Actor, l.Changes, l.Session, l.Data = form.Type, form.Actor, form.Changes, form.Session, form.Data
	if len(l.Data) > 0 {
		l.odd = json.Unmarshal(l.Data, &l.names) != nil
	}
	return l
}

// logged reads entries of the log after a number, at most limit (at least 1). None is
// the end. It is ledger.ErrLogTrimmed when the next one is not kept any more.
func (r *Repo) logged(ctx context.Context, v ledger.View, after uint64, limit int) ([]*logged, error) {
	entries, err := r.logAfter(ctx, v, after, limit)
	if err != nil {
		return nil, err
	}
	all := make([]*logged, len(entries))
	for n, e := range entries {
		all[n] = decodeLogged(e)
	}
	return all, nil
}

// of is the entry as it concerns one session; ok is false if it does not. One that is
// about the session stays whole, of another only what happened to the session's refs.
func (l *logged) of(session string) (_ *logged, ok bool) {
	if session == "" || l.Session == session {
		return l, true
	}
	kept := changesOf(l.Changes, func(c LogChange) bool { return c.Session == session })
	if len(kept) == 0 && !slices.Contains(l.names.Ended, session) {
		return l, false
	}
	part := *l
	part.Changes = kept
	part.reduce(func(id string) bool { return id == session })
	return &part, true
}

// readableBy is the entry with all taken out of it that is about refs which may not be
// read; ok is false if nothing is left.
func (l *logged) readableBy(p *refpolicy.Policy) (_ *logged, ok bool) {
	if !p.RestrictsReads() {
		return l, true
	}
	if l.odd {
		return l, false
	}
	kept := changesOf(l.Changes, func(c LogChange) bool { return p.CanRead(c.Ref) })
	named := l.names.all()
	readable := changesOf(named, p.CanRead)
	if len(kept)+len(readable) == 0 {
		return l, false
	}
	own := l.names.own()
	mine := func(id string) bool {
		if id != "" && id == l.Session && own != "" && p.CanRead(own) {
			return true
		}
		return id != "" && slices.ContainsFunc(kept, func(c LogChange) bool { return c.Session == id })
	}
	part := *l
	if part.Actor.Session != "" && !mine(part.Actor.Session) { // nobody learns of another session by what it did
		part.Actor.Session, part.Actor.TokenID, part.Actor.Epoch = "", "", nil
	}
	whole := len(kept) == len(l.Changes) && len(readable) == len(named) &&
		(len(l.Data) == 0 || len(named) > 0) && len(changesOf(l.names.Ended, mine)) == len(l.names.Ended)
	if whole && (l.Session == "" || mine(l.Session)) {
		return &part, true
	}
	if part.Changes = kept; len(kept) == 0 && (l.Session == "" || !mine(l.Session)) {
		return l, false
	}
	part.reduce(mine)
	return &part, true
}

// reduce leaves of an entry, whose changes have been seen to, what is about the sessions
// that stay. Of its data that is which of them ended, and why.
func (l *logged) reduce(stays func(session string) bool) {
	ended := changesOf(l.names.Ended, stays)
	if l.Data = nil; len(ended) > 0 || l.names.Cause != "" {
		l.Data = mustJSON(struct {
			Cause string   `json:"cause,omitempty"`
			Ended []string `json:"ended,omitempty"`
		}{l.names.Cause, ended})
	}
	l.names = entryNames{Ended: ended, Cause: l.names.Cause}
	if l.Session == "" || stays(l.Session) {
		return
	}
	l.Session = ""
	if len(l.Changes) == 1 {
		l.Session = l.Changes[0].Session
	} else if len(ended) == 1 {
		l.Session = ended[0]
	}
}

// changesOf is a copy of the elements that are wanted.
func changesOf[T any](all []T, want func(T) bool) []T {
	var kept []T
	for _, e := range all {
		if want(e) {
			kept = append(kept, e)
		}
	}
	return kept
}
