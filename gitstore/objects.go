package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// object is a decoded object, whole in memory. data is shared with the cache: read only.
type object struct {
	typ  ObjectType
	data []byte
}

const (
	// maxWhole is the largest object that is read whole into memory; larger ones are streamed.
	maxWhole = 64 << 20
	// maxCached is the largest object the cache keeps.
	maxCached = 1 << 20
)

// objectID names an object in the cache that all repos share.
type objectID struct {
	repo string
	oid  refpolicy.OID
}

// object reads an object from either tier, through the cache. Errors:
// ErrObjectNotFound, ErrTooLarge over maxWhole.
func (r *Repo) object(ctx context.Context, oid refpolicy.OID) (object, error) {
	key := objectID{r.id, oid}
	if o, ok := r.store.cache.get(key); ok {
		return o, nil
	}
	if oid == emptyTree {
		return object{typ: TreeObject}, nil
	}
	o, err := r.load(ctx, oid)
	if err == nil && len(o.data) <= maxCached {
		r.store.cache.put(key, o, int64(len(o.data))+128)
	}
	return o, err
}

func (r *Repo) load(ctx context.Context, oid refpolicy.OID) (o object, err error) {
	err = r.locate(ctx, oid, func(p *packs.Pack, h hotObject) error {
		if p == nil {
			o.typ = h.typ
			o.data, err = h.inflate()
			return err
		}
		t, data, err := p.Object(oid, maxWhole)
		o = object{ObjectType(t), data}
		if errors.Is(err, packs.ErrTooLarge) {
			return fmt.Errorf("%w: object %s is over %d bytes", ErrTooLarge, oid, maxWhole)
		}
		return err
	})
	return o, err
}

// typed is object with its type demanded; another type is ErrObjectNotFound.
func (r *Repo) typed(ctx context.Context, oid refpolicy.OID, t ObjectType) ([]byte, error) {
	o, err := r.object(ctx, oid)
	if err != nil {
		return nil, err
	}
	if o.typ != t {
		return nil, fmt.Errorf("%w: %s is a %s, not a %s", ErrObjectNotFound, oid, o.typ, t)
	}
	return o.data, nil
}

// header tells type and size without reading the object's content.
func (r *Repo) header(ctx context.Context, oid refpolicy.OID) (t ObjectType, size int64, err error) {
	if o, ok := r.store.cache.get(objectID{r.id, oid}); ok {
		return o.typ, int64(len(o.data)), nil
	}
	if oid == emptyTree {
		return TreeObject, 0, nil
	}
	err = r.locate(ctx, oid, func(p *packs.Pack, h hotObject) error {
		if p == nil {
			t, size = h.typ, h.size
			return nil
		}
		pt, n, err := p.Header(oid)
		t, size = ObjectType(pt), n
		return err
	})
	return t, size, err
}

// stream opens an object of any size for reading from its start.
func (r *Repo) stream(ctx context.Context, oid refpolicy.OID) (t ObjectType, size int64, rc io.ReadCloser, err error) {
	err = r.locate(ctx, oid, func(p *packs.Pack, h hotObject) error {
		if p == nil {
			t, size = h.typ, h.size
			rc, err = inflater(strings.NewReader(string(h.zdata)))
			return err
		}
		pt, n, body, err := p.Open(oid)
		t, size, rc = ObjectType(pt), n, body
		return err
	})
	return t, size, rc, err
}

// exists reports whether the repo has an object, readable by anybody or not.
func (r *Repo) exists(ctx context.Context, oid refpolicy.OID) (bool, error) {
	if _, ok := r.store.cache.get(objectID{r.id, oid}); ok || oid == emptyTree {
		return true, nil
	}
	err := r.locate(ctx, oid, func(*packs.Pack, hotObject) error { return nil })
	if errors.Is(err, ErrObjectNotFound) {
		return false, nil
	}
	return err == nil, err
}

// listTries bounds how often the pack list is read anew because a pack in it had
// been replaced and removed by the time it was opened.
const listTries = 10

// locate calls found with the pack that holds an object, or with its hot form and
// a nil pack. An object may be on its way from the hot tier into a pack, or from
// pack to pack, that is not in our list yet, so a miss looks at the list and at the
// ledger once more. Last come condemned packs: a request that began when what it
// reads was reachable goes on until their files are removed. What is reachable is
// never in them alone.
func (r *Repo) locate(ctx context.Context, oid refpolicy.OID, found func(*packs.Pack, hotObject) error) error {
	missed := 0
	for try := 1; missed < 2; try++ {
		p, err := r.packWith(oid)
		if errors.Is(err, packs.ErrPackMissing) && try < listTries {
			if err := r.loadPacks(ctx); err != nil {
				return err
			}
			if try == 2 { // it was not replaced
				r.standAll()
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("read object %s: %w", oid, err)
		}
		if p != nil {
			defer p.Release()
			if err := found(p, hotObject{}); err != nil {
				return fmt.Errorf("read object %s: %w", oid, err)
			}
			return nil
		}
		h, err := r.hot(ctx, oid)
		if err == nil {
			if err := found(nil, h); err != nil {
				return fmt.Errorf("read object %s: %w", oid, err)
			}
			return nil
		}
		if !errors.Is(err, ledger.ErrNotFound) {
			return fmt.Errorf("read object %s: %w", oid, err)
		}
		if err := r.loadPacks(ctx); err != nil {
			return err
		}
		missed++
	}
	if p := r.oldPackWith(oid); p != nil {
		defer p.Release()
		if err := found(p, hotObject{}); err != nil {
			return fmt.Errorf("read object %s: %w", oid, err)
		}
		return nil
	}
	return fmt.Errorf("%w: %s", ErrObjectNotFound, oid)
}

// oldPackWith gives the condemned pack that holds oid, or nil. One that cannot be
// opened any more is gone.
func (r *Repo) oldPackWith(oid refpolicy.OID) *packs.Pack {
	for _, name := range r.condemned() {
		p, err := r.dir.Pack(name)
		if err != nil {
			continue
		}
		if p.Has(oid) {
			return p
		}
		p.Release()
	}
	return nil
}

func (r *Repo) condemned() []string {
	if l := r.oldPacks.Load(); l != nil {
		return *l
	}
	return nil
}

// hot reads an object's hot form; ledger.ErrNotFound if it is not in the hot tier.
// Reading by oid need not wait for the sync: an oid is first told by a durable batch.
func (r *Repo) hot(ctx context.Context, oid refpolicy.OID) (hotObject, error) {
	v, err := r.ledger.Peek(ctx, r.space)
	if err != nil {
		return hotObject{}, err
	}
	defer v.Close()
	b, err := v.Get(ctx, hotKey(oid))
	if err != nil {
		return hotObject{}, err
	}
	return decodeHot(b)
}

// packWith gives the pack that holds oid with a reference to release, or nil.
func (r *Repo) packWith(oid refpolicy.OID) (*packs.Pack, error) {
	list := r.packList.Load()
	if list != nil && len(*list) > catalogFrom {
		return r.catalogs.look(r, list, oid)
	}
	for _, name := range r.packNames() {
		if p, err := r.packHolding(name, oid); p != nil || err != nil {
			return p, err
		}
	}
	return nil, nil
}

func (r *Repo) packNames() []string {
	if l := r.packList.Load(); l != nil {
		return *l
	}
	return nil
}

// loadPacks reads the list of registered packs afresh and links those into git's
// sight that are not yet there. Newer packs come first: they are asked for more often.
func (r *Repo) loadPacks(ctx context.Context) error {
	r.packsMu.Lock()
	defer r.packsMu.Unlock()
	v, err := r.ledger.Peek(ctx, r.space)
	if err != nil {
		return fmt.Errorf("read pack list: %w", err)
	}
	defer v.Close()
	records, err := scanAll(ctx, v, packKeys)
	if err != nil {
		return fmt.Errorf("read pack list: %w", err)
	}
	var live, old []string
	for _, it := range records {
		name := strings.TrimPrefix(it.Key, packKeys)
		rec, err := decodePackRecord(it.Value)
		if err != nil {
			return err
		}
		switch rec.State {
		case packLive:
			live = append(live, name)
		case packCondemned:
			old = append(old, name)
		}
	}
	r.listPacks(live, old)
	return nil
}

// listPacks makes these the packs that are read, and closes those that were and
// are not any more once their readers are done. Called with packsMu held.
func (r *Repo) listPacks(live, old []string) {
	before := append(r.packNames()[:len(r.packNames()):len(r.packNames())], r.condemned()...)
	r.packList.Store(&live)
	r.oldPacks.Store(&old)
	for _, name := range before {
		if !slices.Contains(live, name) && !slices.Contains(old, name) {
			r.dir.Forget(name)
			delete(r.linked, name)
		}
	}
	r.linkAll(live)
}

// replacePacks puts packs that were just registered into the list in place of those
// that were condemned with them.
func (r *Repo) replacePacks(added, gone []string) {
	r.packsMu.Lock()
	defer r.packsMu.Unlock()
	live, old := slices.Clone(added), append(slices.Clone(r.condemned()), gone...)
	for _, name := range r.packNames() {
		if !slices.Contains(gone, name) && !slices.Contains(added, name) {
			live = append(live, name)
		}
	}
	r.listPacks(live, old)
}

// addPack puts a pack that was just registered in front of the list.
func (r *Repo) addPack(name string) {
	r.packsMu.Lock()
	defer r.packsMu.Unlock()
	known := r.packNames()
	if !slices.Contains(known, name) {
		names := append([]string{name}, known...)
		r.packList.Store(&names)
	}
	r.linkAll([]string{name})
}

// allLinked makes sure that git sees all registered packs.
func (r *Repo) allLinked(ctx context.Context) error {
	if err := r.loadPacks(ctx); err != nil {
		return err
	}
	r.standAll()
	r.packsMu.Lock()
	defer r.packsMu.Unlock()
	for _, name := range r.packNames() {
		if err := r.link(name); err != nil {
			return err
		}
	}
	return nil
}

// An unsureError is what a batch was answered that may be applied all the same,
// now or later.
type unsureError struct{ error }

func (e unsureError) Unwrap() error { return e.error }

// applySure is Apply, its error an unsureError unless the batch was refused for good.
func (r *Repo) applySure(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
	res, err := r.ledger.Apply(ctx, b)
	var check *ledger.CheckError
	if err == nil || errors.As(err, &check) {
		return res, err
	}
	for _, sure := range []error{ledger.ErrInvalidBatch, ledger.ErrTooLarge, ledger.ErrNoSpace} {
		if errors.Is(err, sure) {
			return res, err
		}
	}
	return res, unsureError{err}
}

// dropPatience bounds how long a failed write goes on to clean up after itself.
const dropPatience = 10 * time.Second

// dropPack removes the files of a pack whose registration was answered with err,
// unless it has been registered nevertheless. What cannot be found out now is
// left to the next opening of the repo. The request may be over: the clean-up is not.
func (r *Repo) dropPack(ctx context.Context, name string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropPatience)
	defer cancel()
	var unsure unsureError
	if errors.As(err, &unsure) {
		err = r.discardPack(ctx, name)
	} else {
		err = r.dir.Remove(name)
	}
	if err != nil {
		r.store.log.Warn("remove unregistered pack", "repo", r.id, "pack", name, "err", err)
	}
}

// scanAll reads all items below prefix, page by page.
func scanAll(ctx context.Context, v ledger.View, prefix string) ([]ledger.Item, error) {
	var all []ledger.Item
	start := prefix
	for {
		page, err := v.Scan(ctx, prefix, start, ledger.BulkKeys)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < ledger.BulkKeys {
			return all, nil
		}
		start = page[len(page)-1].Key + "\x00"
	}
}
