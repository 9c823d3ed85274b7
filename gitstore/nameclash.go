package gitstore

import (
	"context"
	"fmt"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// clashes finds refs to be created whose name is another ref's folder, or lies in
// a folder that is another ref, among those of this change, and among those that
// stand once a batch was refused for one: the batch checks both, and hardly ever
// finds any, so that nothing is read for it before.
func (d *door) clashes(ctx context.Context, by reading, todo []int, st *state) error {
	st.clash = map[int]*NameClashError{}
	if d.clashed {
		if err := d.clashesStored(ctx, by, todo, st); err != nil {
			return fmt.Errorf("read refs: %w", err)
		}
	}
	made := map[string]refpolicy.RefName{} // the refs to be created and their folders, with whose they are
	for n, i := range todo {
		res := &d.results[i]
		if !d.creates(st, n, i) || st.clash[n] != nil {
			continue
		}
		folders := foldersOf(res.Ref)
		existing := made[string(res.Ref)]
		for _, f := range folders {
			if existing == "" && string(made[f]) == f {
				existing = made[f]
			}
		}
		if existing != "" {
			st.clash[n] = &NameClashError{res.Ref, existing}
			continue
		}
		if !res.Old.IsZero() {
			continue // refused: it expects what is not there
		}
		for _, f := range append(folders, string(res.Ref)) {
			made[f] = res.Ref
		}
	}
	return nil
}

// clashesStored finds those that stand in the way.
func (d *door) clashesStored(ctx context.Context, by reading, todo []int, st *state) error {
	v, err := by.open(ctx, d.r.space)
	if err != nil {
		return err
	}
	defer v.Close()
	for n, i := range todo {
		if !d.creates(st, n, i) {
			continue
		}
		existing, err := clashing(ctx, v, d.results[i].Ref)
		if err != nil {
			return err
		}
		if existing != "" {
			st.clash[n] = &NameClashError{d.results[i].Ref, existing}
		}
	}
	return nil
}

// namesClash reports whether a check that failed stands for a clash of names.
func namesClash(c ledger.Check, p *prepared) bool {
	name, ofRef := strings.CutPrefix(c.Key, refKeys)
	return ofRef && (c.Kind == ledger.CheckAbsentPrefix || c.Kind == ledger.CheckAbsent && p.folders[name])
}

// clashing is the ref that stands in the way of creating name, or "".
func clashing(ctx context.Context, v ledger.View, name refpolicy.RefName) (refpolicy.RefName, error) {
	folders := foldersOf(name)
	keys := make([]string, len(folders))
	for n, f := range folders {
		keys[n] = refKeys + f
	}
	got, err := v.GetMany(ctx, keys...)
	if err != nil {
		return "", err
	}
	for n, raw := range got {
		if raw != nil {
			return refpolicy.RefName(folders[n]), nil
		}
	}
	below, err := v.Scan(ctx, refKey(name)+"/", "", 1)
	if err != nil || len(below) == 0 {
		return "", err
	}
	return refpolicy.RefName(strings.TrimPrefix(below[0].Key, refKeys)), nil
}

// foldersOf are the names that may not be refs if name is one: refs/heads/a for
// refs/heads/a/b. The fixed parts of the name space are no refs anyway: no road lets
// refs/heads, or that of a namespace of ours, be made.
func foldersOf(name refpolicy.RefName) []string {
	fixed := ""
	for _, namespace := range []string{refpolicy.EphemeralPrefix, refpolicy.StatePrefix} {
		if strings.HasPrefix(string(name), namespace+refpolicy.RefsPrefix) {
			fixed = namespace
		}
	}
	parts := strings.Split(string(name[len(fixed):]), "/")
	var folders []string
	for n := 3; n < len(parts); n++ {
		folders = append(folders, fixed+strings.Join(parts[:n], "/"))
	}
	return folders
}
