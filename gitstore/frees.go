package gitstore

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// Frees tells how many stored bytes only ref keeps: the entries, deflated as they are,
// of what it leads to and no other ref or live pin does. They come back when the ref is
// gone and the repo has been pruned. It costs what is new on the ref and who grew out of
// it, not what there is. What another ref has as well without having it from this one,
// or had long before, counts as freed. Errors: ErrRefNotFound.
func (r *Repo) Frees(ctx context.Context, ref refpolicy.RefName) (int64, error) {
	ctx, end, err := r.store.work(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	got, err := r.ledger.ReadKeys(ctx, r.space, refKey(ref), linesKey)
	if err != nil {
		return 0, fmt.Errorf("read ref %s: %w", ref, err)
	}
	at, err := decodeRef(ref, got[0])
	if err != nil {
		return 0, err
	}
	f := freeing{
		r: r, ref: ref, lines: map[refpolicy.RefName]bool{}, known: map[refpolicy.OID]bool{},
		w: walk{g: graph{r, noFresh}, paint: map[refpolicy.OID]uint8{}},
	}
	size, err := f.run(ctx, at, got[1] != nil)
	if err != nil {
		return 0, r.orGone(fmt.Errorf("find what only %s keeps: %w", ref, err))
	}
	return size, nil
}

// freeing finds the commits that only one ref reaches: those painted as the ref's
// (paintTip) and not as anybody else's (paintTarget).
type freeing struct {
	r     *Repo
	ref   refpolicy.RefName
	w     walk
	lines map[refpolicy.RefName]bool // whose members are known
	known map[refpolicy.OID]bool     // commits that others are at
	own   []refpolicy.OID            // commits met as the ref's alone, newest first
}

func (f *freeing) run(ctx context.Context, at Ref, lined bool) (int64, error) {
	var others []link
	tip := at.OID
	if at.Peeled != (refpolicy.OID{}) {
		if kept, err := f.keptByOthers(ctx, at.OID); kept || err != nil {
			return 0, err
		}
		tip, others = at.Peeled, append(others, link{oid: at.OID})
	}
	if typ, _, err := f.r.header(ctx, tip); err != nil || typ != CommitObject {
		return 0, err
	}
	if err := f.w.add(ctx, tip, paintTip); err != nil {
		return 0, err
	}
	var err error
	if lined {
		err = f.byLines(ctx)
	} else {
		err = f.byAll(ctx)
	}
	if err != nil {
		return 0, err
	}
	return f.size(ctx, others)
}

// byAll asks all refs and pins, of a repo that was made before lines were kept.
func (f *freeing) byAll(ctx context.Context) error {
	pins, err := f.r.pinnedTips(ctx)
	if err != nil {
		return err
	}
	if err := f.others(ctx, pins...); err != nil {
		return err
	}
	_, err = f.r.tipsOf(ctx, allNames.without(nameRanges{nameItself(string(f.ref))}), func(t tipSet) (bool, error) {
		return false, f.others(ctx, t.commits...)
	})
	if err != nil {
		return err
	}
	return f.paint(ctx, func(refpolicy.OID) error { return nil })
}

// byLines asks those that joined the ref's line, and the lines of what it is built on.
func (f *freeing) byLines(ctx context.Context) error {
	for _, line := range []refpolicy.RefName{f.ref, ""} { // a commit without a line may get one later
		if err := f.visit(ctx, line); err != nil {
			return err
		}
	}
	return f.paint(ctx, func(oid refpolicy.OID) error {
		raw, err := readKey(ctx, f.r.ledger.PeekKeys, f.r.space, bornKey(oid))
		if err != nil {
			return err
		}
		line := refpolicy.RefName(raw)
		if f.lines[line] {
			return nil
		}
		return f.members(ctx, []joint{{member: string(line), made: anyLife, at: oid}})
	})
}

// paint walks until every commit that is left is below both the ref and others. met is
// called for what is the ref's alone so far.
func (f *freeing) paint(ctx context.Context, met func(refpolicy.OID) error) error {
	oldest := uint64(math.MaxUint64)
	for skewed := maxSkewed; f.w.queue.Len() > 0; {
		if f.w.live == 0 && (len(f.own) == 0 || f.w.queue.items[0].date < oldest) {
			if skewed--; skewed < 0 {
				return nil
			}
		}
		c, flags := f.w.pop()
		if flags == paintTip {
			f.own, oldest = append(f.own, c.oid), min(oldest, c.date)
			if err := met(c.oid); err != nil {
				return err
			}
			flags = f.w.paint[c.oid]
		}
		if flags&(paintTip|paintTarget) == paintTip|paintTarget {
			flags |= paintStale
		}
		for _, p := range c.parents {
			if err := f.w.add(ctx, p, flags); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxSkewed is how many more commits are looked at that by their dates cannot lead to
// what is the ref's alone: dates are the clients', and may lie.
const maxSkewed = 1_000

// others paints what somebody else keeps: commits, or tags of some.
func (f *freeing) others(ctx context.Context, commits ...refpolicy.OID) error {
	for _, oid := range commits {
		if f.known[oid] {
			continue
		}
		f.known[oid] = true
		commit, typ, err := f.w.g.peel(ctx, oid)
		if err == nil && typ == CommitObject {
			err = f.w.add(ctx, commit, paintTarget)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keptByOthers reports whether another ref is at an object, or a live pin holds it.
func (f *freeing) keptByOthers(ctx context.Context, oid refpolicy.OID) (bool, error) {
	v, err := f.r.ledger.Peek(ctx, f.r.space)
	if err != nil {
		return false, err
	}
	defer v.Close()
	if ok, err := isTip(ctx, v, allNames.without(nameRanges{nameItself(string(f.ref))}), oid); ok || err != nil {
		return ok, err
	}
	return f.r.pinned(ctx, v, oid)
}

// visit paints what the members of a line reach, and those of the lines of members
// that are not what they were when they joined.
func (f *freeing) visit(ctx context.Context, line refpolicy.RefName) error {
	if f.lines[line] {
		return nil
	}
	f.lines[line] = true
	var lost []refpolicy.RefName
	err := f.r.eachPage(ctx, joinPrefix(line), func(items []ledger.Item) error {
		joints := make([]joint, len(items))
		for n, it := range items {
			var err error
			if _, joints[n], err = parseJoint(it.Key); err != nil {
				return err
			}
		}
		more, err := f.paintMembers(ctx, joints)
		lost = append(lost, more...)
		return err
	})
	if err != nil {
		return err
	}
	return f.visitAll(ctx, lost)
}

// members is visit for joints that are known.
func (f *freeing) members(ctx context.Context, joints []joint) error {
	lost, err := f.paintMembers(ctx, joints)
	if err != nil {
		return err
	}
	return f.visitAll(ctx, lost)
}

func (f *freeing) visitAll(ctx context.Context, lines []refpolicy.RefName) error {
	for _, line := range lines {
		if err := f.visit(ctx, line); err != nil {
			return err
		}
	}
	return nil
}

// anyLife stands for the life of a ref that a commit came in by: had it ended since,
// the ref would be marked as cut.
var anyLife = time.Unix(-1, 0).UTC()

// paintMembers paints what members reach. It returns those whose own lines tell more.
func (f *freeing) paintMembers(ctx context.Context, joints []joint) (lost []refpolicy.RefName, err error) {
	keys := make([]string, 0, 2*len(joints))
	for _, j := range joints {
		if j.pin() {
			keys = append(keys, pinKey(j.member), cutKey(""))
		} else {
			keys = append(keys, refKey(refpolicy.RefName(j.member)), cutKey(refpolicy.RefName(j.member)))
		}
	}
	got, err := f.r.ledger.PeekKeys(ctx, f.r.space, keys...)
	if err != nil {
		return nil, err
	}
	for n, j := range joints {
		raw, cut := got[2*n], got[2*n+1] != nil
		switch {
		case j.member == string(f.ref):
		case j.pin():
			err = f.atPin(ctx, raw)
		case raw == nil:
			lost = append(lost, refpolicy.RefName(j.member))
		default:
			var rec refRecord
			if rec, err = decodeRefRecord(raw); err != nil {
				return nil, err
			}
			if !cut && (j.made.Equal(rec.created) || j.made.Equal(anyLife)) {
				err = f.others(ctx, j.at)
				break
			}
			lost = append(lost, refpolicy.RefName(j.member))
			err = f.others(ctx, rec.oid)
		}
		if err != nil {
			return nil, err
		}
	}
	return lost, nil
}

func (f *freeing) atPin(ctx context.Context, raw []byte) error {
	if raw == nil {
		return nil
	}
	rec, err := decodePin(raw)
	if err != nil {
		return err
	}
	now, err := f.r.ledger.Now(ctx)
	if err != nil || !rec.live(now) {
		return err
	}
	return f.others(ctx, rec.OID)
}
