package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// skewedHistory makes commits whose parents are any of the earlier ones and whose
// dates run with them, stand still, or are anything.
func skewedHistory(rng *rand.Rand, n int) []NewObject {
	skew := rng.IntN(3)
	var commits []NewObject
	for i := range n {
		var parents []refpolicy.OID
		for range min(i, rng.IntN(4)) {
			p := commits[max(0, i-1-rng.IntN(5))].OID
			if !slices.Contains(parents, p) {
				parents = append(parents, p)
			}
		}
		date := 1_000_000 + i
		switch {
		case skew == 1:
			date = 1_000_000
		case skew == 2 && rng.IntN(3) == 0:
			date = rng.IntN(2_000_000)
		}
		var b bytes.Buffer
		fmt.Fprintf(&b, "tree %s\n", emptyTree)
		for _, p := range parents {
			fmt.Fprintf(&b, "parent %s\n", p)
		}
		fmt.Fprintf(&b, "author T <t@example.org> %d +0000\ncommitter T <t@example.org> %d +0000\n\ncommit %d\n", date, date, i)
		commits = append(commits, newObject(CommitObject, b.Bytes()))
	}
	return commits
}

// gitWith makes a plain repository of the objects.
func gitWith(t *testing.T, objects []NewObject) string {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, nil, "init", "-q", "--bare", ".")
	git(t, dir, nil, "hash-object", "-t", "tree", "-w", "--stdin")
	for _, o := range objects {
		got := strings.TrimSpace(git(t, dir, o.Data, "hash-object", "-t", o.Type.String(), "-w", "--stdin"))
		if got != o.OID.String() {
			t.Fatalf("git calls %s %s", o.OID, got)
		}
	}
	return dir
}

var errIntroduced = errors.New("one is enough")

// Who reaches whom, and what a change brings in, is what git rev-list says, on
// random histories with merges and several roots, whatever their dates say.
func TestGraphAgreesWithGit(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := openTestStore(t, nil)
	for round := range 6 {
		commits := skewedHistory(rng, 40)
		dir := gitWith(t, commits)
		below := map[refpolicy.OID]map[refpolicy.OID]bool{}
		for _, c := range commits {
			h, _, err := parseCommitHeader(c.Data)
			if err != nil {
				t.Fatalf("parseCommitHeader: %v", err)
			}
			all := map[refpolicy.OID]bool{c.OID: true}
			for _, p := range h.parents {
				for oid := range below[p] {
					all[oid] = true
				}
			}
			below[c.OID] = all
		}
		r := newTestRepo(t, s, fmt.Sprint("round-", round))
		g := graph{r, newFreshMap(commits)}
		for range 200 {
			checkReaches(t, g, commits, below, rng)
			checkIntroduced(t, g, commits, below, rng)
		}
		for range 10 { // the model above is git's too
			a, b := commits[rng.IntN(40)].OID, commits[rng.IntN(40)].OID
			list := git(t, dir, nil, "rev-list", b.String())
			if strings.Contains(list, a.String()) != below[b][a] {
				t.Errorf("git rev-list %s names %s: the model says %v", b, a, below[b][a])
			}
		}
	}
}

func some(rng *rand.Rand, commits []NewObject, most int) []refpolicy.OID {
	var ids []refpolicy.OID
	for range rng.IntN(most + 1) {
		ids = append(ids, commits[rng.IntN(len(commits))].OID)
	}
	return ids
}

func checkReaches(t *testing.T, g graph, commits []NewObject, below map[refpolicy.OID]map[refpolicy.OID]bool, rng *rand.Rand) {
	t.Helper()
	tips, target := some(rng, commits, 3), commits[rng.IntN(len(commits))].OID
	want := slices.ContainsFunc(tips, func(tip refpolicy.OID) bool { return below[tip][target] })
	if got, err := g.reaches(t.Context(), tips, target); err != nil || got != want {
		t.Errorf("reaches(%v, %s) = %v, %v; want %v", tips, target, got, err, want)
	}
}

// checkIntroduced refuses one commit: the walk must say so exactly if that commit
// is new. All that is new must be visited.
func checkIntroduced(t *testing.T, g graph, commits []NewObject, below map[refpolicy.OID]map[refpolicy.OID]bool, rng *rand.Rand) {
	t.Helper()
	tip, known, bad := commits[rng.IntN(len(commits))].OID, some(rng, commits, 2), commits[rng.IntN(len(commits))].OID
	isNew := func(oid refpolicy.OID) bool {
		return below[tip][oid] && !slices.ContainsFunc(known, func(k refpolicy.OID) bool { return below[k][oid] })
	}
	visited := map[refpolicy.OID]bool{}
	err := g.introduced(context.Background(), tip, known, func(oid refpolicy.OID) error {
		visited[oid] = true
		return nil
	})
	if err != nil {
		t.Fatalf("introduced: %v", err)
	}
	for oid := range below[tip] {
		if isNew(oid) && !visited[oid] {
			t.Errorf("introduced(%s, %v) does not visit %s", tip, known, oid)
		}
	}
	err = g.introduced(context.Background(), tip, known, func(oid refpolicy.OID) error {
		if oid == bad {
			return errIntroduced
		}
		return nil
	})
	if got := errors.Is(err, errIntroduced); got != isNew(bad) {
		t.Errorf("introduced(%s, %v) tells of %s: %v, want %v", tip, known, bad, got, isNew(bad))
	}
}
