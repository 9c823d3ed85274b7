package gitstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// errOvertaken: another prune or merge of the same repo came first. Its work stands.
var errOvertaken = errors.New("another upkeep of the repo came first")

// PruneReport tells what a prune did.
type PruneReport struct {
	Condemned int   // packs that held what nothing leads to
	Written   int   // packs that took their place
	Dead      int   // objects that are gone, those in both tiers counted twice
	Bytes     int64 // size of the condemned packs less that of the new ones
}

// prune takes away what no ref and no pin leads to. With all, also of packs that
// have little of it, and hot objects at once; without, what is hot is settled before,
// so that whoever still reads what has just been deleted has a pack's grace for it.
//
// Why nothing that is needed goes, with writers and other prunes on any node: let R
// be what refs and pins led to when the generation was raised, and N what has been
// written since. A write's batch checks the generation in which its proof was made.
// One of an older generation fails and is proved anew. In the new generation a proof
// leans on refs and pins that were read after the raise, so by induction on what
// was applied since, everything that is reachable lies in R or N. What is taken away
// is in neither: the walk below covers R, packs registered since are no candidates,
// and a hot object carries the generation it was written in and goes only while it
// has the value that was read.
//
// Why a crash does no harm: after the raise, writes are proved once more; before the
// swap, new packs are files without a record; after it, what is left to be done is
// deleting what is dead already, and the next prune finds it.
func (r *Repo) prune(ctx context.Context, all bool) (PruneReport, error) {
	p := &pruning{r: r, all: all}
	var err error
	if !all {
		err = r.settleAlone(ctx)
	}
	if err == nil {
		err = p.run(ctx)
	}
	if p.marks != nil {
		p.marks.close()
	}
	if err != nil && p.overtaken(ctx) {
		err = errOvertaken
	}
	return p.report, r.orGone(err)
}

// pruning is one prune under way.
type pruning struct {
	r       *Repo
	all     bool
	marks   *marks
	gen     []byte    // the generation it has begun
	number  uint64    // the same as a number
	after   uint64    // the log's last number at the raise
	raised  time.Time // the ledger's clock at the raise
	swapped bool
	waste   int64
	refs    int64 // that it walked from
	lost    []lostKey
	report  PruneReport
}

func (p *pruning) run(ctx context.Context) error {
	p.waste = p.r.waste.Load()
	if err := p.findLost(ctx); err != nil {
		return fmt.Errorf("prune: find lines of what is gone: %w", err)
	}
	if err := p.raise(ctx); err != nil {
		return err
	}
	if err := p.walkRoots(ctx); err != nil {
		return fmt.Errorf("prune: find what is needed: %w", err)
	}
	if err := p.replacePacks(ctx); err != nil {
		return fmt.Errorf("prune: %w", err)
	}
	if p.all {
		if err := p.sweepHot(ctx); err != nil {
			return fmt.Errorf("prune: delete hot objects: %w", err)
		}
	}
	if err := p.sweepPins(ctx); err != nil {
		return fmt.Errorf("prune: delete ended pins: %w", err)
	}
	if err := p.sweepLines(ctx); err != nil {
		return fmt.Errorf("prune: forget lines of what is gone: %w", err)
	}
	p.r.waste.Add(-p.waste)
	return p.note(ctx)
}

// prunedRecord is what stands under gc/pruned.
type prunedRecord struct {
	Seq  uint64    `json:"seq"` // the log's last number when it began
	At   time.Time `json:"at"`
	Refs int64     `json:"refs"` // how many there were
}

// note remembers that the prune has ended, for whoever asks whether one is due.
func (p *pruning) note(ctx context.Context) error {
	_, err := p.r.ledger.Apply(ctx, ledger.Batch{
		Space: p.r.space, Checks: []ledger.Check{ledger.Equal(genKey, p.gen)},
		Sets: []ledger.Set{{Key: prunedKey, Value: mustJSON(prunedRecord{p.after, p.raised, p.refs})}},
	})
	if err != nil {
		return fmt.Errorf("prune: note its end: %w", err)
	}
	p.r.prunedRefs.Store(p.refs)
	return nil
}

// overtaken reports whether another prune has begun meanwhile, or a candidate has
// been replaced. What was taken away then may be what this one failed on.
func (p *pruning) overtaken(ctx context.Context) bool {
	if p.gen == nil {
		return false
	}
	gen, list, err := p.r.livePacks(ctx)
	if err != nil || !bytes.Equal(gen, p.gen) {
		return err == nil
	}
	live := map[string]bool{}
	for _, l := range list {
		live[l.name] = true
	}
	for _, pack := range p.marks.packs {
		if !live[pack.Name()] && !p.swapped {
			return true
		}
	}
	return false
}

// raise begins a generation. The packs are listed before it, so that all of them
// were registered before; one that comes in between is no candidate, which only
// spares it.
func (p *pruning) raise(ctx context.Context) error {
	old, err := p.begin(ctx)
	if err != nil {
		return fmt.Errorf("prune: %w", err)
	}
	n, err := strconv.ParseUint(string(old), 10, 64)
	if err != nil {
		return fmt.Errorf("read prune generation: %w", err)
	}
	gen := []byte(strconv.FormatUint(n+1, 10))
	res, err := p.r.ledger.Apply(ctx, ledger.Batch{
		Space:  p.r.space,
		Checks: []ledger.Check{ledger.Equal(genKey, old)},
		Sets:   []ledger.Set{{Key: genKey, Value: gen}},
	})
	if genMoved(err) {
		return errOvertaken
	}
	if err != nil {
		return fmt.Errorf("prune: begin generation %s: %w", gen, err)
	}
	p.gen, p.number, p.after, p.raised = gen, n+1, res.Seq, res.At
	return nil
}

// begin opens the listed packs and gives the generation they were listed in.
func (p *pruning) begin(ctx context.Context) (gen []byte, err error) {
	for try := 1; ; try++ {
		gen, list, err := p.r.livePacks(ctx)
		if err != nil {
			return nil, err
		}
		p.marks, err = p.r.newMarks(list)
		if !errors.Is(err, packs.ErrPackMissing) || try == listTries { // else it was replaced and removed meanwhile
			return gen, err
		}
	}
}

// walkRoots marks all that is needed. Refs are read page by page, each as it stands
// then; the log is read last: a ref that had another value at the raise than when
// its page was read has its old value there.
func (p *pruning) walkRoots(ctx context.Context) error {
	err := p.r.eachPage(ctx, refKeys, func(items []ledger.Item) error {
		p.refs += int64(len(items))
		for _, it := range items {
			rec, err := decodeRefRecord(it.Value)
			if err != nil {
				return fmt.Errorf("read ref %s: %w", strings.TrimPrefix(it.Key, refKeys), err)
			}
			if err := p.marks.walk(ctx, rec.oid); err != nil {
				return fmt.Errorf("%s: %w", strings.TrimPrefix(it.Key, refKeys), err)
			}
		}
		return nil
	})
	if err == nil {
		err = p.walkPins(ctx)
	}
	if err == nil {
		err = p.walkLog(ctx)
	}
	return err
}

// walkPins marks what pins hold, those included that ended after the raise: a write
// of this generation may have been proved by them.
func (p *pruning) walkPins(ctx context.Context) error {
	return p.r.eachPage(ctx, pinKeys, func(items []ledger.Item) error {
		for _, it := range items {
			rec, err := decodePin(it.Value)
			if err != nil {
				return err
			}
			if p.ended(rec) {
				continue
			}
			if err := p.marks.walk(ctx, rec.OID); err != nil {
				return fmt.Errorf("pin %s: %w", strings.TrimPrefix(it.Key, pinKeys), err)
			}
		}
		return nil
	})
}

// clocksApart is how far behind the clock of a space another node's may be: servers
// of a cluster have clocks of their own, and one may be set back.
const clocksApart = 10 * time.Minute

// ended reports whether a pin held nothing any more at the raise, by nobody's clock.
func (p *pruning) ended(rec pinRecord) bool {
	if rec.EndedIn != 0 {
		return rec.EndedIn < p.number
	}
	at := p.raised
	if p.r.store.shared {
		at = at.Add(-clocksApart)
	}
	return !rec.live(at)
}

// walkLog marks every old and new value of refs that moved since the raise.
func (p *pruning) walkLog(ctx context.Context) error {
	v, err := p.r.ledger.Read(ctx, p.r.space)
	if err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	defer v.Close()
	for after := p.after; ; {
		entries, err := p.r.logAfter(ctx, v, after, ledger.BulkKeys)
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		for _, e := range entries {
			var entry LogEntry
			if err := json.Unmarshal(e.Data, &entry); err != nil {
				return fmt.Errorf("read log entry %d: %w", e.Seq, err)
			}
			for _, c := range entry.Changes {
				for _, oid := range []refpolicy.OID{c.Old, c.New} {
					if oid.IsZero() {
						continue
					}
					if err := p.marks.walk(ctx, oid); err != nil {
						return fmt.Errorf("log entry %d: %w", e.Seq, err)
					}
				}
			}
			after = e.Seq
		}
		if len(entries) == 0 {
			return nil
		}
	}
}

// eachPage reads all items below prefix, each page through a view of its own: a walk
// over everything must not hold back what the ledger keeps for a view.
func (r *Repo) eachPage(ctx context.Context, prefix string, fn func([]ledger.Item) error) error {
	for start := prefix; ; {
		page, err := r.page(ctx, prefix, start)
		if err != nil {
			return err
		}
		if err := fn(page); err != nil || len(page) < ledger.BulkKeys {
			return err
		}
		start = page[len(page)-1].Key + "\x00"
	}
}

func (r *Repo) page(ctx context.Context, prefix, start string) ([]ledger.Item, error) {
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	return v.Scan(ctx, prefix, start, ledger.BulkKeys)
}
