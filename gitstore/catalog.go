package gitstore

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

const (
	// catalogFrom is how many packs are asked one after the other: with more, a look-up
	// goes by a catalog of them.
	catalogFrom = 16
	// catalogObjects bounds what is in a catalog. The largest packs are left out, of
	// which there cannot be many.
	catalogObjects = 8 << 20
)

// catalogs is what a repo knows of where objects are among many packs.
type catalogs struct {
	mu  sync.Mutex // held while one is made
	now atomic.Pointer[catalogView]
}

// A catalogView is a catalog as seen from a list of packs.
type catalogView struct {
	list  *[]string      // the repo's list that it is of
	names []string       // of the catalog's packs, by number
	made  *packs.Catalog // nil for none
	live  []bool         // by number: still listed
	rest  []string       // listed packs that are not in it
}

// look finds the pack that holds oid, with a reference to release, or nil.
func (c *catalogs) look(r *Repo, list *[]string, oid refpolicy.OID) (*packs.Pack, error) {
	v := c.now.Load()
	if v == nil || v.list != list {
		var err error
		if v, err = c.renew(r, list); err != nil {
			return nil, err
		}
	}
	for _, name := range v.rest {
		if p, err := r.packHolding(name, oid); p != nil || err != nil {
			return p, err
		}
	}
	var found *packs.Pack
	var err error
	if v.made != nil {
		v.made.Each(oid, func(n int) bool {
			if v.live[n] {
				found, err = r.packHolding(v.names[n], oid)
			}
			return found == nil && err == nil
		})
	}
	return found, err
}

// packHolding opens a pack if it holds oid; nil if not.
func (r *Repo) packHolding(name string, oid refpolicy.OID) (*packs.Pack, error) {
	p, err := r.dir.Pack(name)
	if err != nil || p.Has(oid) {
		return p, err
	}
	p.Release()
	return nil, nil
}

// renew makes the view of a list, with a new catalog if too many are in none.
func (c *catalogs) renew(r *Repo, list *[]string) (*catalogView, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.now.Load()
	if v != nil && v.list == list {
		return v, nil
	}
	next := &catalogView{}
	if v != nil {
		next.names, next.made = v.names, v.made
	}
	next.see(list)
	if len(next.rest) > catalogFrom {
		names, made, err := makeCatalog(r, *list)
		if err != nil {
			return nil, err
		}
		next.names, next.made = names, made
		next.see(list)
	}
	c.now.Store(next)
	return next, nil
}

// see holds the catalog against a list.
func (v *catalogView) see(list *[]string) {
	v.list, v.rest, v.live = list, nil, make([]bool, len(v.names))
	number := make(map[string]int, len(v.names))
	for n, name := range v.names {
		number[name] = n
	}
	for _, name := range *list {
		if n, ok := number[name]; ok {
			v.live[n] = true
		} else {
			v.rest = append(v.rest, name)
		}
	}
}

// makeCatalog makes one of the smaller packs of a list.
func makeCatalog(r *Repo, list []string) (names []string, made *packs.Catalog, err error) {
	open := make([]*packs.Pack, 0, len(list))
	defer func() {
		for _, p := range open {
			p.Release()
		}
	}()
	for _, name := range list {
		p, err := r.dir.Pack(name)
		if err != nil {
			return nil, nil, err
		}
		open = append(open, p)
	}
	slices.SortStableFunc(open, func(a, b *packs.Pack) int { return cmp.Compare(a.Count(), b.Count()) })
	n, objects := 0, 0
	for ; n < min(len(open), packs.MaxCatalog); n++ {
		if objects += open[n].Count(); objects > catalogObjects {
			break
		}
		names = append(names, open[n].Name())
	}
	return names, packs.NewCatalog(open[:n]), nil
}
