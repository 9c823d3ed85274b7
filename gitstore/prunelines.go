package gitstore

import (
	"context"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// lostKey is a key about a ref or pin that was not there before the raise.
type lostKey struct {
	key    string
	member string
}

const (
	maxLostKeys = 100_000 // that one prune takes away
	lostPerStep = 200     // keys in one batch
)

// findLost finds what the ledger still knows of lines of refs that are gone, and of
// pins. It comes before the raise: a write that leant on such a ref is then proved anew.
func (p *pruning) findLost(ctx context.Context) error {
	for _, prefix := range []string{joinKeys, cutKeys} {
		err := p.r.eachPage(ctx, prefix, func(items []ledger.Item) error {
			var found []lostKey
			for _, it := range items {
				member, ok := strings.CutPrefix(it.Key, cutKeys)
				if !ok {
					_, j, err := parseJoint(it.Key)
					if err != nil {
						return err
					}
					member = j.member
				}
				found = append(found, lostKey{it.Key, member})
			}
			lost, err := p.absent(ctx, found)
			if room := maxLostKeys - len(p.lost); len(lost) > room {
				lost = lost[:room]
			}
			p.lost = append(p.lost, lost...)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// absent keeps the keys whose ref or pin is not there.
func (p *pruning) absent(ctx context.Context, keys []lostKey) (lost []lostKey, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	own := make([]string, len(keys))
	for n, k := range keys {
		own[n] = k.own()
	}
	got, err := p.r.ledger.ReadKeys(ctx, p.r.space, own...)
	if err != nil {
		return nil, err
	}
	for n, k := range keys {
		if got[n] == nil {
			lost = append(lost, k)
		}
	}
	return lost, nil
}

// own is where the ref or pin itself stands.
func (k lostKey) own() string {
	if strings.HasPrefix(k.member, pinIDs) {
		return pinKey(k.member)
	}
	return refKey(refpolicy.RefName(k.member))
}

// sweepLines deletes what was found, but for lines that somebody has joined: through
// those it may be found who else keeps what the gone ref was built on.
func (p *pruning) sweepLines(ctx context.Context) error {
	for len(p.lost) > 0 {
		n := min(lostPerStep, len(p.lost))
		keys := p.lost[:n]
		p.lost = p.lost[n:]
		b, err := p.forgetLines(ctx, keys)
		if err != nil || len(b.Deletes) == 0 {
			if err != nil {
				return err
			}
			continue
		}
		// What has been joined or made again in this moment is left to the next prune.
		if _, err := p.r.ledger.Apply(ctx, b); err != nil && (!isCheck(err) || genMoved(err)) {
			return err
		}
	}
	return nil
}

func (p *pruning) forgetLines(ctx context.Context, keys []lostKey) (ledger.Batch, error) {
	b := ledger.Batch{Space: p.r.space, Checks: []ledger.Check{ledger.Equal(genKey, p.gen)}}
	v, err := p.r.ledger.Read(ctx, p.r.space)
	if err != nil {
		return b, err
	}
	defer v.Close()
	checked := map[string]bool{}
	for _, k := range keys {
		below, err := v.Scan(ctx, joinPrefix(refpolicy.RefName(k.member)), "", 1)
		if err != nil {
			return b, err
		}
		if len(below) > 0 {
			continue
		}
		b.Deletes = append(b.Deletes, k.key)
		if !checked[k.member] {
			checked[k.member] = true
			b.Checks = append(b.Checks, ledger.Absent(k.own()), ledger.AbsentPrefix(joinPrefix(refpolicy.RefName(k.member))))
		}
	}
	return b, nil
}
