package gitstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// A Pin keeps a commit, with all it leads to, when no ref reaches it any more.
type Pin struct {
	ID        string
	OID       refpolicy.OID
	Holder    string // who needs it, in the caller's own words
	By        string // subject of the token that made it
	CreatedAt time.Time
	ExpiresAt time.Time // zero: it holds until it is deleted

	rules string // rulesMark of the token that made it
}

// pinRecord is what stands under a pin's key.
type pinRecord struct {
	OID       refpolicy.OID `json:"sha"`
	Holder    string        `json:"holder"`
	By        string        `json:"by,omitempty"`
	Rules     string        `json:"rules,omitempty"`
	CreatedAt time.Time     `json:"created_at"`
	ExpiresAt time.Time     `json:"expires_at,omitzero"`
	// EndedIn is the prune generation in which the pin was deleted. The record stays
	// until a prune of a later generation takes it away: a proof that leant on the pin
	// before may belong to a write that is still to be applied in this generation.
	EndedIn uint64 `json:"ended_in,omitempty"`
}

const (
	maxPinID     = 64                         // bytes
	maxPinHolder = 256                        // bytes
	maxPinTTL    = 100 * 365 * 24 * time.Hour // a pin for longer is one without an end
)

func (p pinRecord) live(now time.Time) bool {
	return p.EndedIn == 0 && (p.ExpiresAt.IsZero() || now.Before(p.ExpiresAt))
}

func (p pinRecord) pin(id string) Pin {
	return Pin{ID: id, OID: p.OID, Holder: p.Holder, By: p.By, CreatedAt: p.CreatedAt, ExpiresAt: p.ExpiresAt, rules: p.Rules}
}

func decodePin(b []byte) (pinRecord, error) {
	var p pinRecord
	if err := json.Unmarshal(b, &p); err != nil {
		return p, fmt.Errorf("decode pin: %w", err)
	}
	return p, nil
}

// pinEnd is what stands under pinned/<oid>/<id>: nothing, or when the pin ends, in
// microseconds since 1970, 8 bytes big-endian.
func pinEnd(at time.Time) []byte {
	if at.IsZero() {
		return nil
	}
	return binary.BigEndian.AppendUint64(nil, uint64(at.UnixMicro()))
}

// PinSpec asks for a pin.
type PinSpec struct {
	OID    refpolicy.OID // a commit
	Holder string
	TTL    time.Duration // 0: until it is deleted
	Once   *ledger.Once[Pin]
}

// NewPinID makes an id that no pin has.
func NewPinID() string { return pinIDs + strings.ReplaceAll(uuid.NewString(), "-", "") }

const pinIDs = "pin_" // what ids begin with

func checkPin(holder string, ttl time.Duration) error {
	switch {
	case holder == "" || len(holder) > maxPinHolder || !utf8.ValidString(holder) || strings.ContainsFunc(holder, unicode.IsControl):
		return invalidf("holder is 1 to %d bytes of text", maxPinHolder)
	case ttl < 0 || ttl > maxPinTTL:
		return invalidf("a pin's time is more than 0 and at most %d s", int64(maxPinTTL/time.Second))
	}
	return nil
}

// newPinRecord is the record of a pin made now.
func newPinRecord(c Caller, commit refpolicy.OID, holder string, ttl time.Duration, now time.Time) pinRecord {
	rec := pinRecord{OID: commit, Holder: holder, By: c.Actor.Subject, Rules: rulesMark(c), CreatedAt: now}
	if ttl > 0 {
		rec.ExpiresAt = now.Add(ttl).Truncate(time.Microsecond)
	}
	return rec
}

// rider is what makes the pin exist.
func (p pinRecord) rider(id string) ledger.Rider {
	return ledger.Rider{
		Checks: []ledger.Check{ledger.Absent(pinKey(id))},
		Sets:   []ledger.Set{{Key: pinKey(id), Value: mustJSON(p)}, {Key: pinnedKey(p.OID, id), Value: pinEnd(p.ExpiresAt)}},
	}
}

// Pin keeps a commit for a holder, for a time or without an end. The caller must be
// able to reach the commit from a ref or pin it may read; otherwise, and if it is no
// commit, the answer is ErrObjectNotFound. Errors: ErrInvalid.
func (r *Repo) Pin(ctx context.Context, c Caller, s PinSpec) (Pin, error) {
	if err := checkPin(s.Holder, s.TTL); err != nil {
		return Pin{}, err
	}
	ctx, end, err := r.store.work(ctx)
	if err != nil {
		return Pin{}, err
	}
	defer end()
	id := NewPinID()
	for range doorTries {
		p, err := r.pin(ctx, c, id, s)
		if !genMoved(err) {
			return p, r.orGone(r.orRepeated(ctx, s.Once.StoreKey(), err))
		}
		// A prune has begun: what was proved may be among what it takes. Proved anew, it is not.
	}
	return Pin{}, fmt.Errorf("pin %s: %w: pruning does not end", s.OID, ledger.ErrUnavailable)
}

func (r *Repo) pin(ctx context.Context, c Caller, id string, s PinSpec) (Pin, error) {
	got, err := r.ledger.PeekKeys(ctx, r.space, genKey, bornKey(s.OID))
	if err != nil {
		return Pin{}, fmt.Errorf("pin: %w", err)
	}
	gen, line := got[0], refpolicy.RefName(got[1])
	if gen == nil {
		return Pin{}, ErrRepoNotFound
	}
	if err := r.provePinned(ctx, c, s.OID); err != nil {
		return Pin{}, err
	}
	now, err := r.ledger.Now(ctx)
	if err != nil {
		return Pin{}, fmt.Errorf("pin: %w", err)
	}
	rec := newPinRecord(c, s.OID, s.Holder, s.TTL, now)
	once, err := s.Once.Rider(rec.pin(id), now)
	if err != nil {
		return Pin{}, err
	}
	b := ledger.Batch{Space: r.space, Checks: []ledger.Check{ledger.Equal(genKey, gen)}}
	b.Carry(rec.rider(id))
	b.Sets = append(b.Sets, ledger.Set{Key: joint{id, now, s.OID}.key(line)})
	b.Carry(once)
	if _, err = r.ledger.Apply(ctx, b); err != nil {
		return Pin{}, fmt.Errorf("pin: %w", err)
	}
	return rec.pin(id), nil
}

// provePinned demands that the caller reaches the commit. A refusal is told only
// when what it was read from is durable.
func (r *Repo) provePinned(ctx context.Context, c Caller, commit refpolicy.OID) error {
	missing := fmt.Errorf("%w: %s", ErrObjectNotFound, commit)
	err := r.prove(ctx, c, noFresh, []refpolicy.OID{commit}, nil)
	if err == nil {
		if t, _, herr := r.header(ctx, commit); herr != nil || t == CommitObject {
			return herr
		}
		err = missing
	}
	if !refutes(err) && !errors.Is(err, ErrObjectNotFound) {
		return err
	}
	v, rerr := r.ledger.Read(ctx, r.space)
	if rerr != nil {
		return fmt.Errorf("wait for published refs: %w", rerr)
	}
	v.Close()
	return missing
}

// Unpin deletes a pin. What only it kept goes with the next prune. once, which may be
// nil, is told the pin as it was. Errors: ErrPinNotFound, also for a pin the caller may
// not see.
func (r *Repo) Unpin(ctx context.Context, c Caller, id string, once *ledger.Once[Pin]) error {
	for range doorTries {
		err := r.unpin(ctx, c, id, once)
		if err = r.orRepeated(ctx, once.StoreKey(), err); !isCheck(err) {
			return r.orGone(err)
		}
	}
	return fmt.Errorf("unpin: %w: the pin keeps changing", ledger.ErrUnavailable)
}

// isCheck reports whether a batch was refused by a check.
func isCheck(err error) bool {
	var check *ledger.CheckError
	return errors.As(err, &check)
}

func (r *Repo) unpin(ctx context.Context, c Caller, id string, once *ledger.Once[Pin]) error {
	gen, raw, rec, err := r.readPin(ctx, id)
	if err != nil {
		return err
	}
	now, err := r.ledger.Now(ctx)
	if err != nil {
		return fmt.Errorf("unpin: %w", err)
	}
	visible, err := r.visiblePins(ctx, c, now, []Pin{rec.pin(id)})
	if err != nil {
		return err
	}
	if !rec.live(now) || len(visible) == 0 {
		return ErrPinNotFound
	}
	if rec.EndedIn, err = strconv.ParseUint(string(gen), 10, 64); err != nil {
		return fmt.Errorf("read prune generation: %w", err)
	}
	kept, err := once.Rider(rec.pin(id), now)
	if err != nil {
		return err
	}
	b := ledger.Batch{
		Space:   r.space,
		Checks:  []ledger.Check{ledger.Equal(genKey, gen), ledger.Equal(pinKey(id), raw)},
		Sets:    []ledger.Set{{Key: pinKey(id), Value: mustJSON(rec)}},
		Deletes: []string{pinnedKey(rec.OID, id)},
	}
	b.Carry(kept)
	if _, err = r.ledger.Apply(ctx, b); err != nil {
		return fmt.Errorf("unpin: %w", err)
	}
	return nil
}

// readPin reads a pin's record together with the prune generation.
func (r *Repo) readPin(ctx context.Context, id string) (gen, raw []byte, rec pinRecord, err error) {
	if !strings.HasPrefix(id, pinIDs) || len(id) > maxPinID {
		return nil, nil, rec, ErrPinNotFound
	}
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return nil, nil, rec, fmt.Errorf("read pin: %w", err)
	}
	defer v.Close()
	got, err := v.GetMany(ctx, genKey, pinKey(id))
	switch {
	case err != nil:
		return nil, nil, rec, fmt.Errorf("read pin: %w", err)
	case got[0] == nil:
		return nil, nil, rec, ErrRepoNotFound
	case got[1] == nil:
		return nil, nil, rec, ErrPinNotFound
	}
	rec, err = decodePin(got[1])
	return got[0], got[1], rec, err
}

// PinPage is one page of pins.
type PinPage struct {
	Pins []Pin
	Next string // cursor of the next page; empty on the last
}

// Pins lists the pins that hold, at most limit (at least 1), in the order of their
// ids. A token with rules on reading sees those of commits that a ref it may read
// reaches, and those that its subject made under the same rules. Errors: ErrBadCursor.
func (r *Repo) Pins(ctx context.Context, c Caller, cursor string, limit int) (PinPage, error) {
	start := pinKeys
	if cursor != "" {
		after, err := decodeCursor(cursor, pinCursor)
		if err != nil {
			return PinPage{}, err
		}
		start = pinKeys + after + "\x00"
	}
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return PinPage{}, fmt.Errorf("list pins: %w", err)
	}
	defer v.Close()
	now, err := r.ledger.Now(ctx)
	if err != nil {
		return PinPage{}, fmt.Errorf("list pins: %w", err)
	}
	var page PinPage
	for {
		items, err := v.Scan(ctx, pinKeys, start, limit+1)
		if err != nil {
			return PinPage{}, fmt.Errorf("list pins: %w", err)
		}
		pins, err := pinsOf(items)
		if err != nil {
			return PinPage{}, err
		}
		visible, err := r.visiblePins(ctx, c, now, pins)
		if err != nil {
			return PinPage{}, err
		}
		for _, p := range visible {
			if len(page.Pins) == limit {
				page.Next = encodeCursor(pinCursor, page.Pins[limit-1].ID)
				return page, nil
			}
			page.Pins = append(page.Pins, p)
		}
		if len(items) <= limit {
			return page, nil
		}
		start = items[len(items)-1].Key + "\x00"
	}
}

const pinCursor = "p1:"

// pinsOf decodes records but for those of deleted pins.
func pinsOf(items []ledger.Item) ([]Pin, error) {
	var pins []Pin
	for _, it := range items {
		rec, err := decodePin(it.Value)
		if err != nil {
			return nil, err
		}
		if rec.EndedIn == 0 {
			pins = append(pins, rec.pin(strings.TrimPrefix(it.Key, pinKeys)))
		}
	}
	return pins, nil
}

// rulesMark tells the rules on reading of different callers apart; empty for one without.
func rulesMark(c Caller) string {
	if !c.Policy.RestrictsReads() {
		return ""
	}
	sum := sha256.Sum256([]byte(c.Policy.Key()))
	return hex.EncodeToString(sum[:8])
}

// madeBy reports whether a caller with rules on reading made the pin, or one with the
// same subject and the same rules. The subject alone says little: many backends put one
// into all their tokens, those of their sandboxes too.
func (p Pin) madeBy(c Caller) bool {
	return p.By != "" && p.By == c.Actor.Subject && p.rules != "" && p.rules == rulesMark(c)
}

// visiblePins keeps the pins that have not expired and that the caller may know of.
func (r *Repo) visiblePins(ctx context.Context, c Caller, now time.Time, pins []Pin) ([]Pin, error) {
	var live []Pin
	var ids []refpolicy.OID
	for _, p := range pins {
		if p.ExpiresAt.IsZero() || now.Before(p.ExpiresAt) {
			live, ids = append(live, p), append(ids, p.OID)
		}
	}
	if !c.Policy.RestrictsReads() || len(live) == 0 {
		return live, nil
	}
	readable, err := r.readableAmong(ctx, c, ids)
	if err != nil {
		return nil, fmt.Errorf("list pins: %w", err)
	}
	visible := live[:0]
	for _, p := range live {
		if readable[p.OID] || p.madeBy(c) {
			visible = append(visible, p)
		}
	}
	return visible, nil
}

// Pinned reports whether a live pin names the object whose id does not begin with
// besides (empty: any).
func (r *Repo) Pinned(ctx context.Context, oid refpolicy.OID, besides string) (bool, error) {
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return false, fmt.Errorf("read pins: %w", err)
	}
	defer v.Close()
	ok, err := r.pinnedBesides(ctx, v, oid, besides)
	if err != nil {
		return false, fmt.Errorf("read pins: %w", err)
	}
	return ok, nil
}

// pinned reports whether a pin holds the object now. The clock is read after the
// caller has read the prune generation, so a pin that had expired when a prune
// began proves nothing for a write that the prune lets pass.
func (r *Repo) pinned(ctx context.Context, v ledger.View, oid refpolicy.OID) (bool, error) {
	return r.pinnedBesides(ctx, v, oid, "")
}

func (r *Repo) pinnedBesides(ctx context.Context, v ledger.View, oid refpolicy.OID, besides string) (bool, error) {
	items, err := scanAll(ctx, v, pinnedPrefix(oid))
	if err != nil || len(items) == 0 {
		return false, err
	}
	now, err := r.ledger.Now(ctx)
	if err != nil {
		return false, err
	}
	for _, it := range items {
		if besides != "" && strings.HasPrefix(it.Key, pinnedKey(oid, besides)) {
			continue
		}
		if len(it.Value) != 8 || now.UnixMicro() < int64(binary.BigEndian.Uint64(it.Value)) {
			return true, nil
		}
	}
	return false, nil
}

// pinnedTips are the commits that pins hold.
func (r *Repo) pinnedTips(ctx context.Context) ([]refpolicy.OID, error) {
	live, err := r.pinsNow(ctx)
	if err != nil {
		return nil, err
	}
	tips := make([]refpolicy.OID, len(live))
	for n, p := range live {
		tips[n] = p.OID
	}
	return tips, nil
}

// pinsNow are the records of the pins that hold.
func (r *Repo) pinsNow(ctx context.Context) ([]pinRecord, error) {
	v, err := r.ledger.Peek(ctx, r.space)
	if err != nil {
		return nil, fmt.Errorf("read pins: %w", err)
	}
	defer v.Close()
	items, err := scanAll(ctx, v, pinKeys)
	if err != nil || len(items) == 0 {
		return nil, err
	}
	now, err := r.ledger.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("read pins: %w", err)
	}
	var live []pinRecord
	for _, it := range items {
		rec, err := decodePin(it.Value)
		if err != nil {
			return nil, err
		}
		if rec.live(now) {
			live = append(live, rec)
		}
	}
	return live, nil
}
