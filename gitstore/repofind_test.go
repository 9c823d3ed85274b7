package gitstore

import (
	"context"
	"errors"
	"testing"

	"github.com/headgate/headgate/gitstore/ledger"
)

// farLedger can be asked for several spaces at once.
type farLedger struct {
	ledger.Ledger
	asked int
}

func (l *farLedger) ReadSpaces(ctx context.Context, asked ...ledger.SpaceKeys) ([][][]byte, error) {
	l.asked++
	var all [][][]byte
	for _, a := range asked {
		got, err := l.ReadKeys(ctx, a.Space, a.Keys...)
		if err != nil {
			return nil, err
		}
		all = append(all, got)
	}
	return all, nil
}

// A repo that was found before is asked for at once with its name, and what another node
// does with the name shows at once.
func TestRepoFoundAtOnce(t *testing.T) {
	l, dir := &farLedger{Ledger: openTestLedger(t)}, t.TempDir()
	fill := func(o *Options) { o.Ledger, o.Dir, o.Shared = l, dir, true }
	here, there := openTestStore(t, fill), openTestStore(t, fill)
	make := func() string {
		info, err := there.CreateRepo(t.Context(), Caller{}, "acme", "site", "main", nil)
		if err != nil {
			t.Fatalf("CreateRepo: %v", err)
		}
		return info.ID
	}
	find := func(want string) {
		t.Helper()
		r, err := here.Repo(t.Context(), "acme", "site")
		if err != nil || r.Info().ID != want {
			t.Fatalf("Repo = %v, %v; want %s", r, err, want)
		}
	}
	first := make()
	find(first)
	find(first)
	if l.asked != 1 {
		t.Errorf("a repo that was found before was asked for at once %d times, want 1", l.asked)
	}
	if _, err := there.DeleteRepo(t.Context(), Caller{}, "acme", "site", nil); err != nil {
		t.Fatalf("DeleteRepo: %v", err)
	}
	if r, err := here.Repo(t.Context(), "acme", "site"); !errors.Is(err, ErrRepoNotFound) {
		t.Errorf("Repo after another node deleted it = %v, %v; want ErrRepoNotFound", r, err)
	}
	find(make())
}
