package gitstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// door judges and applies one Update.
type door struct {
	r       *Repo
	u       *Update
	g       graph
	release func()
	results []RefResult

	links   map[refpolicy.OID][]refpolicy.OID // parents of new commits, as far as they were read
	known   ledger.Known                      // the update's, until something was read anew
	clashed bool                              // a batch was refused for a clash of names
	begun   bool                              // a batch of this update, with the caller's own checks and sets, was applied
	written bool                              // objects and pack went in with an earlier batch of this update
	gen     []byte                            // the prune generation they were written in
	failed  error                             // what the batch with them was answered, if not success
	seq     uint64
	at      time.Time
}

const (
	// doorTries bounds how often an update is prepared anew because something it
	// read had changed when its batch came to be applied.
	doorTries = 50
	// refKeysPerBatch keeps a batch of many refs, with its objects, below the ledger's limit of keys.
	refKeysPerBatch = 10_000
	keysPerRef      = 6 // what a change writes and checks of its ref, folders apart
)

func (r *Repo) newDoor(u *Update) (*door, error) {
	d := &door{r: r, u: u, release: func() {}, results: make([]RefResult, len(u.Changes)), known: u.known}
	small := newFreshMap(u.Objects)
	d.g = graph{r, small}
	if u.Pack != nil {
		p, err := r.dir.Pack(u.Pack.Name)
		if err != nil {
			return nil, fmt.Errorf("open incoming pack: %w", err)
		}
		d.release = p.Release
		d.g.fresh = freshPack{pack: p, small: small, appended: oidSet(u.Pack.Appended)}
	}
	for i, c := range u.Changes {
		d.results[i] = RefResult{Change: c}
	}
	return d, nil
}

// close removes the files of a pack that was not registered.
func (d *door) close() {
	d.release()
	if d.u.Pack == nil || d.u.Pack.Kept || d.written {
		return
	}
	d.r.dropPack(context.Background(), d.u.Pack.Name, d.failed)
}

func (d *door) run(ctx context.Context) error {
	if err := d.checkPins(); err != nil {
		return err
	}
	todo := d.byName()
	for len(todo) > 0 {
		chunk := d.chunk(todo)
		if d.u.Atomic && len(chunk) < len(todo) {
			return fmt.Errorf("%w: %d refs in one atomic change, %d of them fit", ErrTooLarge, len(todo), len(chunk))
		}
		n, err := d.applyFitting(ctx, chunk)
		if err != nil {
			if !d.begun {
				return err
			}
			d.fail(todo, err) // what an earlier batch did stands, and is told
			return nil
		}
		todo = todo[n:]
	}
	return d.published(ctx)
}

// fail gives all that is still open the same verdict.
func (d *door) fail(todo []int, err error) {
	for _, i := range todo {
		if res := &d.results[i]; res.Err == nil {
			res.Err = err
		}
	}
}

// chunk is the part of todo whose keys fit into one batch. Folders are checked once
// for all that are made in them.
func (d *door) chunk(todo []int) []int {
	keys, folders := 0, map[string]bool{}
	for n, i := range todo {
		for _, f := range foldersOf(d.results[i].Ref) {
			folders[f] = true
		}
		keys += keysPerRef
		if keys+len(folders) > refKeysPerBatch && n > 0 {
			return todo[:n]
		}
	}
	return todo
}

// applyFitting applies as much of chunk as fits into one batch with what the guard
// adds to it, and tells how much that was. An atomic update fits whole or not at all.
func (d *door) applyFitting(ctx context.Context, chunk []int) (int, error) {
	for {
		err := d.apply(ctx, chunk)
		if !errors.Is(err, ledger.ErrTooLarge) || d.u.Atomic || len(chunk) == 1 {
			return len(chunk), err
		}
		chunk = chunk[:len(chunk)/2]
	}
}

// published waits until what the verdicts were read from is durable: nobody may be
// told of a change that a power cut could take back.
func (d *door) published(ctx context.Context) error {
	for _, res := range d.results {
		if res.Err == nil {
			continue
		}
		v, err := d.r.ledger.Read(ctx, d.r.space)
		if err != nil {
			return fmt.Errorf("wait for published refs: %w", err)
		}
		v.Close()
		return nil
	}
	return nil
}

// byName gives the verdicts that need nothing but the request, names and policy.
// It returns the indexes of those changes that are still open.
func (d *door) byName() []int {
	var todo []int
	seen := map[refpolicy.RefName]bool{}
	for i := range d.results {
		res := &d.results[i]
		res.Kind = kindBefore(res.Change)
		_, err := refpolicy.ParseRefName(string(res.Ref))
		switch {
		case err != nil && !res.New.IsZero():
			res.Err = err
		case seen[res.Ref]:
			res.Err = invalidf("multiple updates for ref %s", res.Ref)
		default:
			res.Err = d.u.Caller.Policy.Check(res.Ref, res.Kind)
			todo = append(todo, i)
		}
		seen[res.Ref] = true
	}
	return d.openOf(todo)
}

// openOf drops refused changes; in an atomic update one refusal refuses all.
func (d *door) openOf(todo []int) []int {
	failed := false
	for i := range d.results {
		failed = failed || d.results[i].Err != nil
	}
	var open []int
	for _, i := range todo {
		res := &d.results[i]
		if res.Err == nil && failed && d.u.Atomic {
			res.Err = ErrAtomic
		}
		if res.Err == nil {
			open = append(open, i)
		}
	}
	return open
}

// apply prepares a batch for the changes and applies it; when something that it
// checks has changed since it was read, it is prepared anew.
func (d *door) apply(ctx context.Context, todo []int) error {
	for range doorTries {
		p, err := d.prepare(ctx, todo)
		if err != nil || len(p.todo) == 0 {
			return err
		}
		res, err := d.r.applySure(ctx, p.batch)
		var check *ledger.CheckError
		if errors.As(err, &check) {
			d.known = nil // it is behind
			if err := d.refused(check, p); err != nil {
				return err
			}
			todo = p.todo
			continue
		}
		if err != nil {
			d.failed = err
			return fmt.Errorf("apply update: %w", err)
		}
		d.applied(p, res)
		return nil
	}
	return fmt.Errorf("apply update: %w: refs keep moving", ledger.ErrUnavailable)
}

// refused decides whether a failed check is somebody's answer or a reason to look
// again. The guard's is a reason: asked again, it says what it thinks now.
func (d *door) refused(check *ledger.CheckError, p *prepared) error {
	if check.Key == genKey && check.Present == nil {
		return ErrRepoNotFound // deleted meanwhile
	}
	if p.foreign[checkOf(check.Check)] {
		return check
	}
	d.clashed = d.clashed || namesClash(check.Check, p)
	return nil
}

// checkID tells one check of a batch from the others.
type checkID struct {
	kind ledger.CheckKind
	key  string
	time time.Time
}

func checkOf(c ledger.Check) checkID { return checkID{c.Kind, c.Key, c.Time} }

// applied does what follows a durable batch.
func (d *door) applied(p *prepared, res ledger.Result) {
	d.begun = true
	if p.batch.Log != nil {
		d.seq, d.at = res.Seq, p.now
	}
	for _, i := range p.todo {
		if k := d.results[i].Kind; k == refpolicy.Delete || k == refpolicy.Rewind {
			d.r.waste.Add(1)
		}
	}
	if !p.carries {
		return
	}
	d.written, d.gen = true, p.gen
	for _, o := range d.u.Objects {
		if len(o.Data) <= maxCached {
			d.r.store.cache.put(objectID{d.r.id, o.OID}, object{o.Type, o.Data}, int64(len(o.Data))+128)
		}
	}
	if d.u.Pack != nil {
		d.u.Pack.registered.Store(true)
		d.r.addPack(d.u.Pack.Name)
	}
	if d.u.objectsIn != nil {
		d.r.addPack(d.u.objectsIn.Name)
	}
	d.r.warmed(p.hot, p.hotBytes)
}

// prepared is a batch with what it was made from.
type prepared struct {
	todo     []int // the changes in it
	batch    ledger.Batch
	now      time.Time        // what the records in it say
	gen      []byte           // the prune generation that it checks
	foreign  map[checkID]bool // checks whose failing is the caller's answer
	sessions map[int]string   // whose session a ref is, by index of the change; nil: nobody's
	event    Event            // what the guard wants the log entry to say
	folders  map[string]bool  // names that the batch checks not to be refs
	carries  bool             // the update's objects and pack are in it
	hot      int              // objects for the hot tier in it
	hotBytes int
}

// state is what preparing reads of the repo. It may not be durable yet: the batch,
// which checks it, follows in the same log.
type state struct {
	now  time.Time
	gen  []byte
	meta []byte
	kept []byte                   // the answer under the update's Once, nil for none
	born map[refpolicy.OID][]byte // lines of commits, as far as they were asked for; nil for none
	info RepoInfo
	raw  [][]byte    // ref records as stored, nil for absent, by place in todo
	recs []refRecord // decoded
	// clash is why a ref cannot be created, by place; nil for most
	clash map[int]*NameClashError
}

// read reads the state.
func (d *door) read(ctx context.Context, todo []int, by reading) (*state, error) {
	now, err := d.r.ledger.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("read refs: %w", err)
	}
	wanted := d.bornWanted(todo)
	keys := make([]string, 0, len(todo)+len(wanted)+3)
	keys = append(keys, genKey, metaKey)
	for _, i := range todo {
		keys = append(keys, refKey(d.results[i].Ref))
	}
	once := d.u.Once != nil && !d.begun
	if once {
		keys = append(keys, d.u.Once.StoreKey())
	}
	for _, oid := range wanted {
		keys = append(keys, bornKey(oid))
	}
	got, ok := d.known.Values(keys...)
	if !ok {
		d.known = nil // the guard must not see an older moment than the door
		if got, err = by.keys(ctx, d.r.space, keys...); err != nil {
			return nil, fmt.Errorf("read refs: %w", err)
		}
	}
	if got[0] == nil || got[1] == nil {
		return nil, ErrRepoNotFound
	}
	info, err := d.r.infoOf(got[1])
	if err != nil {
		return nil, err
	}
	st := &state{now: now, gen: got[0], meta: got[1], info: info, raw: got[2 : 2+len(todo)], recs: make([]refRecord, len(todo))}
	if once {
		if st.kept = got[2+len(todo)]; st.kept != nil {
			return st, nil
		}
	}
	st.born = make(map[refpolicy.OID][]byte, len(wanted))
	for n, raw := range got[len(got)-len(wanted):] {
		st.born[wanted[n]] = raw
	}
	for n, raw := range st.raw {
		if raw == nil {
			continue
		}
		if st.recs[n], err = decodeRefRecord(raw); err != nil {
			return nil, err
		}
	}
	for n, i := range todo {
		if d.creates(st, n, i) {
			return st, d.clashes(ctx, by, todo, st)
		}
	}
	return st, nil
}

// creates reports whether change i, the n-th of those read, asks for a ref that is not there.
func (d *door) creates(st *state, n, i int) bool {
	return st.raw[n] == nil && !d.results[i].New.IsZero()
}
