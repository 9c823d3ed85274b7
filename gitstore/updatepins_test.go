package gitstore

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// An update makes its pins with its refs or not at all.
func TestPinsOfAnUpdate(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "site")
	head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}}).Commit
	id := NewPinID()
	pin := NewPin{ID: id, OID: head, Holder: "group g1", TTL: time.Hour}
	forks := []Change{{Ref: "refs/heads/f1", New: head}, {Ref: "refs/heads/f2", New: head}}
	with := func(change func(*NewPin)) NewPin {
		p := pin
		change(&p)
		return p
	}
	for name, u := range map[string]Update{
		"not atomic":      {Changes: forks, Pins: []NewPin{pin}},
		"of another id":   {Changes: forks, Atomic: true, Pins: []NewPin{with(func(p *NewPin) { p.OID = refpolicy.OID{1} })}},
		"of a deletion":   {Changes: []Change{{Ref: mainRef, Old: head}}, Pins: []NewPin{with(func(p *NewPin) { p.OID = refpolicy.OID{} })}},
		"without holder":  {Changes: forks, Atomic: true, Pins: []NewPin{with(func(p *NewPin) { p.Holder = "" })}},
		"for less than 0": {Changes: forks, Atomic: true, Pins: []NewPin{with(func(p *NewPin) { p.TTL = -1 })}},
		"under no id":     {Changes: forks, Atomic: true, Pins: []NewPin{with(func(p *NewPin) { p.ID = "pin_/x" })}},
		"twice":           {Changes: forks, Atomic: true, Pins: []NewPin{pin, pin}},
	} {
		u.Caller = someone
		if _, err := r.Update(t.Context(), u); !errors.Is(err, ErrInvalid) {
			t.Errorf("pin %s: %v, want ErrInvalid", name, err)
		}
	}
	refused := Update{Caller: someone, Atomic: true, Pins: []NewPin{pin}, Changes: append([]Change{{Ref: mainRef, New: head}}, forks...)}
	if res, err := r.Update(t.Context(), refused); err != nil || !isMovedErr(res.Refusal()) {
		t.Errorf("Update that is refused: %+v, %v", res, err)
	}
	wantPinned(t, r, head, false)
	u := Update{Caller: someone, Atomic: true, Pins: []NewPin{pin}, Changes: forks}
	if res, err := r.Update(t.Context(), u); err != nil || res.Refusal() != nil {
		t.Fatalf("Update: %+v, %v", res, err)
	}
	wantPinned(t, r, head, true)
	if got, err := r.Pinned(t.Context(), head, id[:len(id)-2]); err != nil || got {
		t.Errorf("Pinned besides the one there is = %v, %v; want false", got, err)
	}
	page, err := r.Pins(t.Context(), someone, "", 10)
	if err != nil || len(page.Pins) != 1 {
		t.Fatalf("Pins = %+v, %v; want the one of the update", page, err)
	}
	got := page.Pins[0]
	want := Pin{ID: id, OID: head, Holder: "group g1", By: "tester", CreatedAt: got.CreatedAt, ExpiresAt: got.CreatedAt.Add(time.Hour)}
	if got != want {
		t.Errorf("pin %+v, want %+v", got, want)
	}
	u.Changes = []Change{{Ref: "refs/heads/f3", New: head}}
	if _, err := r.Update(t.Context(), u); !isCheck(err) {
		t.Errorf("Update with a pin that is there: %v, want its CheckError", err)
	}
	if err := r.Unpin(t.Context(), someone, id, nil); err != nil {
		t.Fatalf("Unpin: %v", err)
	}
	wantPinned(t, r, head, false)
}

func wantPinned(t *testing.T, r *Repo, oid refpolicy.OID, want bool) {
	t.Helper()
	if got, err := r.Pinned(t.Context(), oid, ""); err != nil || got != want {
		t.Errorf("Pinned(%s) = %v, %v; want %v", oid, got, err, want)
	}
}

// Heads tells of refs at one moment, those that are not there included.
func TestHeads(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "site")
	head := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "0\n"}}).Commit
	refs, err := r.Heads(t.Context(), "refs/heads/absent", mainRef, "refs/heads/a/b")
	if err != nil || len(refs) != 3 {
		t.Fatalf("Heads = %+v, %v; want three", refs, err)
	}
	if refs[0] != (Ref{}) || refs[2] != (Ref{}) {
		t.Errorf("absent refs are %+v and %+v, want zero", refs[0], refs[2])
	}
	if m := refs[1]; m.Name != mainRef || m.OID != head || m.Writer != "tester" || m.UpdatedAt.IsZero() {
		t.Errorf("main is %+v, want it at %s by tester", m, head)
	}
	if none, err := r.Heads(t.Context()); err != nil || len(none) != 0 {
		t.Errorf("Heads of nothing = %+v, %v", none, err)
	}
}
