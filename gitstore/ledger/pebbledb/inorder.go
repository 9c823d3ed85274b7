package pebbledb

import (
	"slices"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
)

// manySets is from where putting a batch's keys in order costs less than it saves:
// each is then put beside the one before it.
const manySets = 256

// inOrder gives sets in the order of their keys if there are many. Bulk work comes as
// the same few kinds of keys again and again, each kind in order or nearly so.
func inOrder(sets []ledger.Set) []ledger.Set {
	if len(sets) < manySets {
		return sets
	}
	kinds := map[string][]ledger.Set{}
	for _, s := range sets {
		kind, _, _ := strings.Cut(s.Key, "/")
		kinds[kind] = append(kinds[kind], s)
	}
	out := make([]ledger.Set, 0, len(sets))
	byKey := func(a, b ledger.Set) int { return strings.Compare(a.Key, b.Key) }
	for _, of := range kinds {
		if !slices.IsSortedFunc(of, byKey) {
			slices.SortFunc(of, byKey)
		}
		out = append(out, of...)
	}
	return out
}
