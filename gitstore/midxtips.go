package gitstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// A tipsFile holds commits that refs are at, an id a line, in a file that need not
// survive the process.
type tipsFile struct {
	path  string
	count int
}

// remove ends it. What cannot be removed goes with the scratch folder.
func (t *tipsFile) remove() { os.Remove(t.path) }

// settledTips writes down the commits of all refs that lie in packs of the list. Then
// all they lead to does as well: settling takes everything hot up to a log number, a
// pushed pack brings or settles what it builds on, and a prune leaves all that is
// reachable. Refs are read after the list, so one that has moved since may be at a
// commit that is in none of the packs, and is left out.
func (r *Repo) settledTips(ctx context.Context, list []livePack) (t *tipsFile, err error) {
	var open []*packs.Pack
	defer func() {
		for _, p := range open {
			p.Release()
		}
	}()
	for _, l := range list {
		p, err := r.dir.Pack(l.name)
		if err != nil {
			return nil, err
		}
		open = append(open, p)
	}
	f, err := os.CreateTemp(r.store.scratch.path, "tips-")
	if err != nil {
		return nil, fmt.Errorf("write tips: %w", err)
	}
	t = &tipsFile{path: f.Name()}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			t.remove()
		}
	}()
	w := bufio.NewWriter(f)
	var last refpolicy.OID
	err = r.eachPage(ctx, refKeys, func(items []ledger.Item) error {
		for _, it := range items {
			oid, ok := settledTip(open, it.Value)
			if !ok || oid == last {
				continue
			}
			last = oid
			t.count++
			if _, err := w.WriteString(oid.String() + "\n"); err != nil {
				return err
			}
		}
		return nil
	})
	return t, errors.Join(err, w.Flush())
}

// settledTip is the commit a ref leads to, if that is in one of the packs. A record
// or an object that cannot be read is for others to tell.
func settledTip(open []*packs.Pack, raw []byte) (oid refpolicy.OID, ok bool) {
	rec, err := decodeRefRecord(raw)
	if err != nil {
		return oid, false
	}
	if oid = rec.oid; !rec.peeled.IsZero() {
		oid = rec.peeled
	}
	for _, p := range open {
		if !p.Has(oid) {
			continue
		}
		t, _, err := p.Header(oid)
		return oid, err == nil && t == packs.Commit
	}
	return oid, false
}
