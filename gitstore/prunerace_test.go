package gitstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// upkeepHard prunes, merges and removes with no lease and no grace, against whoever
// else does the same.
func upkeepHard(ctx context.Context, r *Repo) error {
	if _, err := r.prune(ctx, true); err != nil && !errors.Is(err, errOvertaken) {
		return fmt.Errorf("prune: %w", err)
	}
	if _, err := r.merge(ctx, 2); err != nil && !replaced(err) {
		return fmt.Errorf("merge: %w", err)
	}
	if _, err := r.writeIndex(ctx, true); err != nil && !replaced(err) {
		return fmt.Errorf("index: %w", err)
	}
	if err := r.removeIndexes(ctx, 0); err != nil {
		return err
	}
	_, err := r.removeCondemned(ctx, 0)
	return err
}

// graveyard is what branches held that were deleted a moment ago.
type graveyard struct {
	mu   sync.Mutex // guards dead
	dead []CommitResult
}

func (g *graveyard) bury(c CommitResult) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dead = append(g.dead, c)
}

// last is one of those buried last.
func (g *graveyard) last(rng *rand.Rand) (c CommitResult, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.dead) == 0 {
		return c, false
	}
	return g.dead[len(g.dead)-1-rng.IntN(min(len(g.dead), 4))], true
}

// reuser makes branches, deletes them, and builds at once on what they held.
type reuser struct {
	r    *Repo
	name string
	g    *graveyard
	rng  *rand.Rand
	n    int
	won  int // writes on something dead that were accepted
}

func (u *reuser) next() refpolicy.RefName {
	u.n++
	return refpolicy.RefName(fmt.Sprintf("refs/heads/%s/%d", u.name, u.n))
}

// round makes a branch, buries it, and tries one way of bringing back what is dead.
// Any of them may be refused; none may lead to a ref with holes.
func (u *reuser) round(ctx context.Context) error {
	branch := u.next()
	made, err := testCommit{target: branch, base: mainRef, files: map[string]string{
		"a": fmt.Sprint(u.name, u.rng.IntN(5)), "shared/x": fmt.Sprint(u.rng.IntN(3)), "big": fmt.Sprint(u.rng.IntN(2)),
	}}.make(ctx, u.r, someone)
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	if u.rng.IntN(8) == 0 {
		return nil // it stays
	}
	// Half of the time somebody builds on it while it is being deleted.
	var wg sync.WaitGroup
	var raced error
	if u.rng.IntN(2) == 0 {
		other := u.next()
		wg.Go(func() {
			_, err := testCommit{target: other, base: branch, files: map[string]string{"next": u.name}}.make(ctx, u.r, someone)
			if err != nil && !errors.Is(err, ErrRefNotFound) {
				raced = fmt.Errorf("commit on a base: %w", err)
			}
		})
	}
	err = u.r.DeleteBranch(ctx, someone, branch, nil)
	u.g.bury(made)
	wg.Wait()
	if err := errors.Join(err, raced); err != nil {
		return err
	}
	return u.revive(ctx)
}

func (u *reuser) revive(ctx context.Context) error {
	c, ok := u.g.last(u.rng)
	if !ok {
		return nil
	}
	var err error
	switch u.rng.IntN(5) {
	case 0: // restore
		_, err = u.r.CreateBranch(ctx, someone, BranchSpec{Target: u.next(), Base: c.Commit.String()})
	case 1:
		_, err = u.r.Pin(ctx, someone, PinSpec{OID: c.Commit, Holder: u.name})
	case 2: // a push on top of it, which says that the server has the rest
		err = u.push(ctx, newCommitOn(c.Tree, c.Commit))
	case 3: // its tree on a live parent
		main, rerr := u.r.Ref(ctx, someone, mainRef)
		if rerr != nil {
			return rerr
		}
		err = u.push(ctx, newCommitOn(c.Tree, main.OID))
	case 4: // the same content again, over the API
		_, err = testCommit{target: u.next(), base: mainRef, files: map[string]string{"a": fmt.Sprint(u.name, u.rng.IntN(5)), "shared/x": fmt.Sprint(u.rng.IntN(3))}}.make(ctx, u.r, someone)
	}
	if errors.Is(err, ErrObjectNotFound) || errors.Is(err, ErrUnreachable) {
		return nil
	}
	if err == nil {
		u.won++
	}
	return err
}

func (u *reuser) push(ctx context.Context, objects ...NewObject) error {
	res, err := u.r.Update(ctx, Update{
		Caller: someone, Objects: objects,
		Changes: []Change{{Ref: u.next(), New: objects[len(objects)-1].OID}},
	})
	if err != nil {
		return err
	}
	return res.Refs[0].Err
}

// On two nodes writers re-use what has just become unreachable while each node
// prunes and merges without leases and without grace. No ref and no pin loses an
// object.
func TestG02_ReuseWhilePruning(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, start func(testing.TB) opener) {
		db := start(t)(t)
		t.Cleanup(func() { db.Close() })
		dir := t.TempDir()
		var nodes [2]*Repo
		for i := range nodes {
			s := openTestStore(t, func(o *Options) {
				o.Dir, o.Ledger, o.Shared = dir, db, true
				o.Limits = Limits{SettleObjects: 60, HotPackBytes: 3000, UpkeepEvery: -1}
			})
			if i == 0 {
				nodes[0] = newTestRepo(t, s, "repo")
				mustCommit(t, nodes[0], someone, testCommit{target: mainRef, files: map[string]string{"a": "main\n", "shared/x": "0"}})
				continue
			}
			r, err := s.Repo(t.Context(), "acme", "repo")
			if err != nil {
				t.Fatalf("Repo: %v", err)
			}
			nodes[i] = r
		}
		ctx, stop := context.WithTimeout(t.Context(), 4*time.Second)
		defer stop()
		var writers, upkeep sync.WaitGroup
		g := &graveyard{}
		var users []*reuser
		for i, r := range nodes {
			for k := range 2 {
				u := &reuser{r: r, name: fmt.Sprintf("n%dw%d", i, k), g: g, rng: rand.New(rand.NewPCG(uint64(i), uint64(k)))}
				users = append(users, u)
				writers.Go(func() {
					for ctx.Err() == nil {
						if err := u.round(t.Context()); err != nil {
							t.Errorf("%s, round %d: %v", u.name, u.n, err)
							return
						}
					}
				})
			}
		}
		prunes := [2]int{}
		for i, r := range nodes {
			upkeep.Go(func() {
				for ctx.Err() == nil {
					if err := upkeepHard(t.Context(), r); err != nil {
						t.Errorf("upkeep on node %d: %v", i, err)
						return
					}
					prunes[i]++
				}
			})
		}
		writers.Wait()
		upkeep.Wait()
		for i, r := range nodes {
			if err := checkWhole(t.Context(), r); err != nil {
				t.Errorf("node %d: %v", i, err)
			}
		}
		won, rounds := 0, 0
		for _, u := range users {
			won, rounds = won+u.won, rounds+u.n
		}
		t.Logf("%v prunes, %d branches, %d dead states brought back in time", prunes, rounds, won)
	})
}

// checkWhole is checkComplete for refs and pins.
func checkWhole(ctx context.Context, r *Repo) error {
	if err := checkComplete(ctx, r); err != nil {
		return err
	}
	tips, err := r.pinnedTips(ctx)
	if err != nil {
		return err
	}
	c := completeness{r, map[refpolicy.OID]bool{}}
	for _, oid := range tips {
		if err := c.walk(ctx, oid); err != nil {
			return fmt.Errorf("pin of %s: %w", oid, err)
		}
	}
	return nil
}
