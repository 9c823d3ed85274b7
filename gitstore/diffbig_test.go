package gitstore

import (
	"errors"
	"strings"
	"testing"
)

// A file too large to be looked into is named with its state and size, and git is
// never made to read it; what changed beside it is shown as ever.
func TestCase12_2_LargeFilesAreNamedNotRead(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "site")
	big := strings.Repeat("0123456789abcde\n", (maxDiffedFile+1<<20)/16)
	asked := strings.Repeat("0123456789abcde\n", (maxAskedFile+1<<20)/16)
	first := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "1\n"}})
	added := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"a": "2\n", "d/big": big, "huge": asked}})
	moved := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"d/big": "", "moved": big}})
	changed := mustCommit(t, r, someone, testCommit{target: mainRef, files: map[string]string{"moved": "small now\n"}})
	for _, tc := range []struct {
		name string
		q    DiffRequest
		want string // state and path of filtered files
		show int
	}{
		{"added", DiffRequest{Base: first.Commit, Head: added.Commit}, "A d/big, A huge", 1},
		{"moved", DiffRequest{Base: added.Commit, Head: moved.Commit}, "R100 moved", 0},
		{"shrunk", DiffRequest{Base: moved.Commit, Head: changed.Commit, Exact: true}, "M moved", 0},
		{"removed", DiffRequest{Base: added.Commit, Head: first.Commit}, "D d/big, D huge", 1},
		{"a path beside them", DiffRequest{Base: first.Commit, Head: added.Commit, Paths: []string{"a"}}, "", 1},
	} {
		d, err := r.Diff(t.Context(), tc.q)
		if err != nil {
			t.Errorf("%s: Diff: %v", tc.name, err)
			continue
		}
		var got []string
		for _, f := range d.Filtered {
			got = append(got, f.State+" "+f.Path)
		}
		if strings.Join(got, ", ") != tc.want || len(d.Files) != tc.show {
			t.Errorf("%s: filtered %q and %d files shown, want %q and %d", tc.name, strings.Join(got, ", "), len(d.Files), tc.want, tc.show)
		}
	}
	_, err := r.Diff(t.Context(), DiffRequest{Base: first.Commit, Head: added.Commit, Paths: []string{"huge"}})
	if !errors.Is(err, ErrTooLarge) {
		t.Errorf("Diff of an asked file over the limit: %v, want ErrTooLarge", err)
	}
}
