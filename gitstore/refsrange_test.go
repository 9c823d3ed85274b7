package gitstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

func (a nameRanges) holds(name string) bool {
	return slices.ContainsFunc(a, func(r nameRange) bool { return r.from <= name && name < r.to })
}

// sound fails unless ranges are sorted, not empty and apart from each other.
func (a nameRanges) sound(t *rapid.T) {
	for n, r := range a {
		if r.from >= r.to || n > 0 && a[n-1].to > r.from {
			t.Fatalf("ranges %q are not sorted and apart", a)
		}
	}
}

var rangeNames = []string{
	"refs/heads/main", "refs/heads/mainx", "refs/heads/a", "refs/heads/a/b", "refs/heads/a/b/c", "refs/heads/a0", "refs/tags/v", "refs/x/y",
	"refs/namespaces/ephemeral/refs/heads/s/1", "refs/namespaces/ephemeral/refs/heads/s/10", "refs/namespaces/state/refs/snapshots/1", "refs/namespacesx/y",
}

// The ranges of a policy hold just the names that it lets read.
func TestPropertyReadableNamesAreThoseThatCanBeRead(t *testing.T) {
	patterns := rapid.SampledFrom([]string{"*", "HEAD", "main", "a/*", "a/b", "refs/*", "refs/heads/*", "refs/tags/*",
		"refs/namespaces/ephemeral/refs/heads/s/1", "refs/namespaces/ephemeral/refs/heads/s/*"})
	ops := rapid.SliceOfN(rapid.SampledFrom([]refpolicy.Op{refpolicy.NoRead, refpolicy.NoPush}), 0, 2)
	rapid.Check(t, func(t *rapid.T) {
		var rules []refpolicy.Rule
		for range rapid.IntRange(0, 5).Draw(t, "rules") {
			rules = append(rules, refpolicy.Rule{Pattern: patterns.Draw(t, "pattern"), Ops: ops.Draw(t, "ops")})
		}
		p, err := refpolicy.New(rules, nil)
		if err != nil {
			t.Fatalf("refpolicy.New: %v", err)
		}
		readable := readableNames(p)
		readable.sound(t)
		for _, name := range rangeNames {
			if got, want := readable.holds(name), p.CanRead(refpolicy.RefName(name)); got != want {
				t.Fatalf("%s lies in the readable ranges %q: %v, want %v under %v", name, readable, got, want, rules)
			}
		}
	})
}

func TestPropertySetsOfRanges(t *testing.T) {
	ends := rapid.SampledFrom(append([]string{"", "refs/", "refs/heads/a/b\x00", "refs0", "z"}, rangeNames...))
	ranges := func(t *rapid.T, label string) nameRanges {
		var all nameRanges
		for range rapid.IntRange(0, 4).Draw(t, label) {
			from, to := ends.Draw(t, "from"), ends.Draw(t, "to")
			if from < to {
				all = append(all, nameRange{from, to})
			}
		}
		return united(all)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := ranges(t, "a"), ranges(t, "b")
		both, left := a.and(b), a.without(b)
		both.sound(t)
		left.sound(t)
		for _, name := range rangeNames {
			if got, want := both.holds(name), a.holds(name) && b.holds(name); got != want {
				t.Fatalf("%s lies in both of %q and %q: %v, want %v", name, a, b, got, want)
			}
			if got, want := left.holds(name), a.holds(name) && !b.holds(name); got != want {
				t.Fatalf("%s lies in %q without %q: %v, want %v", name, a, b, got, want)
			}
		}
	})
}

// Whatever the size of a page, an index is read in order, each name once, and no
// name that was not asked for.
func TestPropertyNamedItems(t *testing.T) {
	l := openTestLedger(t)
	b := ledger.Batch{Space: "repo/x", Sets: []ledger.Set{{Key: "ref0"}, {Key: "re"}}}
	for _, name := range rangeNames {
		b.Sets = append(b.Sets, ledger.Set{Key: refKeys + name, Value: []byte(name)})
	}
	if _, err := l.Apply(t.Context(), b); err != nil {
		t.Fatalf("Apply: %v", err)
	}
	v, err := l.Read(t.Context(), b.Space)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	defer v.Close()
	pick := rapid.SampledFrom(rangeNames)
	rapid.Check(t, func(t *rapid.T) {
		var names nameRanges
		for range rapid.IntRange(0, 5).Draw(t, "ranges") {
			name := pick.Draw(t, "name")
			if rapid.Bool().Draw(t, "alone") {
				names = append(names, nameItself(name))
			} else {
				names = append(names, namesBelow(name[:strings.LastIndexByte(name, '/')+1]))
			}
		}
		names = united(names)
		var got, want []string
		for it, err := range namedItems(context.Background(), v, refKeys, names, rapid.IntRange(1, 4).Draw(t, "page")) {
			if err != nil || it.Key != refKeys+string(it.Value) {
				t.Fatalf("item %q: %q, %v", it.Key, it.Value, err)
			}
			got = append(got, string(it.Value))
		}
		for _, name := range slices.Sorted(slices.Values(rangeNames)) {
			if names.holds(name) {
				want = append(want, name)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("names in %q are %q, want %q", names, got, want)
		}
	})
}
