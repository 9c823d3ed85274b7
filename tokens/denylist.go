package tokens

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/gitstore/ledger"
)

// A DenyList keeps which tokens orgs have denied, in the ledger, for all nodes. Every
// Verify asks it, from a copy in memory that follows the ledger's log: what is denied
// is refused from the answer of Deny on by the node that was asked, and by every other
// as soon as the ledger wakes it, well within a second. While the ledger is away
// the copy known last holds; an org that was never asked for is not let in then. It
// may be used by many at once. Close it.
type DenyList struct {
	ledger ledger.Ledger
	o      DenyListOptions

	life context.Context // ends with Close
	end  context.CancelFunc
	wg   sync.WaitGroup

	orgs sync.Map // org -> *orgDenials
}

// DenyListOptions may all be zero.
type DenyListOptions struct {
	Now    func() time.Time // time.Now; for what a denial's Until is compared with
	Logger *slog.Logger     // told when the list cannot be read
}

// NewDenyList gives the list that is in l.
func NewDenyList(l ledger.Ledger, o DenyListOptions) *DenyList {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	life, end := context.WithCancel(context.Background())
	return &DenyList{ledger: l, o: o, life: life, end: end}
}

// Close ends following the ledger. The list is then not to be used any more.
func (l *DenyList) Close() {
	l.end()
	l.wg.Wait()
}

func (l *DenyList) org(name string) *orgDenials {
	if o, ok := l.orgs.Load(name); ok {
		return o.(*orgDenials)
	}
	o, _ := l.orgs.LoadOrStore(name, &orgDenials{list: l, space: ledger.OrgSpace(name)})
	return o.(*orgDenials)
}

// check is nil or ErrDenied for the principal of the token with this sum, or the
// ledger's error when nothing is known yet of the org's denials.
func (l *DenyList) check(ctx context.Context, p *Principal, sum tokenSum) error {
	known, err := l.org(p.Org).known(ctx)
	if err != nil {
		return fmt.Errorf("read denials: %w", err)
	}
	if len(known.list) > 0 && known.denies(p, sum, l.o.Now()) {
		return ErrDenied
	}
	return nil
}

// maxTries is how often a change is made anew that others have overtaken.
const maxTries = 20

// Deny refuses from now on what d names; a denial of the same name is replaced. It
// gives d as it is kept. Errors: ErrBadDenial, the ledger's.
func (l *DenyList) Deny(ctx context.Context, org string, d Denial) (Denial, error) {
	d, err := d.named()
	if err != nil {
		return Denial{}, err
	}
	if d.At, err = l.ledger.Now(ctx); err != nil {
		return Denial{}, fmt.Errorf("deny token: %w", err)
	}
	if d.Subject != "" && d.IssuedBefore.IsZero() {
		d.IssuedBefore = d.At
	}
	if !d.Until.IsZero() && !d.Until.After(d.At) {
		return Denial{}, fmt.Errorf("%w: it ends before it begins", ErrBadDenial)
	}
	value, err := d.encode()
	if err != nil {
		return Denial{}, fmt.Errorf("deny token: %w", err)
	}
	err = l.change(ctx, org, "token.denied", d, ledger.Batch{Sets: []ledger.Set{{Key: d.ID, Value: value}}})
	if err != nil {
		return Denial{}, fmt.Errorf("deny token: %w", err)
	}
	l.org(org).learn(ctx, &d)
	return d, nil
}

// Allow takes the denial with this id back, which other denials do not feel. Errors:
// ErrDenialNotFound, the ledger's.
func (l *DenyList) Allow(ctx context.Context, org, id string) error {
	if !isDenialID(id) {
		return ErrDenialNotFound
	}
	for range maxTries {
		values, err := l.ledger.ReadKeys(ctx, ledger.OrgSpace(org), id)
		if err != nil {
			return fmt.Errorf("allow token: %w", err)
		}
		if values[0] == nil {
			return ErrDenialNotFound
		}
		err = l.change(ctx, org, "token.allowed", Denial{ID: id}, ledger.Batch{
			Checks: []ledger.Check{ledger.Equal(id, values[0])}, Deletes: []string{id},
		})
		var moved *ledger.CheckError
		if errors.As(err, &moved) {
			continue
		}
		if err != nil {
			return fmt.Errorf("allow token: %w", err)
		}
		l.org(org).learn(ctx, nil)
		return nil
	}
	return fmt.Errorf("allow token: others change it without end: %w", ledger.ErrUnavailable)
}

// Denials lists what org denies, ended denials included, in the order of their ids.
// cursor is where a list before went on, empty for its beginning; next is empty at
// the end. limit is at least 1.
func (l *DenyList) Denials(ctx context.Context, org, cursor string, limit int) (list []Denial, next string, err error) {
	from := denialsFrom
	if cursor != "" {
		if !isDenialID(cursor) {
			return nil, "", fmt.Errorf("%w: bad cursor", ErrBadDenial)
		}
		from = cursor + "\x00"
	}
	v, err := l.ledger.Read(ctx, ledger.OrgSpace(org))
	if err != nil {
		return nil, "", fmt.Errorf("list denials: %w", err)
	}
	defer v.Close()
	items, err := v.Range(ctx, from, denialsTo, limit+1)
	if err != nil {
		return nil, "", fmt.Errorf("list denials: %w", err)
	}
	if len(items) > limit {
		items, next = items[:limit], items[limit-1].Key
	}
	list = make([]Denial, len(items))
	for i, it := range items {
		list[i] = decodeDenial(it.Key, it.Value)
	}
	return list, next, nil
}

// denialEntry is the log's entry of a change: who, and which denial.
type denialEntry struct {
	Type  string         `json:"type"`
	Actor map[string]any `json:"actor"`
	// Changes are of refs: none.
	Changes []struct{} `json:"changes"`
	Data    struct {
		ID string `json:"id"`
	} `json:"data"`
}

// change applies b, counts it, and logs it, which wakes the other nodes.
func (l *DenyList) change(ctx context.Context, org, kind string, d Denial, b ledger.Batch) error {
	entry := denialEntry{Type: kind, Actor: map[string]any{"sub": d.By}, Changes: []struct{}{}}
	entry.Data.ID = d.ID
	log, err := json.Marshal(entry)
	if err != nil {
		return err
	}
	b.ID, b.Space, b.Log = uuid.NewString(), ledger.OrgSpace(org), log
	b.Adds = []ledger.Add{{Key: denialsKey, Delta: 1}}
	_, err = l.ledger.Apply(ctx, b)
	return err
}
