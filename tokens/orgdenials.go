package tokens

import (
	"context"
	"encoding/hex"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

const (
	// denialsRetry is how long after a failed reading the list is read again.
	denialsRetry = 500 * time.Millisecond
	// denialsPatience bounds one reading that nobody waits for.
	denialsPatience = 10 * time.Second
)

// orgDenials are the denials of one org as far as this node knows them.
type orgDenials struct {
	list  *DenyList
	space ledger.Space

	current atomic.Pointer[denials] // nil: not read yet

	mu sync.Mutex // held while the list is read, so that an older reading never follows a newer one
}

// denials is one state of an org's list. It does not change.
type denials struct {
	version string // what stood under denialsKey when it was read
	list    map[string]Denial

	tokens   map[tokenSum]Denial
	ids      map[string]Denial
	subjects map[string]Denial
}

func newDenials(version string, list map[string]Denial) *denials {
	d := &denials{
		version: version, list: list,
		tokens: make(map[tokenSum]Denial), ids: make(map[string]Denial), subjects: make(map[string]Denial),
	}
	for _, one := range list {
		switch {
		case one.TokenSHA256 != "":
			var sum tokenSum
			if n, err := hex.Decode(sum[:], []byte(one.TokenSHA256)); err == nil && n == len(sum) {
				d.tokens[sum] = one
			}
		case one.TokenID != "":
			d.ids[one.TokenID] = one
		case one.Subject != "":
			d.subjects[one.Subject] = one
		}
	}
	return d
}

// denies reports whether a denial that has not ended by now names p's token. Who has a
// token that is denied by its sum can make its twin, so that is denied as well.
func (d *denials) denies(p *Principal, sum tokenSum, now time.Time) bool {
	for _, of := range [2]tokenSum{sum, p.twin} {
		if one, ok := d.tokens[of]; ok && one.holds(now) {
			return true
		}
	}
	if one, ok := d.ids[p.TokenID]; ok && one.holds(now) {
		return true
	}
	one, ok := d.subjects[p.Subject]
	return ok && one.holds(now) && p.IssuedAt.Before(one.IssuedBefore)
}

func (d Denial) holds(now time.Time) bool { return d.Until.IsZero() || now.Before(d.Until) }

// known is the list as this node knows it; the first call reads it and begins to
// follow it.
func (o *orgDenials) known(ctx context.Context) (*denials, error) {
	if d := o.current.Load(); d != nil {
		return d, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if d := o.current.Load(); d != nil {
		return d, nil
	}
	// Watched before it is read: what changes in between is then not missed.
	watching, stop := context.WithCancel(o.list.life)
	changes, err := o.list.ledger.Watch(watching, o.space)
	if err != nil {
		stop()
		return nil, err
	}
	d, err := o.read(ctx, nil)
	if err != nil {
		stop()
		return nil, err
	}
	o.current.Store(d)
	o.list.wg.Go(func() {
		defer stop()
		o.follow(watching, changes)
	})
	return d, nil
}

// follow reads the list again after each change until ctx ends or the ledger is closed.
func (o *orgDenials) follow(ctx context.Context, changes <-chan struct{}) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-changes:
			if !open {
				return
			}
		case <-again:
		}
		failedBefore := again != nil
		again = nil
		if err := o.refresh(ctx); err != nil && ctx.Err() == nil {
			again = time.After(denialsRetry)
			if !failedBefore {
				o.list.o.Logger.Error("denials of tokens not read again: those known stay in force", "space", o.space, "error", err)
			}
		}
	}
}

func (o *orgDenials) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, denialsPatience)
	defer cancel()
	o.mu.Lock()
	defer o.mu.Unlock()
	d, err := o.read(ctx, o.current.Load())
	if err == nil {
		o.current.Store(d)
	}
	return err
}

// learn takes over what this node has just changed: a denial that was made, or nil
// for one that was taken back. It does not end with the request, which was carried out.
func (o *orgDenials) learn(ctx context.Context, made *Denial) {
	if o.current.Load() == nil {
		return // whoever asks first reads it
	}
	if o.refresh(context.WithoutCancel(ctx)) == nil || made == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	list := maps.Clone(o.current.Load().list)
	list[made.ID] = *made
	o.current.Store(newDenials("", list))
}

// read gives the list as it is now: known itself if nothing has changed since.
func (o *orgDenials) read(ctx context.Context, known *denials) (*denials, error) {
	v, err := o.list.ledger.Read(ctx, o.space)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	// A view may show later pages later. The count was read before, so a change in
	// between, which wakes us again, is then found to be news.
	count, err := v.GetMany(ctx, denialsKey)
	if err != nil {
		return nil, err
	}
	version := string(count[0])
	if known != nil && known.version == version && version != "" {
		return known, nil
	}
	list := make(map[string]Denial)
	for from := denialsFrom; ; {
		items, err := v.Range(ctx, from, denialsTo, ledger.BulkKeys)
		if err != nil {
			return nil, err
		}
		for _, it := range items {
			list[it.Key] = decodeDenial(it.Key, it.Value)
		}
		if len(items) < ledger.BulkKeys {
			return newDenials(version, list), nil
		}
		from = items[len(items)-1].Key + "\x00"
	}
}
