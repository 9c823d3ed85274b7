package gitstore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// prepare reads the present state, gives verdicts, and makes the batch of the
// changes that are left. Whoever is refused is told of a clash of names before all
// that is judged later, so that is looked for then.
func (d *door) prepare(ctx context.Context, todo []int) (*prepared, error) {
	p, err := d.prepareOnce(ctx, todo)
	if err != nil || d.clashed || len(p.todo) == len(todo) || !slices.ContainsFunc(todo, d.asksForNew) {
		return p, err
	}
	d.clashed = true
	return d.prepareOnce(ctx, todo)
}

// asksForNew reports whether change i asks for a ref that is not there.
func (d *door) asksForNew(i int) bool {
	return d.results[i].Old.IsZero() && !d.results[i].New.IsZero()
}

func (d *door) prepareOnce(ctx context.Context, todo []int) (*prepared, error) {
	st, err := d.judged(ctx, todo)
	if err != nil {
		return nil, err
	}
	p := &prepared{foreign: map[checkID]bool{}, now: st.now, gen: st.gen}
	if d.written && !bytes.Equal(st.gen, d.gen) {
		// A prune began between two batches: what no ref of the earlier one reaches may go.
		d.fail(todo, fmt.Errorf("%w: pruning began in the middle of the update", ledger.ErrUnavailable))
		return p, nil
	}
	if p.todo, err = d.proved(ctx, d.openOf(todo)); err != nil {
		return nil, err
	}
	err = d.judge(p.todo, func(res *RefResult) error { return d.judgeTip(ctx, res) })
	if err != nil {
		return nil, err
	}
	p.todo = d.openOf(p.todo)
	if err := d.guarded(ctx, p, st.info); err != nil || len(p.todo) == 0 {
		return p, err
	}
	place := make(map[int]int, len(todo)) // index of a change -> its place in what was read
	for n, i := range todo {
		place[i] = n
	}
	return p, d.fill(ctx, p, st, place)
}

// A reading is a pair of ways to read a space: few keys, and all else through a view.
type reading struct {
	keys keyReader
	open func(context.Context, ledger.Space) (ledger.View, error)
}

// readings are what preparing tries in turn: what may not be durable yet, and what is.
func (r *Repo) readings() [2]reading {
	return [2]reading{{r.ledger.PeekKeys, r.ledger.Peek}, {r.ledger.ReadKeys, r.ledger.Read}}
}

// judged reads the present state and lets it judge the changes. What would be
// refused by something that is not durable yet is judged again by what is: nobody
// is told of a change that a failing disk could still take back. That the update was
// made before comes out of the same reading, and is told before any judgement.
func (d *door) judged(ctx context.Context, todo []int) (st *state, err error) {
	for n, by := range d.r.readings() {
		if n > 0 {
			d.known = nil
		}
		if st, err = d.read(ctx, todo, by); err != nil {
			return nil, err
		}
		if st.kept != nil {
			continue
		}
		refused := false
		for n, i := range todo {
			res := &d.results[i]
			res.Kind = kindBefore(res.Change) // what it was found to be may have been of another state
			res.Err = d.judgeRef(st, n, res)
			refused = refused || res.Err != nil
		}
		if !refused {
			break
		}
		d.clashed = true // whoever is refused is told all that stands in the way
	}
	return st, ledger.Repeated(st.kept)
}

// proved takes out the changes whose objects refer to what the caller may not read.
func (d *door) proved(ctx context.Context, todo []int) ([]int, error) {
	if err := d.heldAll(ctx); err != nil {
		return nil, err
	}
	if d.u.Proved {
		return todo, nil
	}
	bases := append([]refpolicy.OID(nil), d.u.Bases...)
	if d.u.Pack != nil {
		bases = append(bases, d.u.Pack.Appended...)
	}
	var tips []refpolicy.OID
	for _, i := range todo {
		if !d.results[i].New.IsZero() {
			tips = append(tips, d.results[i].New)
		}
	}
	if len(tips) == 0 {
		return todo, nil
	}
	err := d.prove(ctx, tips, bases)
	if err == nil || !refutes(err) {
		return todo, err
	}
	// Something is not proved: find out whose it is, each ref is judged on its own.
	for _, i := range todo {
		res := &d.results[i]
		if res.New.IsZero() {
			continue
		}
		if err := d.prove(ctx, []refpolicy.OID{res.New}, bases); err != nil {
			if !refutes(err) {
				return nil, err
			}
			res.Err = err
		}
	}
	return d.openOf(todo), nil
}

func refutes(err error) bool {
	return errors.Is(err, ErrUnreachable) || errors.Is(err, ErrBadObject)
}

// guarded asks the guard and takes its conditions, and those of the caller, into
// the batch. Its error is a failure of the store; refusals are verdicts.
func (d *door) guarded(ctx context.Context, p *prepared, repo RepoInfo) error {
	answer, err := d.askGuard(ctx, repo, p.todo, p.now)
	if err != nil && len(p.todo) > 1 && (d.u.Intent == nil || !d.u.Atomic) {
		answer, err = d.askOneByOne(ctx, p, repo, err)
	}
	switch {
	case fails(err):
		return fmt.Errorf("ask guard: %w", err)
	case err != nil:
		d.fail(p.todo, err)
		p.todo = nil
	}
	if len(p.todo) == 0 {
		return nil
	}
	p.batch.Carry(answer.Rider)
	p.event = answer.Event
	for n, session := range answer.Sessions {
		if session != "" && n < len(p.todo) {
			if p.sessions == nil {
				p.sessions = make(map[int]string, len(p.todo))
			}
			p.sessions[p.todo[n]] = session
		}
	}
	if d.begun {
		return nil
	}
	for _, c := range d.u.Checks {
		p.foreign[checkOf(c)] = true
	}
	p.batch.Checks = append(p.batch.Checks, d.u.Checks...)
	p.batch.Sets = append(p.batch.Sets, d.u.Sets...)
	return nil
}

// askOneByOne finds out which changes the guard means, which has refused all of them
// together with err. Of changes that are not atomic the others are asked for again;
// if it refuses none by itself, all are refused.
func (d *door) askOneByOne(ctx context.Context, p *prepared, repo RepoInfo, err error) (GuardAnswer, error) {
	refused := false
	for _, i := range p.todo {
		_, alone := d.askGuard(ctx, repo, []int{i}, p.now)
		if fails(alone) {
			return GuardAnswer{}, alone
		}
		d.results[i].Err = alone
		refused = refused || alone != nil
	}
	if !refused && d.u.Atomic {
		return GuardAnswer{}, err
	}
	p.todo = d.openOf(p.todo)
	return d.askGuard(ctx, repo, p.todo, p.now)
}

// fails tells failures of the store, or of the request, from a guard's refusals.
func fails(err error) bool {
	for _, failure := range []error{ledger.ErrUnavailable, ledger.ErrClosed, ledger.ErrNoSpace, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, failure) {
			return true
		}
	}
	return false
}

func (d *door) askGuard(ctx context.Context, repo RepoInfo, todo []int, now time.Time) (GuardAnswer, error) {
	g := d.r.store.guard
	if g == nil || len(todo) == 0 {
		return GuardAnswer{}, nil
	}
	changes := make([]Change, len(todo))
	for n, i := range todo {
		changes[n] = d.results[i].Change
	}
	return g.Guard(ctx, GuardRequest{Repo: repo, Changes: changes, Actor: d.u.Caller.Actor, Now: now, Intent: d.u.Intent, Known: d.known})
}

// fill makes the batch: refs with the indexes over them, objects, pack, pins, log
// entry, and the answer that is kept for a repeated call.
func (d *door) fill(ctx context.Context, p *prepared, st *state, place map[int]int) error {
	b := &p.batch
	b.Space = d.r.space
	gen := st.gen
	if d.u.proofIn != nil {
		gen = d.u.proofIn
		p.foreign[checkOf(ledger.Equal(genKey, gen))] = true
	}
	b.Checks = append(b.Checks, ledger.Equal(genKey, gen))
	changes, err := d.fillRefs(ctx, p, st, place)
	if err != nil {
		return err
	}
	if len(changes) > 0 || p.event.Type != "" {
		b.Log = mustJSON(d.entry(p, changes))
	}
	if err := d.fillLines(ctx, p, st); err != nil {
		return err
	}
	if d.known != nil && !d.u.unborn.IsZero() {
		b.Checks = append(b.Checks, ledger.Absent(bornKey(d.u.unborn)))
	}
	if len(changes) > 0 && !d.written {
		p.carries = true
		if err := d.fillObjects(p, st); err != nil {
			return err
		}
	}
	if d.begun {
		return nil
	}
	if err := d.fillPins(ctx, p); err != nil {
		return err
	}
	rider, err := d.u.Once.Rider(UpdateResult{At: p.now, Refs: slices.Clone(d.results)}, p.now)
	b.Carry(rider)
	return err
}

// fillRefs checks each ref and moves it. It returns what moves.
func (d *door) fillRefs(ctx context.Context, p *prepared, st *state, place map[int]int) ([]LogChange, error) {
	b := &p.batch
	changes := make([]LogChange, 0, len(p.todo))
	checkedMeta := false
	for _, i := range p.todo {
		res := &d.results[i]
		n := place[i]
		if st.raw[n] == nil {
			b.Checks = append(b.Checks, ledger.Absent(refKey(res.Ref)))
		} else {
			b.Checks = append(b.Checks, ledger.Equal(refKey(res.Ref), st.raw[n]))
		}
		if res.Old == res.New {
			if !res.New.IsZero() {
				res.State = st.recs[n].ref(res.Ref)
			}
			continue // nothing moves, but the expectation is checked
		}
		if res.Kind == refpolicy.Delete && !checkedMeta {
			b.Checks, checkedMeta = append(b.Checks, ledger.Equal(metaKey, st.meta)), true
		}
		if err := d.fillRef(ctx, p, res, st, st.recs[n]); err != nil {
			return nil, err
		}
		changes = append(changes, LogChange{res.Ref, res.Old, res.New, res.Kind.String(), p.sessions[i]})
	}
	return changes, nil
}

// entry is the log entry of a batch: what the guard says of it, and what moved.
func (d *door) entry(p *prepared, changes []LogChange) LogEntry {
	e := LogEntry{
		Type: cmp.Or(p.event.Type, entryRefs), Actor: d.u.Caller.Actor, Changes: changes,
		Session: p.event.Session, Data: p.event.Data,
	}
	if e.Session != "" || len(changes) == 0 {
		return e
	}
	for _, c := range changes {
		if c.Session != changes[0].Session {
			return e
		}
	}
	e.Session = changes[0].Session
	return e
}

func (d *door) fillRef(ctx context.Context, p *prepared, res *RefResult, st *state, old refRecord) error {
	b := &p.batch
	if !res.Old.IsZero() {
		b.Deletes = append(b.Deletes, tipKey(res.Old, res.Ref))
	}
	if res.Kind == refpolicy.Delete {
		b.Deletes = append(b.Deletes, refKey(res.Ref))
		b.Sets = append(b.Sets, ledger.Set{Key: cutKey(res.Ref)})
		if key, ok := createdKey(res.Ref, old.created); ok {
			b.Deletes = append(b.Deletes, key)
		}
		return nil
	}
	rec := refRecord{oid: res.New, created: old.created, updated: st.now, writer: d.u.Caller.Actor.Subject}
	if res.Kind == refpolicy.Create {
		rec.created = st.now
		b.Checks = append(b.Checks, ledger.AbsentPrefix(refKey(res.Ref)+"/"))
		for _, f := range foldersOf(res.Ref) {
			if p.folders == nil {
				p.folders = map[string]bool{}
			}
			if !p.folders[f] { // many branches are made in one folder
				p.folders[f] = true
				b.Checks = append(b.Checks, ledger.Absent(refKeys+f))
			}
		}
		if key, ok := createdKey(res.Ref, rec.created); ok {
			b.Sets = append(b.Sets, ledger.Set{Key: key})
		}
	}
	peeled, _, err := d.g.peel(ctx, res.New)
	if err != nil {
		return fmt.Errorf("peel %s: %w", res.Ref, err)
	}
	if peeled != res.New {
		rec.peeled = peeled
	}
	res.State = rec.ref(res.Ref)
	if res.Kind == refpolicy.Rewind {
		b.Sets = append(b.Sets, ledger.Set{Key: cutKey(res.Ref)})
	}
	b.Sets = append(b.Sets,
		ledger.Set{Key: refKey(res.Ref), Value: rec.encode()},
		ledger.Set{Key: tipKey(res.New, res.Ref)})
	return nil
}

// fillObjects adds what is new: hot objects and the pack's record.
func (d *door) fillObjects(p *prepared, st *state) error {
	b := &p.batch
	gen, err := strconv.ParseUint(string(st.gen), 10, 64)
	if err != nil {
		return fmt.Errorf("read prune generation: %w", err)
	}
	for _, o := range d.hotObjects() {
		value := encodeHot(o, gen)
		p.hotBytes += len(value)
		p.hot++
		b.Sets = append(b.Sets, ledger.Set{Key: hotKey(o.OID), Value: value})
	}
	if pack := d.u.Pack; pack != nil {
		fillPack(b, pack.Info, pack.Kind)
	}
	if pack := d.u.objectsIn; pack != nil {
		fillPack(b, *pack, "settled")
	}
	return nil
}

func fillPack(b *ledger.Batch, pack packs.Info, kind string) {
	rec := packRecord{Size: pack.Size, Objects: pack.Objects, Kind: kind, State: packLive}
	b.Checks = append(b.Checks, ledger.Absent(packKey(pack.Name)))
	b.Sets = append(b.Sets, ledger.Set{Key: packKey(pack.Name), Value: mustJSON(rec)})
}

// hotObjects are the update's objects that go into the hot tier, each once.
func (d *door) hotObjects() []NewObject {
	if d.u.objectsIn != nil {
		return nil
	}
	seen := make(map[refpolicy.OID]bool, len(d.u.Objects))
	objects := make([]NewObject, 0, len(d.u.Objects))
	for _, o := range d.u.Objects {
		if !seen[o.OID] {
			seen[o.OID] = true
			objects = append(objects, o)
		}
	}
	return objects
}
