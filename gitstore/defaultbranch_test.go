package gitstore

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"
)

// logOf gives all entries of a repo's log.
func logOf(t testing.TB, r *Repo) []LogEntry {
	t.Helper()
	v, err := r.ledger.Read(t.Context(), r.space)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	defer v.Close()
	raw, err := v.Log(t.Context(), 0, 100)
	if err != nil {
		t.Fatalf("Log: %v", err)
	}
	entries := make([]LogEntry, len(raw))
	for n, e := range raw {
		if err := json.Unmarshal(e.Data, &entries[n]); err != nil {
			t.Fatalf("log entry %d: %v", e.Seq, err)
		}
	}
	return entries
}

// Whoever follows the log learns of another default branch as of every other change,
// and of nothing where nothing changed.
func TestDefaultBranchIsInTheLog(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "repo")
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1"}})
	mustCommit(t, r, someone, testCommit{target: "refs/heads/trunk", base: mainRef, files: map[string]string{"a": "2"}})
	before := len(logOf(t, r))
	if _, err := r.SetDefaultBranch(t.Context(), someone, "gone", nil); !errors.Is(err, ErrRefNotFound) {
		t.Errorf("SetDefaultBranch(gone) = %v, want ErrRefNotFound", err)
	}
	for range 2 { // the second time changes nothing
		if info, err := r.SetDefaultBranch(t.Context(), someone, "trunk", nil); err != nil || info.DefaultBranch != "trunk" {
			t.Fatalf("SetDefaultBranch(trunk) = %+v, %v", info, err)
		}
	}
	want := []LogEntry{{
		Type: "repo.updated", Actor: someone.Actor, Changes: []LogChange{},
		Data: json.RawMessage(`{"old_default_branch":"main","default_branch":"trunk"}`),
	}}
	if got := logOf(t, r)[before:]; !reflect.DeepEqual(got, want) {
		t.Errorf("log after SetDefaultBranch = %+v, want %+v", got, want)
	}
	if _, err := replayLog(t.Context(), r); err != nil {
		t.Errorf("replay of the log: %v", err)
	}
}

// To a token that may not read a branch HEAD does not go there, and it is told what
// it is told of a branch that does not exist.
func TestA13_DefaultBranchTellsNothing(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "repo")
	mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1"}})
	mustCommit(t, r, someone, testCommit{target: "refs/heads/hidden", base: mainRef, files: map[string]string{"a": "2"}})
	c := confined(t, mainRef)
	for _, branch := range []string{"hidden", "absent"} {
		_, err := r.SetDefaultBranch(t.Context(), c, branch, nil)
		if want := ErrRefNotFound.Error() + ": " + branch; !errors.Is(err, ErrRefNotFound) || err.Error() != want {
			t.Errorf("SetDefaultBranch(%s) by a confined token = %v, want %s", branch, err, want)
		}
	}
	if info, err := r.SetDefaultBranch(t.Context(), c, "main", nil); err != nil || info.DefaultBranch != "main" {
		t.Errorf("SetDefaultBranch(main) by a confined token = %+v, %v", info, err)
	}
}
