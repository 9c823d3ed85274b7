package gitstore

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// A line is what came in by one ref: the commits whose born key names it. A ref, or a
// pin, joins a line at the commit by which it comes to reach it: a branch is made there,
// is moved there, or gets a commit that builds on it. So whoever reaches a commit has
// joined its line, or that of somebody who has, and can be found without asking all
// refs. Commits without a born key are the line without a name.
//
// A ref that was never rewound or deleted reaches all of its own line and wherever it
// joined another, so nobody who joined its line matters, nor where it is now.

func joinPrefix(line refpolicy.RefName) string { return joinKeys + string(line) + "\x00" }

// A joint is where somebody joined a line. made is when that ref was made; a joint that
// does not know it is of no ref that still is what it was then.
type joint struct {
	member string // name of a ref, or id of a pin
	made   time.Time
	at     refpolicy.OID
}

func (j joint) pin() bool { return strings.HasPrefix(j.member, pinIDs) }

func (j joint) key(line refpolicy.RefName) string {
	made := int64(0)
	if !j.made.IsZero() {
		made = j.made.UnixMicro()
	}
	b := append([]byte(joinPrefix(line)+j.member), 0)
	b = binary.BigEndian.AppendUint64(b, uint64(made))
	return string(append(b, j.at[:]...))
}

// parseJoint is the inverse of key.
func parseJoint(key string) (line refpolicy.RefName, j joint, err error) {
	rest, ok := strings.CutPrefix(key, joinKeys)
	name, rest, cut := strings.Cut(rest, "\x00")
	n := len(rest) - len(j.at) - 9
	if !ok || !cut || n < 1 || rest[n] != 0 {
		return "", j, fmt.Errorf("decode key %q: no joint", key)
	}
	j.member = rest[:n]
	j.made = time.UnixMicro(int64(binary.BigEndian.Uint64([]byte(rest[n+1:])))).UTC()
	copy(j.at[:], rest[n+9:])
	return refpolicy.RefName(name), j, nil
}

func cutKey(name refpolicy.RefName) string { return cutKeys + string(name) }

// commitLinks are the parents of a new commit, or what a new tag points at; ok is false
// for what is not new, or leads to no commit. It is read once.
func (d *door) commitLinks(oid refpolicy.OID) (links []refpolicy.OID, ok bool, err error) {
	if d.written {
		return nil, false, nil // what was new has come in with an earlier batch
	}
	if l, known := d.links[oid]; known {
		return l, true, nil
	}
	typ, ok, err := d.g.fresh.typeOf(oid)
	if err != nil || !ok || typ != CommitObject && typ != TagObject {
		return nil, false, err
	}
	o, _, err := d.g.fresh.lookup(oid)
	if err != nil {
		return nil, false, err
	}
	if typ == TagObject {
		t, terr := parseTag(o.data)
		links, err = []refpolicy.OID{t.object}, terr
	} else {
		h, _, herr := parseCommitHeader(o.data)
		links, err = h.parents, herr
	}
	if err != nil {
		return nil, false, err
	}
	if d.links == nil {
		d.links = map[refpolicy.OID][]refpolicy.OID{}
	}
	d.links[oid] = links
	return links, true, nil
}

// bornWanted are the commits whose lines making the batch will ask for, as far as
// they can be told before anything is read. What cannot be read is judged later.
func (d *door) bornWanted(todo []int) (ids []refpolicy.OID) {
	seen := map[refpolicy.OID]bool{}
	for _, i := range todo {
		res := &d.results[i]
		stack := []refpolicy.OID{res.New}
		for len(stack) > 0 && len(seen) < bornPerUpdate {
			oid := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			if oid.IsZero() || oid == res.Old || seen[oid] {
				continue
			}
			seen[oid] = true
			ids = append(ids, oid)
			if links, ok, err := d.commitLinks(oid); ok && err == nil {
				stack = append(stack, links...)
			}
		}
	}
	return ids
}

// lineOf is the line of a commit, "" for the one without a name.
func (d *door) lineOf(ctx context.Context, st *state, oid refpolicy.OID) (line refpolicy.RefName, err error) {
	if name, ok := st.born[oid]; ok {
		return refpolicy.RefName(name), nil
	}
	raw, err := readKey(ctx, d.r.ledger.PeekKeys, d.r.space, bornKey(oid))
	if err != nil {
		return "", fmt.Errorf("read line of %s: %w", oid, err)
	}
	st.born[oid] = raw
	return refpolicy.RefName(raw), nil
}

// fillLines notes by which ref each new commit comes in, and which lines each ref
// joins. What came in before and comes again belongs to two lines: each joins the other.
func (d *door) fillLines(ctx context.Context, p *prepared, st *state) error {
	l := lineFiller{d: d, p: p, st: st, by: map[refpolicy.OID]refpolicy.RefName{}, joined: map[string]bool{}}
	for _, i := range p.todo {
		res := &d.results[i]
		if res.Old == res.New || res.New.IsZero() {
			continue
		}
		if err := l.fill(ctx, res); err != nil {
			return err
		}
	}
	for _, pin := range d.u.Pins {
		if d.begun {
			break
		}
		line, ok := l.by[pin.OID]
		if !ok {
			var err error
			if line, err = d.lineOf(ctx, st, pin.OID); err != nil {
				return err
			}
		}
		l.join(line, joint{pin.ID, p.now, pin.OID})
	}
	return nil
}

type lineFiller struct {
	d      *door
	p      *prepared
	st     *state
	by     map[refpolicy.OID]refpolicy.RefName // new commits, and by which ref they come in
	joined map[string]bool                     // keys that are in the batch
}

// step is a commit on the way down from a ref's new value.
type step struct {
	oid    refpolicy.OID
	under  bool              // what builds on it is new and of no named line
	before refpolicy.RefName // the line that what builds on it was of before
}

func (l *lineFiller) fill(ctx context.Context, res *RefResult) error {
	stack := []step{{oid: res.New}}
	for len(stack) > 0 {
		s := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if s.oid == res.Old {
			continue // the ref has joined whatever that is of
		}
		if by, seen := l.by[s.oid]; seen {
			l.join(by, joint{string(res.Ref), res.State.CreatedAt, s.oid})
			continue
		}
		links, fresh, err := l.d.commitLinks(s.oid)
		if err != nil {
			return err
		}
		if !fresh {
			if err := l.meet(ctx, res, s.oid); err != nil {
				return err
			}
			continue
		}
		next, err := l.bear(ctx, res, s)
		if err != nil {
			return err
		}
		for _, oid := range links {
			next.oid = oid
			stack = append(stack, next)
		}
	}
	return nil
}

// meet has a ref join the line of a stored commit.
func (l *lineFiller) meet(ctx context.Context, res *RefResult, oid refpolicy.OID) error {
	if res.State.Peeled != (refpolicy.OID{}) && oid == res.New {
		oid = res.State.Peeled // a stored tag
	}
	line, err := l.d.lineOf(ctx, l.st, oid)
	if err != nil {
		return err
	}
	l.join(line, joint{string(res.Ref), res.State.CreatedAt, oid})
	return nil
}

// bear notes a new commit. Of an update with very many, the last are of no named line.
func (l *lineFiller) bear(ctx context.Context, res *RefResult, s step) (next step, err error) {
	own := joint{string(res.Ref), res.State.CreatedAt, s.oid}
	if len(l.by) >= bornPerUpdate {
		l.by[s.oid] = ""
		if !s.under {
			l.join("", own)
		}
		return step{under: true}, nil
	}
	l.by[s.oid] = res.Ref
	before, err := l.d.lineOf(ctx, l.st, s.oid)
	if err != nil {
		return s, err
	}
	if before != "" && before != res.Ref && before != s.before {
		l.join(before, own)
		l.join(res.Ref, joint{member: string(before)})
	}
	if typ, _, err := l.d.g.fresh.typeOf(s.oid); err != nil || typ != CommitObject {
		return s, err
	}
	l.p.batch.Sets = append(l.p.batch.Sets, ledger.Set{Key: bornKey(s.oid), Value: []byte(res.Ref)})
	return step{before: before}, nil
}

func (l *lineFiller) join(line refpolicy.RefName, j joint) {
	if string(line) == j.member {
		return
	}
	key := j.key(line)
	if !l.joined[key] {
		l.joined[key] = true
		l.p.batch.Sets = append(l.p.batch.Sets, ledger.Set{Key: key})
	}
}
