package refpolicy

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// gitAccepts asks git check-ref-format. It runs outside a repository, where
// nothing like @{-1} is expanded.
func gitAccepts(t *testing.T, args ...string) bool {
	t.Helper()
	cmd := exec.Command("git", append([]string{"check-ref-format"}, args...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CEILING_DIRECTORIES="+cmd.Dir)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("git check-ref-format %q: %v", args, err)
	}
	return err == nil
}

func needGit(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("git is missing")
		}
		t.Skip("git is missing")
	}
}

// oddNames are cases.md 2.3 and 2.4 and what stands next to each rule.
var oddNames = []string{
	"a..b", "a.lock", "x.lock/y", "a@{b", "a.", ".a", "a/.b", "a//b", "a/", "/a", "a b", "a~b", "a^b", "a:b",
	"a?b", "a*b", "a[b", `a\b`, "a\tb", "a\x7fb", "HEAD", "-a", "--x=y", "../../config", "",
	"ok/é", "a.LOCK", "@a", "{", "1.0", "feature/x-y_z", // these are good
	"@", "@/a", "a@", "a/@", "a@{", "a{@", "@{-1}", "@{", "a.lock.b", "lock", ".lock", "a/.lock", "x./y", "a]", "a\x01",
	"a\nb", "a\xff", "a\x80b", "\xc3", "HEAD/x", "x/HEAD", "x/-a", "head", "FETCH_HEAD", "...", "a./b", "refs", "a,b",
	"a'b", `a"b`, "a;b", "$(x)", "%2e%2e", "heads/x", strings.Repeat("a/", 300) + "a", strings.Repeat("a", 900),
}

func TestCase2_3_FullNamesAsGit(t *testing.T) {
	needGit(t)
	names := []string{"refs/", "refs", "refs//", "refs/foo", "refs/heads", "refs/heads/", "refs/.", "/refs/heads/a", "heads/x", "HEAD"}
	for _, odd := range oddNames {
		names = append(names, "refs/heads/"+odd, "refs/"+odd)
	}
	for _, name := range names {
		got, err := ParseRefName(name)
		want := strings.HasPrefix(name, "refs/") && gitAccepts(t, name)
		if (err == nil) != want || want && string(got) != name {
			t.Errorf("ParseRefName(%q) = %q, %v; git check-ref-format takes it: %v", name, got, err, want)
		}
		checkRefNameError(t, name, err)
	}
}

func checkRefNameError(t *testing.T, name string, err error) {
	t.Helper()
	var bad *RefNameError
	if err != nil && (!errors.As(err, &bad) || bad.Name != name || bad.Rule == "" || !strings.Contains(err.Error(), bad.Rule)) {
		t.Errorf("the error for %q is %#v (%v), want a *RefNameError with that name and a rule", name, err, err)
	}
}

func TestCase2_4_BranchNamesAsGit(t *testing.T) {
	needGit(t)
	for _, short := range oddNames {
		want := gitAccepts(t, "--branch", short)
		for what, make := range map[string]func(string) (RefName, error){
			"Branch": Branch, "StrictBranch": StrictBranch, "EphemeralBranch": EphemeralBranch, "StrictEphemeralBranch": StrictEphemeralBranch,
		} {
			got, err := make(short)
			if (err == nil) != want {
				t.Errorf("%s(%q) = %q, %v; git check-ref-format --branch takes it: %v", what, short, got, err, want)
			}
			if err == nil && got.Short() != short {
				t.Errorf("%s(%q).Short() = %q", what, short, got.Short())
			}
			checkRefNameError(t, short, err)
		}
	}
}

func TestRandomNamesAsGit(t *testing.T) {
	needGit(t)
	const seed = 20
	random := rand.New(rand.NewPCG(seed, seed))
	bits := []string{"a", "b", ".", "..", "/", ".lock", "@", "{", "@{", "~", " ", "HEAD", "-", "\x01", "\x7f", "é", "*", "lock", "refs"}
	for range 600 {
		name := "refs/heads/"
		for range random.IntN(5) + 1 {
			name += bits[random.IntN(len(bits))]
		}
		_, err := ParseRefName(name)
		if want := gitAccepts(t, name); (err == nil) != want {
			t.Errorf("seed %d: ParseRefName(%q) = %v; git check-ref-format takes it: %v", seed, name, err, want)
		}
	}
}

func TestShortNames(t *testing.T) {
	for _, tc := range []struct {
		what string
		make func(string) (RefName, error)
		in   string
		want RefName // empty: a *RefNameError
	}{
		{"Branch", Branch, "main", "refs/heads/main"},
		{"Branch", Branch, "refs/heads/main", "refs/heads/main"},
		{"Branch", Branch, "refs/heads/refs/heads/main", ""}, // one prefix is taken off, not two
		{"Branch", Branch, "refs/heads/", ""},
		{"Branch", Branch, "refs/heads/HEAD", ""},
		{"Branch", Branch, "refs/heads/-x", ""},
		{"Branch", Branch, "refs/tags/v1", ""},
		{"Branch", Branch, "refs/namespaces/ephemeral/refs/heads/x", ""},
		{"Branch", Branch, "refs", "refs/heads/refs"}, // no slash, so no prefix
		{"Branch", Branch, "heads/x", "refs/heads/heads/x"},
		{"StrictBranch", StrictBranch, "main", "refs/heads/main"},
		{"StrictBranch", StrictBranch, "refs/heads/main", ""},
		{"EphemeralBranch", EphemeralBranch, "sessions/1", "refs/namespaces/ephemeral/refs/heads/sessions/1"},
		{"EphemeralBranch", EphemeralBranch, "refs/heads/x", "refs/namespaces/ephemeral/refs/heads/x"},
		{"EphemeralBranch", EphemeralBranch, "refs/namespaces/ephemeral/refs/heads/x", ""},
		{"StrictEphemeralBranch", StrictEphemeralBranch, "refs/heads/x", ""},
		{"Tag", Tag, "v1", "refs/tags/v1"},
		{"Tag", Tag, "refs/tags/v1", ""},
		{"Tag", Tag, "HEAD", ""},
		{"Tag", Tag, "-d", ""},
		{"Notes", Notes, "", "refs/notes/commits"},
		{"Notes", Notes, "x", "refs/notes/x"},
		{"Notes", Notes, "notes/x", "refs/notes/x"},
		{"Notes", Notes, "refs/notes/x", "refs/notes/x"},
		{"Notes", Notes, "refs/heads/x", ""},
		{"Notes", Notes, "refs/notes/", ""},
		{"FromEphemeral", FromEphemeral, "refs/heads/x", "refs/namespaces/ephemeral/refs/heads/x"},
		{"FromEphemeral", FromEphemeral, "x", ""},
		{"ParseRefName", ParseRefName, "refs/heads/" + strings.Repeat("a", 989), RefName("refs/heads/" + strings.Repeat("a", 989))},
		{"ParseRefName", ParseRefName, "refs/heads/" + strings.Repeat("a", 990), ""}, // 1,001 bytes
		{"ParseRefName", ParseRefName, "refs/heads/a\x00b", ""},
	} {
		got, err := tc.make(tc.in)
		var bad *RefNameError
		if got != tc.want || (tc.want == "") != errors.As(err, &bad) {
			t.Errorf("%s(%q) = %q, %v; want %q", tc.what, tc.in, got, err, tc.want)
		}
	}
}

func TestKindsOfRefs(t *testing.T) {
	for _, tc := range []struct {
		ref   RefName
		kinds string // the questions that are answered with yes
		short string
	}{
		{"refs/heads/a/b", "branch", "a/b"},
		{"refs/tags/v1", "tag", "v1"},
		{"refs/notes/commits", "notes", "commits"},
		{"refs/namespaces/ephemeral/refs/heads/s/1", "ephemeral ephemeral-branch hidden", "s/1"},
		{"refs/namespaces/ephemeral/refs/tags/v1", "ephemeral hidden", "refs/namespaces/ephemeral/refs/tags/v1"},
		{"refs/namespaces/state/refs/snapshots/1", "state hidden", "refs/namespaces/state/refs/snapshots/1"},
		{"refs/namespaces/other/refs/heads/x", "hidden", "refs/namespaces/other/refs/heads/x"},
		{"refs/foo", "one-level", "refs/foo"},
		{"refs/namespaces", "one-level", "refs/namespaces"},
		{"refs/headsx/y", "", "refs/headsx/y"}, // the prefix ends with its slash
	} {
		var kinds []string
		for _, q := range []struct {
			name string
			yes  bool
		}{
			{"branch", tc.ref.IsBranch()}, {"tag", tc.ref.IsTag()}, {"notes", tc.ref.IsNotes()},
			{"ephemeral", tc.ref.IsEphemeral()}, {"ephemeral-branch", tc.ref.IsEphemeralBranch()},
			{"state", tc.ref.IsState()}, {"hidden", tc.ref.Hidden()}, {"one-level", tc.ref.OneLevel()},
		} {
			if q.yes {
				kinds = append(kinds, q.name)
			}
		}
		if got := strings.Join(kinds, " "); got != tc.kinds {
			t.Errorf("%s is %q, want %q", tc.ref, got, tc.kinds)
		}
		if got := tc.ref.Short(); got != tc.short {
			t.Errorf("%s.Short() = %q, want %q", tc.ref, got, tc.short)
		}
		if shown, ok := tc.ref.Shown(); ok != tc.ref.IsEphemeral() || ok && EphemeralPrefix+shown != string(tc.ref) {
			t.Errorf("%s.Shown() = %q, %v", tc.ref, shown, ok)
		}
	}
}

// slowRule says git's rules again, each in the words of git-check-ref-format(1).
func slowRule(s string) bool {
	if !strings.HasPrefix(s, "refs/") || len(s) > 1000 {
		return false
	}
	for _, banned := range []string{"..", "//", "@{", " ", "~", "^", ":", "?", "*", "[", `\`, "\x7f", "/.", ".lock/"} {
		if strings.Contains(s, banned) {
			return false
		}
	}
	for c := range 0x20 {
		if strings.Contains(s, string(rune(c))) {
			return false
		}
	}
	return !strings.HasSuffix(s, "/") && !strings.HasSuffix(s, ".") && !strings.HasSuffix(s, ".lock")
}

func FuzzParseRefName(f *testing.F) {
	for _, odd := range oddNames {
		f.Add("refs/heads/" + odd)
		f.Add(odd)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ref, err := ParseRefName(s)
		if want := slowRule(s); (err == nil) != want {
			t.Fatalf("ParseRefName(%q) = %v, want it taken: %v", s, err, want)
		}
		for _, make := range []func(string) (RefName, error){Branch, StrictBranch, EphemeralBranch, Tag, Notes, FromEphemeral} {
			if got, err := make(s); err == nil {
				if again, err := ParseRefName(string(got)); err != nil || again != got {
					t.Fatalf("%q made of %q is no ref name: %v", got, s, err)
				}
			}
		}
		if err == nil && ref.IsBranch() {
			if again, err := Branch(ref.Short()); err == nil && again != ref {
				t.Fatalf("Branch(%q) = %q, want %q", ref.Short(), again, ref)
			}
		}
	})
}
