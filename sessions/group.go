package sessions

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/gitstore/ledger"
)

// The keys of forks.
const (
	groupKeys     = "fork/"       // fork/<group> -> record
	groupLiveKeys = "fork-live/"  // fork-live/<group>: how many of its children have not ended
	groupUsedKeys = "fork-used/"  // fork-used/<group> -> when its state was used last: its last child ended, or one was made of it
	stateKeys     = "fork-state/" // fork-state/<commit>/<group>: states that are kept
	reportKeys    = "fork-child/" // fork-child/<group>/<child> -> what a runner reported
)

func groupKey(id string) string { return groupKeys + id }

func groupLiveKey(id string) string { return groupLiveKeys + id }

func groupUsedKey(id string) string { return groupUsedKeys + id }

func statePrefix(sha string) string { return stateKeys + sha + "/" }

func reportPrefix(group string) string { return reportKeys + group + "/" }

func reportKey(group, child string) string { return reportPrefix(group) + child }

const (
	groupVersion = 1
	groupPrefix  = "fork_"
)

func newGroupID() string { return groupPrefix + strings.ReplaceAll(uuid.NewString(), "-", "") }

// A groupRecord is what stands under a group's key.
type groupRecord struct {
	V        int           `json:"v"`
	ID       string        `json:"id"`
	Parent   string        `json:"parent"`
	Branch   string        `json:"branch"` // the parent's
	State    string        `json:"state_sha"`
	Keep     bool          `json:"keep,omitempty"`
	Idle     time.Duration `json:"idle,omitempty"` // how long a kept state stays unused; 0: for ever
	Pin      string        `json:"pin,omitempty"`  // what keeps the state; empty once it is let go
	Going    bool          `json:"going,omitempty"`
	GoneAt   time.Time     `json:"gone_at,omitzero"` // when the state was let go
	At       time.Time     `json:"created_at"`
	By       Actor         `json:"created_by"`
	Winner   string        `json:"winner,omitempty"`
	Children []string      `json:"children"`
	ClosedAt time.Time     `json:"closed_at,omitzero"`
}

// storedGroup is a group's record with the bytes it was read from.
type storedGroup struct {
	groupRecord
	raw []byte
}

func (g *groupRecord) ref() string { return ephemeralPrefix + g.Branch }

func (g *groupRecord) encode() []byte {
	g.V = groupVersion
	return mustJSON(g)
}

func decodeGroup(raw []byte) (storedGroup, error) {
	g := storedGroup{raw: raw}
	if raw == nil {
		return g, ErrGroupNotFound
	}
	if err := json.Unmarshal(raw, &g.groupRecord); err != nil {
		return g, fmt.Errorf("decode fork: %w", err)
	}
	if g.V != groupVersion {
		return g, fmt.Errorf("decode fork %s: form %d is unknown", g.ID, g.V)
	}
	return g, nil
}

// created reports whether by is who made the fork.
func (g *groupRecord) created(by Actor) bool {
	made := record{CreatedBy: g.By}
	return made.created(by)
}

func (g *groupRecord) told() Group {
	return Group{
		ID: g.ID, ParentID: g.Parent, StateSHA: g.State, KeepState: g.Keep, PinID: g.Pin, CreatedAt: g.At,
		CreatedBy: g.By, Winner: g.Winner, Children: slices.Clone(g.Children), ClosedAt: g.ClosedAt,
	}
}

// group reads a group that the caller may see, and in the same moment other keys.
func (r reader) group(ctx context.Context, door Door, id string, extra ...string) (g storedGroup, more [][]byte, err error) {
	if validID(id) != nil {
		return g, nil, ErrGroupNotFound
	}
	got, err := r.get(ctx, append([]string{groupKey(id)}, extra...)...)
	if err != nil {
		return g, nil, err
	}
	if g, err = decodeGroup(got[0]); err == nil && !door.CanRead(g.ref()) {
		err = ErrGroupNotFound
	}
	return g, got[1:], err
}

// many reads sessions, all of one moment.
func (r reader) many(ctx context.Context, ids []string) ([]reading, error) {
	v, err := r.open(ctx, r.space)
	if err != nil {
		return nil, fmt.Errorf("read sessions: %w", err)
	}
	defer v.Close()
	return readMany(ctx, v, ids)
}

// Group tells a fork with its children as they are now, ended ones too for as long as
// they are remembered, as far as the caller may see them. Its Failed are those of them
// that a runner reported failed. Errors: ErrGroupNotFound.
func (k *Keeper) Group(ctx context.Context, repo Repo, door Door, id string) (Fork, error) {
	g, _, err := k.reads(repo).group(ctx, door, id)
	if err != nil {
		return Fork{}, err
	}
	f := Fork{Group: g.told()}
	if f.Children, err = k.childrenOf(ctx, repo, door, &g.groupRecord); err != nil {
		return Fork{}, err
	}
	reports, err := k.reports(ctx, repo, id, len(g.Children))
	if err != nil {
		return Fork{}, err
	}
	seen := make([]string, len(f.Children))
	for i, child := range f.Children {
		seen[i] = child.ID
	}
	f.Failed = failures(seen, reports)
	return f, nil
}

// childrenOf tells the children of a group that are still remembered, in its order, as
// far as the caller may see them.
func (k *Keeper) childrenOf(ctx context.Context, repo Repo, door Door, g *groupRecord) ([]Session, error) {
	now, err := k.Ledger.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the ledger's clock: %w", err)
	}
	all, err := k.reads(repo).many(ctx, g.Children)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(got reading) bool { return !got.exists() || !door.CanRead(got.ref()) })
	heads, err := headsOf(ctx, door, all)
	if err != nil {
		return nil, err
	}
	told := make([]Session, len(all))
	for i, got := range all {
		told[i] = got.told(repo, got.base, heads[i], now)
		if got.live() && !got.Bore {
			told[i].EndsAt = got.endsAt(got.base, heads[i].At, got.freed)
		}
	}
	return told, nil
}

// member counts a child of a group that is made (+1) or ends (-1) with the batch.
func (w *writing) member(group string, n int64) {
	if group == "" {
		return
	}
	if w.members == nil {
		w.members = map[string]int64{}
	}
	w.members[group] += n
}

// memberRider keeps the groups' numbers of live children, and has the reaper look at
// those that may have lost their last.
func (w *writing) memberRider() (rider ledger.Rider) {
	for _, group := range slices.Sorted(maps.Keys(w.members)) {
		n := w.members[group]
		rider.Adds = append(rider.Adds, ledger.Add{Key: groupLiveKey(group), Delta: n})
		if n < 0 {
			rider.Sets = append(rider.Sets,
				ledger.Set{Key: groupUsedKey(group), Value: []byte(whenBytes(w.now))},
				ledger.Set{Key: dueKey(w.now, groupDueID(group))})
			w.due = earliest(w.due, w.now)
		}
	}
	return rider
}
