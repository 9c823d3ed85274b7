package gitstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// A Change asks for one ref to go from Old to New. The zero OID means "does not
// exist", so a zero Old creates and a zero New deletes.
type Change struct {
	Ref      refpolicy.RefName
	Old, New refpolicy.OID
	// NoForce refuses a change that is not a fast-forward with ErrNotFastForward,
	// whatever the policy says.
	NoForce bool
}

// An Update is what goes through the door: ref changes, the objects they bring,
// and whatever else must hold or be written in the same batch.
type Update struct {
	Caller  Caller
	Changes []Change
	// Atomic lets all changes happen or none. Otherwise those that fail are taken
	// out with their reason and the rest is one batch.
	Atomic bool
	// Objects are new small objects, written into the hot tier with the refs.
	Objects []NewObject
	// objectsIn is a finished, unregistered pack that holds Objects where they are too
	// many for the hot tier. Whoever made it removes it if the update is refused.
	objectsIn *packs.Info
	// Bases are stored objects that the new ones came as deltas against. The caller
	// must be able to read them: whoever has the result has the base.
	Bases []refpolicy.OID
	// Pack is a finished, unregistered pack that the update registers; its file is
	// removed if no change of the update is applied.
	Pack *IncomingPack
	// Proved says that whoever made the objects has shown that everything they refer
	// to is new or readable by the caller (the commit API: trees built in step with
	// the parent's). Otherwise the door proves it.
	Proved bool
	// proofIn is the prune generation in which Proved was shown. If another one has
	// begun the update gets its *ledger.CheckError and must be shown anew.
	proofIn []byte
	// known is what whoever made the objects read for them, with what the door and the
	// guard will ask for. The first try is prepared from it.
	known ledger.Known
	// unborn is a commit of which known only supposes that it is new; zero for none.
	unborn refpolicy.OID
	// Vouched says that whoever made the pack answers for the trees of its commits: what
	// is in them is in the pack, or part of what Leans lead to. The door then proves the
	// commits' parents alone, and that Leans are held, which keeps the rest.
	Vouched bool
	// Leans are commits that must be held, each by being where a ref is or by a live
	// pin: else ErrUnreachable. It is not asked whether the caller may read them.
	Leans []refpolicy.OID
	// Checks and Sets must hold and are written in the same batch. A check that
	// fails gives its *ledger.CheckError.
	Checks []ledger.Check
	Sets   []ledger.Set
	// Intent is for the guard alone, which may know what the changes are for.
	Intent any
	// Once makes the update repeatable. Its answer is made of the result as it will be,
	// but for Seq, which nobody knows yet, and for what does not fit into the first batch.
	// An update of which nothing is applied leaves no answer.
	Once *ledger.Once[UpdateResult]
	// Pins are made in the same batch. What they keep must be the new value of a change,
	// and an update of several changes that makes some must be atomic.
	Pins []NewPin
}

// A NewPin is a pin that an update makes.
type NewPin struct {
	ID     string // see NewPinID
	OID    refpolicy.OID
	Holder string
	TTL    time.Duration // 0: until it is deleted
}

// An IncomingPack is a pack whose files are durable and which nobody knows yet.
type IncomingPack struct {
	packs.Info
	Kind string // what the pack record says of it
	// Appended are objects that index-pack added to complete a thin pack. They are
	// in the file but not new: the caller must be able to read them.
	Appended []refpolicy.OID
	// Kept leaves the files of a refused update to the caller, who may try again with them.
	Kept bool

	registered atomic.Bool
}

// RefResult is the verdict on one change; Err is nil if the ref is now at New.
type RefResult struct {
	Change
	Kind  refpolicy.Kind
	State Ref // the ref after the change, if Err is nil; zero if it is deleted
	Err   error
}

// UpdateResult answers an Update, one RefResult for each change in order.
type UpdateResult struct {
	Seq  uint64    // number of the (last) log entry; 0 when nothing was applied
	At   time.Time // the time of the change, as the refs' records have it
	Refs []RefResult
}

// Refusal is why a change was refused: the first reason that is one by itself, not
// that another change of an atomic update was refused. Nil if all were applied.
func (u UpdateResult) Refusal() error {
	var atomic error
	for _, res := range u.Refs {
		if res.Err != nil && !errors.Is(res.Err, ErrAtomic) {
			return res.Err
		}
		atomic = cmp.Or(atomic, res.Err)
	}
	return atomic
}

// A Guard is asked about every change of refs, whatever road it comes by. What it
// answers must hold, or is written, in the very batch that moves the refs; an error
// refuses the changes. A batch whose conditions have come to fail is prepared anew,
// and the guard is asked again. It is given once, when the store is opened.
type Guard interface {
	Guard(ctx context.Context, q GuardRequest) (GuardAnswer, error)
}

// A Foreteller is a Guard that can say beforehand which keys of the repo's space it will
// most likely read for a change of ref by actor, so that they are read with others.
type Foreteller interface {
	Wants(ref refpolicy.RefName, actor Actor) []string
}

// A GuardRequest is what a guard is asked.
type GuardRequest struct {
	Repo    RepoInfo
	Changes []Change // a Change whose Old is its New only demands its value
	Actor   Actor
	Now     time.Time // what the records of the batch say
	Intent  any       // the update's
	// Known may hold what Guard wants, of the moment at which the changes were judged.
	// A refusal is never told from it.
	Known ledger.Known
}

// A GuardAnswer is what must hold and is written with the changes.
type GuardAnswer struct {
	ledger.Rider
	// Event is what the log entry says besides the changes; zero: refs moved.
	Event Event
	// Sessions tells, by place in the request, whose session a ref is; nil: nobody's.
	Sessions []string
}

// An Event is what a log entry says besides changes of refs and the actor.
type Event struct {
	Type    string // empty: ref.updated
	Session string
	Data    json.RawMessage
}

// Update is the one door: every movement of a ref, whoever asks, goes through it.
// It checks, in this order: git's rules for names, the expected value, the policy,
// clashes of names, signatures, the guard, and the reach of what is new; then
// objects, refs, log entry and the caller's own checks and sets are one batch. The
// error is for the update as a whole (the ledger is away, a check of the caller's
// own failed); verdicts on single refs are in the result, of an atomic update too.
// An update whose Once is known is a *ledger.RepeatedError, whatever else it might be.
func (r *Repo) Update(ctx context.Context, u Update) (UpdateResult, error) {
	ctx, end, err := r.store.work(ctx)
	if err != nil {
		return UpdateResult{}, err
	}
	defer end()
	start := time.Now()
	d, err := r.newDoor(&u)
	if err != nil {
		return UpdateResult{}, r.orGone(err)
	}
	defer d.close()
	err = d.run(ctx)
	r.store.observe("update", time.Since(start))
	res := UpdateResult{Seq: d.seq, At: d.at, Refs: d.results}
	if err != nil {
		return UpdateResult{}, r.orGone(r.orRepeated(ctx, u.Once.StoreKey(), err))
	}
	if refusal := res.Refusal(); refusal != nil && !d.begun {
		known := r.orRepeated(ctx, u.Once.StoreKey(), refusal)
		if _, ok := ledger.IsRepeated(known); ok {
			return UpdateResult{}, known
		}
	}
	return res, nil
}
