package gitstore

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// A nameRange holds the stored names at or after from and before to, in byte order.
type nameRange struct{ from, to string }

func namesBelow(prefix string) nameRange {
	end := []byte(prefix)
	for end[len(end)-1] == 0xff { // no prefix of refs/ is made of these alone
		end = end[:len(end)-1]
	}
	end[len(end)-1]++
	return nameRange{prefix, string(end)}
}

func nameItself(name string) nameRange { return nameRange{name, name + "\x00"} }

// one reports whether the range holds a single name.
func (r nameRange) one() bool { return r.to == r.from+"\x00" }

// nameRanges are sorted, not empty, and apart from each other. What a token may read,
// what a remote shows and what a client asks for are such ranges, and only what lies
// in all of them is read: the rest costs nothing, however much it is.
type nameRanges []nameRange

var (
	allNames    = nameRanges{namesBelow(refpolicy.RefsPrefix)}
	hiddenNames = nameRanges{namesBelow(refpolicy.NamespacePrefix)}
)

// and is what lies in both.
func (a nameRanges) and(b nameRanges) nameRanges {
	var both nameRanges
	for len(a) > 0 && len(b) > 0 {
		if r := (nameRange{max(a[0].from, b[0].from), min(a[0].to, b[0].to)}); r.from < r.to {
			both = append(both, r)
		}
		if a[0].to < b[0].to {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return both
}

// without is what lies in a and not in b.
func (a nameRanges) without(b nameRanges) nameRanges {
	var left nameRanges
	for _, r := range a {
		for len(b) > 0 && b[0].to <= r.from {
			b = b[1:]
		}
		for n := 0; n < len(b) && b[n].from < r.to; n++ {
			if r.from < b[n].from {
				left = append(left, nameRange{r.from, b[n].from})
			}
			r.from = max(r.from, b[n].to)
		}
		if r.from < r.to {
			left = append(left, r)
		}
	}
	return left
}

// after leaves out the names up to and with name.
func (a nameRanges) after(name refpolicy.RefName) nameRanges {
	return a.without(nameRanges{{"", string(name) + "\x00"}})
}

// united sorts ranges of any order and unites those that touch.
func united(ranges nameRanges) nameRanges {
	slices.SortFunc(ranges, func(a, b nameRange) int { return strings.Compare(a.from, b.from) })
	var kept nameRanges
	for _, r := range ranges {
		if last := len(kept) - 1; last >= 0 && r.from <= kept[last].to {
			kept[last].to = max(kept[last].to, r.to)
			continue
		}
		kept = append(kept, r)
	}
	return kept
}

// readableNames are the names a policy lets its token read, existing or not.
func readableNames(p *refpolicy.Policy) nameRanges {
	if !p.RestrictsReads() {
		return allNames
	}
	open, readable := allNames, nameRanges(nil)
	for _, rule := range p.Rules() {
		matched := namesOf(refpolicy.Pattern(rule.Pattern))
		if !slices.Contains(rule.Ops, refpolicy.NoRead) {
			readable = append(readable, open.and(matched)...)
		}
		if open = open.without(matched); len(open) == 0 {
			break
		}
	}
	return united(append(readable, open...))
}

// namesOf are the names of refs that a pattern matches.
func namesOf(p refpolicy.Pattern) nameRanges {
	if name, exact := p.Exact(); exact {
		return nameRanges{nameItself(string(name))}
	}
	prefix, below := strings.CutSuffix(string(p), "*")
	switch {
	case !below: // HEAD, which is no ref's name
		return nil
	case prefix == "":
		return allNames
	}
	return nameRanges{namesBelow(prefix)}
}

// namedItems yields the items of an index whose keys end in refs' names, such as
// refKeys or a tipPrefix, for the names that are asked for, in their order. It reads
// at most page of them at a time, and names that stand alone by their keys.
func namedItems(ctx context.Context, v ledger.View, index string, names nameRanges, page int) iter.Seq2[ledger.Item, error] {
	return func(yield func(ledger.Item, error) bool) {
		for len(names) > 0 {
			items, left, err := nextItems(ctx, v, index, names, page)
			if err != nil {
				yield(ledger.Item{}, fmt.Errorf("scan refs: %w", err))
				return
			}
			for _, it := range items {
				if !yield(it, nil) {
					return
				}
			}
			names = left
		}
	}
}

// nextItems reads one page and gives the names that are left.
func nextItems(ctx context.Context, v ledger.View, index string, names nameRanges, page int) ([]ledger.Item, nameRanges, error) {
	alone := 0
	for alone < len(names) && alone < page && names[alone].one() {
		alone++
	}
	if alone > 0 {
		items, err := itemsAt(ctx, v, index, names[:alone])
		return items, names[alone:], err
	}
	items, err := v.Range(ctx, index+names[0].from, index+names[0].to, page)
	if err != nil || len(items) < page {
		return items, names[1:], err
	}
	last := items[len(items)-1].Key[len(index):]
	return items, names.after(refpolicy.RefName(last)), nil
}

// itemsAt reads names that stand alone.
func itemsAt(ctx context.Context, v ledger.View, index string, names nameRanges) ([]ledger.Item, error) {
	keys := make([]string, len(names))
	for n, r := range names {
		keys[n] = index + r.from
	}
	values, err := v.GetMany(ctx, keys...)
	if err != nil {
		return nil, err
	}
	var items []ledger.Item
	for n, value := range values {
		if value != nil {
			items = append(items, ledger.Item{Key: keys[n], Value: value})
		}
	}
	return items, nil
}
