package gitstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// randomHistory makes n commits on main and side branches with merges, renames of
// files to folders and back, equal and skewed dates.
func randomHistory(t testing.TB, seed uint64, n int) (*gitSource, map[int]refpolicy.OID) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 99))
	g := newGitSource(t)
	var h history
	names := []string{"a", "b", "d/x", "d/y", "d/e/z", "d.txt", "f"}
	h.commit("refs/heads/main", 1000, nil, map[string]*blob{"a": text("0"), "d/x": text("0")})
	for i := 2; i <= n; i++ {
		files := map[string]*blob{}
		for range rng.IntN(3) {
			name := names[rng.IntN(len(names))]
			files[name] = text(fmt.Sprint(rng.IntN(3))) // few contents, so that reverts happen
			if rng.IntN(5) == 0 {
				files[name] = nil
			}
		}
		switch rng.IntN(20) {
		case 0:
			files = map[string]*blob{"d": nil}
		case 1:
			files = map[string]*blob{"d": text("file")}
		}
		parents := []int{max(1, i-1-rng.IntN(4))}
		for rng.IntN(4) == 0 && i > 5 {
			if p := 1 + rng.IntN(i-1); !slices.Contains(parents, p) {
				parents = append(parents, p)
			}
		}
		when := 1000 + i*10
		switch rng.IntN(6) {
		case 0:
			when = 1000 + (i-1)*10
		case 1:
			when = 1000 + rng.IntN(n*10)
		}
		if rng.IntN(15) == 0 {
			parents = nil
		}
		h.commit(fmt.Sprintf("refs/heads/c%d", i), when, parents, files)
	}
	// main merges everything that is left open
	tips := []int{n}
	for i := n - 1; i > n-4 && i > 0; i-- {
		tips = append(tips, i)
	}
	h.commit("refs/heads/main", 1000+n*10+10, tips, nil)
	return g, g.put(&h)
}

var historyPaths = []string{"", "a", "b", "d", "d/", "d/x", "d/e", "d/e/z", "d.txt", "f", "nothing", "a/", "d/x/y"}

func gitLog(g *gitSource, from, path string) []string {
	args := []string{"log", "--format=%H", from}
	if path != "" {
		args = append(args, "--", ":(literal)"+path)
	}
	return strings.Fields(g.git(args...))
}

func TestLogIsGitLog(t *testing.T) {
	for seed := range uint64(4) {
		g, at := randomHistory(t, seed, 70)
		r := g.store()
		for _, path := range historyPaths {
			for _, mark := range []int{71, 40} {
				want := gitLog(g, at[mark].String(), path)
				for _, limit := range []int{0, 1, 7} {
					if got := logInPages(t, r, at[mark], path, limit, false); !slices.Equal(got, want) {
						t.Fatalf("seed %d: Log(%s, %q) in pages of %d:\n%v\ngit log:\n%v", seed, at[mark], path, limit, got, want)
					}
				}
				if got := logInPages(t, r, at[mark], path, 5, true); !slices.Equal(got, want) {
					t.Fatalf("seed %d: Log(%s, %q) without paused walks:\n%v\ngit log:\n%v", seed, at[mark], path, got, want)
				}
			}
		}
	}
}

// logInPages reads a history page by page; forget loses what the server remembers between pages.
func logInPages(t *testing.T, r *Repo, from refpolicy.OID, path string, limit int, forget bool) (oids []string) {
	t.Helper()
	cursor := ""
	for {
		page, err := r.Log(t.Context(), Caller{}, from, path, cursor, limit)
		if err != nil {
			t.Fatalf("Log(%s, %q, %q): %v", from, path, cursor, err)
		}
		for _, c := range page.Commits {
			oids = append(oids, c.OID.String())
		}
		if cursor = page.Next; cursor == "" {
			return oids
		}
		if len(page.Commits) != limit {
			t.Fatalf("Log(%s, %q) gave %d commits and a cursor, want %d", from, path, len(page.Commits), limit)
		}
		if forget {
			r.store.readers.pauses = newLRU[pauseKey, *historyWalk](pausedWalksBytes)
		}
	}
}

func TestLogGivesWholeCommits(t *testing.T) {
	g, at := randomHistory(t, 1, 10)
	r := g.store()
	page, err := r.Log(t.Context(), Caller{}, at[11], "", "", 1)
	if err != nil || len(page.Commits) != 1 {
		t.Fatalf("Log = %d commits, %v", len(page.Commits), err)
	}
	c := page.Commits[0]
	if c.OID != at[11] || c.Message != "commit 11\n" || c.Committer.Name != "C" || c.Author.Email != "a@example.org" || len(c.Parents) != 4 {
		t.Errorf("Log gave %+v", c)
	}
	if want := time.Unix(1000+10*10+10, 0); !c.Committer.When.Equal(want) {
		t.Errorf("committed %v, want %v", c.Committer.When, want)
	}
	if string(c.Raw) != string(g.gitIn("", "cat-file", "commit", at[11].String())) {
		t.Errorf("Raw = %q", c.Raw)
	}
}

func TestLogCursorStaysOnItsHistory(t *testing.T) {
	g, at := randomHistory(t, 3, 30)
	r := g.store()
	first, err := r.Log(t.Context(), Caller{}, at[31], "", "", 5)
	if err != nil || first.Next == "" {
		t.Fatalf("Log: %v, next %q", err, first.Next)
	}
	next, err := r.Log(t.Context(), Caller{}, at[2], "", first.Next, 5) // from is not looked at
	if err != nil || next.Commits[0].OID.String() != gitLog(g, at[31].String(), "")[5] {
		t.Errorf("page after the cursor begins with %v, %v", next.Commits, err)
	}
	if _, err := r.Log(t.Context(), Caller{}, at[31], "a", first.Next, 5); !errors.Is(err, ErrBadCursor) {
		t.Errorf("Log with the cursor of another path = %v, want ErrBadCursor", err)
	}
	gone := logCursor{start: refpolicy.OID{9}, path: pathSum(treePath{dir: true}), shown: 1}.encode()
	if _, err := r.Log(t.Context(), Caller{}, at[31], "", gone, 5); !errors.Is(err, ErrObjectNotFound) {
		t.Errorf("Log after a commit that is gone = %v, want ErrObjectNotFound", err)
	}
}

// A cursor is only as good as its caller: one token's cursor must not page through
// history for another that may not read it.
func TestA13_LogCursorIsNoPass(t *testing.T) {
	g, at := revisionSource(t)
	r := g.store()
	page, err := r.Log(t.Context(), Caller{}, at[6], "", "", 1)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := refpolicy.New([]refpolicy.Rule{{Pattern: "refs/heads/side"}, {Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoRead}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := r.Log(t.Context(), Caller{Policy: policy}, at[3], "", page.Next, 5); !errors.Is(err, ErrObjectNotFound) {
		t.Errorf("Log with a cursor of hidden history = %v, %v; want ErrObjectNotFound", p, err)
	}
	if p, err := r.Log(t.Context(), Caller{Policy: policy}, at[3], "", "", 5); err != nil || len(p.Commits) != 2 {
		t.Errorf("Log of readable history = %v, %v", p, err)
	}
}

func TestLastChangeIsGitLogOne(t *testing.T) {
	for seed := range uint64(4) {
		g, at := randomHistory(t, 20+seed, 60)
		r := g.store()
		for _, mark := range []int{61, 30, 45, 61} {
			for _, path := range historyPaths {
				want := gitLog(g, at[mark].String(), path)
				got, err := r.LastChange(t.Context(), at[mark], path)
				if len(want) == 0 {
					if !errors.Is(err, ErrPathNotFound) {
						t.Errorf("LastChange(%s, %q) = %s, %v; want ErrPathNotFound", at[mark], path, got.OID, err)
					}
					continue
				}
				if err != nil || got.OID.String() != want[0] {
					t.Errorf("seed %d: LastChange(%s, %q) = %s, %v; git says %s", seed, at[mark], path, got.OID, err, want[0])
				}
			}
		}
	}
}

func TestMergeBaseIsGits(t *testing.T) {
	for seed := range uint64(4) {
		g, at := randomHistory(t, 40+seed, 60)
		r := g.store()
		rng := rand.New(rand.NewPCG(seed, 5))
		for range 60 {
			a, b := at[1+rng.IntN(61)], at[1+rng.IntN(61)]
			out, err := g.command("merge-base", a.String(), b.String()).Output()
			want := strings.TrimSpace(string(out))
			if err != nil {
				want = ""
			}
			got, ok, err := r.MergeBase(t.Context(), a, b)
			if err != nil || ok != (want != "") || (ok && got.String() != want) {
				t.Fatalf("seed %d: MergeBase(%s, %s) = %s %v, %v; git says %q", seed, a, b, got, ok, err, want)
			}
		}
	}
}

func TestMergeBaseOfMissingCommit(t *testing.T) {
	g, at := randomHistory(t, 2, 5)
	r := g.store()
	if _, _, err := r.MergeBase(t.Context(), at[1], refpolicy.OID{1}); !errors.Is(err, ErrObjectNotFound) {
		t.Errorf("MergeBase with a missing commit = %v, want ErrObjectNotFound", err)
	}
}

func FuzzLogCursor(f *testing.F) {
	f.Add(logCursor{start: refpolicy.OID{1, 2}, path: 3, shown: 4}.encode())
	f.Add("")
	f.Add("aDE6")
	f.Add(encodeCursor(historyCursor, strings.Repeat("\xff", 40)))
	f.Fuzz(func(t *testing.T, s string) {
		c, err := decodeLogCursor(s)
		if err != nil {
			if !errors.Is(err, ErrBadCursor) {
				t.Fatalf("decodeLogCursor(%q) = %v, want ErrBadCursor", s, err)
			}
			return
		}
		if again, err := decodeLogCursor(c.encode()); err != nil || again != c {
			t.Fatalf("cursor %+v came back as %+v, %v", c, again, err)
		}
	})
}
