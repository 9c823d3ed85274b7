package gitstore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// A Revision is a resolved revision.
type Revision struct {
	Commit refpolicy.OID
	Echo   string // how responses name it (rest.md 4): as asked, the default branch's short name for "", the stored name of an ephemeral branch
}

const (
	// maxRevision is the longest revision, in bytes: a ref name and many steps.
	maxRevision = 4096
	// minAbbreviation is the fewest hex digits that may stand for a commit.
	minAbbreviation = 4
)

// Resolve resolves the revision grammar of rest.md 4 to a commit the caller may
// read. An empty rev is the default branch. Errors: ErrBadRevision,
// ErrRefNotFound, ErrObjectNotFound, ErrEmptyRepo (rev names the default branch
// in any way, and the caller sees no ref at all).
func (r *Repo) Resolve(ctx context.Context, c Caller, rev string, ephemeral bool) (Revision, error) {
	p, err := parseRevision(rev)
	if err != nil {
		return Revision{}, err
	}
	base, err := r.resolveBase(ctx, c, p.base, ephemeral)
	if err != nil {
		return Revision{}, err
	}
	for _, s := range p.steps {
		if base.Commit, err = r.step(ctx, base.Commit, s); err != nil {
			return Revision{}, notFoundAs(err, rev)
		}
	}
	base.Echo += p.suffix
	return base, nil
}

// A revisionStep goes from a commit to its n-th generation ancestor of first
// parents ('~') or to its n-th parent ('^').
type revisionStep struct {
	op byte
	n  int
}

type parsedRevision struct {
	base   string
	suffix string // the steps as written
	steps  []revisionStep
}

// parseRevision reads
//
//	rev  = [ base *( "~" [digits] / "^" [digits] ) ]
//
// and checks that base can be a name at all.
func parseRevision(rev string) (parsedRevision, error) {
	if len(rev) > maxRevision {
		return parsedRevision{}, fmt.Errorf("%w: longer than %d bytes", ErrBadRevision, maxRevision)
	}
	p := parsedRevision{base: rev}
	if i := strings.IndexAny(rev, "~^"); i >= 0 {
		p.base, p.suffix = rev[:i], rev[i:]
	}
	if rev != "" && !validBase(p.base) {
		return parsedRevision{}, fmt.Errorf("%w: %q", ErrBadRevision, rev)
	}
	for rest := p.suffix; rest != ""; {
		s := revisionStep{op: rest[0], n: 1}
		if s.op != '~' && s.op != '^' {
			return parsedRevision{}, fmt.Errorf("%w: %q", ErrBadRevision, rev)
		}
		digits := digitSpan([]byte(rest[1:]))
		if digits > 0 {
			s.n = boundedNumber(rest[1 : 1+digits])
		}
		rest = rest[1+digits:]
		p.steps = append(p.steps, s)
	}
	return p, nil
}

// boundedNumber reads digits; what does not fit is the largest number, which no history reaches.
func boundedNumber(digits string) int {
	n := 0
	for _, d := range digits {
		if n > math.MaxInt32/10 {
			return math.MaxInt32
		}
		n = 10*n + int(d-'0')
	}
	return n
}

func validBase(base string) bool {
	name := base
	if !strings.HasPrefix(base, refpolicy.RefsPrefix) {
		name = refpolicy.BranchPrefix + base
	}
	_, err := refpolicy.ParseRefName(name)
	return err == nil
}

// resolveBase looks base up in the order of rest.md 4.
func (r *Repo) resolveBase(ctx context.Context, c Caller, base string, ephemeral bool) (Revision, error) {
	if oid, err := refpolicy.ParseOID(strings.ToLower(base)); err == nil {
		commit, err := r.resolveOID(ctx, c, oid)
		return Revision{commit, base}, err
	}
	if ephemeral {
		return r.resolveEphemeral(ctx, c, base)
	}
	if strings.HasPrefix(base, refpolicy.RefsPrefix) {
		return r.resolveFullName(ctx, c, base)
	}
	if base == "" || base == "HEAD" {
		def := r.Info().DefaultBranch
		commit, err := r.resolveRef(ctx, c, refpolicy.RefName(refpolicy.BranchPrefix+def))
		if base == "" {
			base = def
		}
		return Revision{commit, base}, err
	}
	for _, prefix := range []string{refpolicy.BranchPrefix, refpolicy.TagPrefix} {
		commit, err := r.resolveRef(ctx, c, refpolicy.RefName(prefix+base))
		if !errors.Is(err, ErrRefNotFound) {
			return Revision{commit, base}, err
		}
	}
	if isAbbreviation(base) {
		commit, err := r.resolveAbbreviation(ctx, c, strings.ToLower(base))
		return Revision{commit, base}, err
	}
	return Revision{}, fmt.Errorf("%w: %s", ErrRefNotFound, base)
}

// resolveEphemeral finds an ephemeral branch by its short name, by the name its
// remote shows, or by its stored name.
func (r *Repo) resolveEphemeral(ctx context.Context, c Caller, base string) (Revision, error) {
	short := base
	if base == "" {
		short = r.Info().DefaultBranch
	}
	for _, prefix := range []string{refpolicy.EphemeralBranchPrefix, refpolicy.BranchPrefix} {
		if s, ok := strings.CutPrefix(short, prefix); ok {
			short = s
			break
		}
	}
	if strings.HasPrefix(short, refpolicy.RefsPrefix) {
		return Revision{}, fmt.Errorf("%w: %s", ErrRefNotFound, base)
	}
	name := refpolicy.RefName(refpolicy.EphemeralBranchPrefix + short)
	commit, err := r.resolveRef(ctx, c, name)
	return Revision{commit, name.String()}, err
}

// resolveFullName finds exactly the ref named. Those in namespaces are only for calls that ask for them.
func (r *Repo) resolveFullName(ctx context.Context, c Caller, base string) (Revision, error) {
	name := refpolicy.RefName(base)
	if name.Hidden() {
		return Revision{}, fmt.Errorf("%w: %s", ErrRefNotFound, base)
	}
	commit, err := r.resolveRef(ctx, c, name)
	return Revision{commit, base}, err
}

// resolveRef gives the commit of a ref, annotated tags peeled. A ref of anything
// else is ErrObjectNotFound; a missing default branch of an empty repo is ErrEmptyRepo.
func (r *Repo) resolveRef(ctx context.Context, c Caller, name refpolicy.RefName) (refpolicy.OID, error) {
	ref, err := r.Ref(ctx, c, name)
	if errors.Is(err, ErrRefNotFound) && (name.IsBranch() || name.IsEphemeralBranch()) && name.Short() == r.Info().DefaultBranch {
		return refpolicy.OID{}, r.unborn(ctx, c, err)
	}
	if err != nil {
		return refpolicy.OID{}, err
	}
	oid := ref.OID
	if !ref.Peeled.IsZero() {
		oid = ref.Peeled
	}
	if name.IsBranch() || name.IsEphemeralBranch() {
		return oid, nil // the door lets nothing but commits onto a branch
	}
	if _, err := (graph{r, noFresh}).commit(ctx, oid); err != nil {
		return refpolicy.OID{}, notFoundAs(err, name.String())
	}
	return oid, nil
}

// unborn is ErrEmptyRepo if the caller sees no ref at all, else notFound.
func (r *Repo) unborn(ctx context.Context, c Caller, notFound error) error {
	refs, err := r.Refs(ctx, c, refpolicy.RefsPrefix, "", 1)
	if err != nil {
		return err
	}
	if len(refs) == 0 {
		return ErrEmptyRepo
	}
	return notFound
}

// resolveOID checks that the caller may read the commit oid. For a token with
// rules on reading what it cannot reach does not exist, and tag objects are not
// looked into, since their existence would have to be proved too.
func (r *Repo) resolveOID(ctx context.Context, c Caller, oid refpolicy.OID) (refpolicy.OID, error) {
	if c.Policy.RestrictsReads() {
		ok, err := r.reachable(ctx, c, oid)
		if err == nil && !ok {
			err = fmt.Errorf("%w: %s", ErrObjectNotFound, oid)
		}
		return oid, err
	}
	commit, err := r.peel(ctx, oid)
	if err != nil {
		err = notFoundAs(err, oid.String())
	}
	return commit, err
}

// peel follows annotated tags to a commit; anything else is ErrObjectNotFound.
func (r *Repo) peel(ctx context.Context, oid refpolicy.OID) (refpolicy.OID, error) {
	for {
		t, _, err := r.header(ctx, oid)
		if err != nil || t == CommitObject {
			return oid, err
		}
		if t != TagObject {
			return oid, fmt.Errorf("%w: %s is a %s", ErrObjectNotFound, oid, t)
		}
		data, err := r.typed(ctx, oid, TagObject)
		if err != nil {
			return oid, err
		}
		if _, ok := cutOIDLine(data, "object ", &oid); !ok {
			return oid, fmt.Errorf("%w: tag %s names no object", ErrBadObject, oid)
		}
	}
}

func isAbbreviation(s string) bool {
	if len(s) < minAbbreviation || len(s) >= 2*len(refpolicy.OID{}) {
		return false
	}
	return strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

// resolveAbbreviation finds the one commit the caller may read whose id begins
// with digits. What it may not read makes nothing ambiguous.
func (r *Repo) resolveAbbreviation(ctx context.Context, c Caller, digits string) (refpolicy.OID, error) {
	candidates, err := r.abbreviated(ctx, digits)
	if err != nil {
		return refpolicy.OID{}, fmt.Errorf("look for %s: %w", digits, err)
	}
	var found refpolicy.OID
	for _, oid := range candidates {
		t, _, err := r.header(ctx, oid)
		ok := err == nil && t == CommitObject
		if ok && c.Policy.RestrictsReads() {
			ok, err = r.reachable(ctx, c, oid)
		}
		if err != nil && !errors.Is(err, ErrObjectNotFound) {
			return refpolicy.OID{}, err
		}
		if !ok || oid == found {
			continue
		}
		if !found.IsZero() {
			return refpolicy.OID{}, fmt.Errorf("%w: %s is ambiguous", ErrBadRevision, digits)
		}
		found = oid
	}
	if found.IsZero() {
		return found, fmt.Errorf("%w: %s", ErrRefNotFound, digits)
	}
	return found, nil
}

// abbreviated lists the objects of both tiers whose ids begin with the lower-case
// hex digits; one may come twice. The hot tier is read first: an object leaves it
// only after its pack was registered.
func (r *Repo) abbreviated(ctx context.Context, digits string) ([]refpolicy.OID, error) {
	low, err := hex.DecodeString(digits[:len(digits)&^1])
	if err != nil {
		return nil, err
	}
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	items, err := scanAll(ctx, v, hotKeys+string(low))
	if err != nil {
		return nil, err
	}
	var found []refpolicy.OID
	keep := func(oid refpolicy.OID) {
		if strings.HasPrefix(oid.String(), digits) {
			found = append(found, oid)
		}
	}
	for _, it := range items {
		keep(refpolicy.OID([]byte(it.Key[len(hotKeys):])))
	}
	for try := 1; ; try++ {
		if err := r.loadPacks(ctx); err != nil {
			return nil, err
		}
		err := r.eachPack(func(p *packs.Pack) {
			first := sort.Search(p.Count(), func(i int) bool { oid := p.OID(i); return string(oid[:len(low)]) >= string(low) })
			for i := first; i < p.Count(); i++ {
				oid := p.OID(i)
				if string(oid[:len(low)]) != string(low) {
					break
				}
				keep(oid)
			}
		})
		if !errors.Is(err, packs.ErrPackMissing) || try == listTries {
			return found, err
		}
	}
}

// eachPack calls fn with every listed pack: packs.ErrPackMissing if one has been
// replaced and removed meanwhile.
func (r *Repo) eachPack(fn func(*packs.Pack)) error {
	for _, name := range r.packNames() {
		p, err := r.dir.Pack(name)
		if err != nil {
			return err
		}
		fn(p)
		p.Release()
	}
	return nil
}

// step goes one step back in history.
func (r *Repo) step(ctx context.Context, commit refpolicy.OID, s revisionStep) (refpolicy.OID, error) {
	times, nth := s.n, 1
	if s.op == '^' {
		times, nth = min(s.n, 1), s.n
	}
	for range times {
		h, err := graph{r, noFresh}.commit(ctx, commit)
		if err != nil {
			return commit, err
		}
		if nth > len(h.parents) {
			return commit, fmt.Errorf("%w: %s has no parent %d", ErrObjectNotFound, commit, nth)
		}
		commit = h.parents[nth-1]
	}
	return commit, nil
}

// notFoundAs gives every ErrObjectNotFound the same text: why something was not
// found is not for a caller who may not know that it exists.
func notFoundAs(err error, name string) error {
	if errors.Is(err, ErrObjectNotFound) {
		return fmt.Errorf("%w: %s", ErrObjectNotFound, name)
	}
	return err
}
