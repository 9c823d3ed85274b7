package snapshot

import (
	"context"
	"maps"
	"slices"
	"testing"
)

func (r *fakeRepo) Stages(context.Context) ([]string, error) {
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	return slices.Sorted(maps.Keys(r.w.stages)), nil
}

// A stage whose upload is no more is removed; one that can be gone on with stays (C-13).
func TestC13_StagesOfNobodyGo(t *testing.T) {
	w := newWorld(t, Limits{})
	w.session("s", OID{})
	repo := w.as(Actor{Org: "acme", Subject: "backend"})
	up, err := w.k.Begin(t.Context(), repo, SaveSpec{Session: "s", Parts: []PartSpec{{Size: -1}}})
	if err != nil {
		t.Fatalf("Begin: %v", err)
	}
	for _, id := range []string{up.ID, "save_of_nobody"} {
		if _, err := repo.OpenStage(t.Context(), id); err != nil {
			t.Fatalf("OpenStage: %v", err)
		}
	}
	if _, err := w.k.Reap(t.Context(), w.repo); err != nil {
		t.Fatalf("Reap: %v", err)
	}
	if left, _ := repo.Stages(t.Context()); !slices.Equal(left, []string{up.ID}) {
		t.Errorf("stages after a round = %v, want that of %s alone", left, up.ID)
	}
}
