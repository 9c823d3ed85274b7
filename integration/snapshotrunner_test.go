package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	headgate "github.com/headgate/headgate/httpapi/client"
	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
	"github.com/headgate/headgate/tokens"
)

// A runner saves and restores snapshots of one session by the command line, as whoever
// runs a sandbox does. It remembers things in a folder of its own.
type runner struct {
	r       *repo
	session string
	token   string
	state   string
}

// runner is one with the backend's token and a new session.
func (r *repo) runner(session string) *runner {
	r.g.t.Helper()
	r.begin(map[string]any{"id": session, "base_ref": "main"})
	return r.runnerOf(session, r.both())
}

// runnerOf is one for a session that is there.
func (r *repo) runnerOf(session, token string) *runner {
	return &runner{r: r, session: session, token: token, state: r.g.t.TempDir()}
}

// both is a token that may read and write.
func (r *repo) both() string {
	return r.token([]tokens.Scope{tokens.GitWrite, tokens.GitRead})
}

// on is the runner with another server of the same store.
func (u *runner) on(g *gate) *runner {
	other := *u
	other.r = u.r.on(g)
	return &other
}

func (u *runner) command(verb string, args ...string) *exec.Cmd {
	cmd := u.r.g.tool(append([]string{"snapshot", verb}, args...)...)
	cmd.Env = append(cmd.Env, "HEADGATE_SERVER="+u.r.g.URL, "HEADGATE_REPO="+u.r.name, "HEADGATE_TOKEN="+u.token)
	return cmd
}

// try runs a command and gives what it printed, and what it complained of.
func (u *runner) try(verb string, args ...string) (out, complaint string, err error) {
	u.r.g.t.Helper()
	return finish(u.r.g.t, u.command(verb, args...))
}

func finish(t testing.TB, cmd *exec.Cmd) (out, complaint string, err error) {
	t.Helper()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	text, err := cmd.Output()
	if strings.Contains(errs.String(), "DATA RACE") {
		t.Errorf("headgate %s: %s", cmd.Args[1:], errs.String())
	}
	return string(text), errs.String(), err
}

func (u *runner) run(verb string, args ...string) string {
	u.r.g.t.Helper()
	out, complaint, err := u.try(verb, args...)
	if err != nil {
		u.r.g.t.Fatalf("headgate snapshot %s %s: %v\n%s%s\n%s", verb, strings.Join(args, " "), err, out, complaint, u.r.g.tail())
	}
	return out
}

// fails runs a command that has to fail and to say these words.
func (u *runner) fails(verb string, args []string, words ...string) string {
	u.r.g.t.Helper()
	out, complaint, err := u.try(verb, args...)
	if err == nil {
		u.r.g.t.Fatalf("headgate snapshot %s %s succeeded, want it to fail with %q\n%s", verb, strings.Join(args, " "), words, out)
	}
	wantHas(u.r.g.t, "complaint of snapshot "+verb, complaint, words...)
	return complaint
}

func (u *runner) saveArgs(from string, flags ...string) []string {
	return append(append([]string{"--session", u.session, "--state", u.state, "--json"}, flags...), from)
}

// save saves and gives the snapshot.
func (u *runner) save(from string, flags ...string) headgate.Snapshot {
	u.r.g.t.Helper()
	return decoded[headgate.Snapshot](u.r.g.t, u.run("save", u.saveArgs(from, flags...)...))
}

func decoded[T any](t testing.TB, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%.300q is not the JSON that is wanted: %v", text, err)
	}
	return v
}

// A restored is what a restore tells of one part.
type restored struct {
	SHA       string `json:"sha"`
	Part      string `json:"part"`
	Bytes     int64  `json:"size_bytes"`
	Root      string `json:"image_sha256"`
	RestoreID string `json:"restore_id"`
	Seed      string `json:"seed"`
	Excluded  []struct{ Name, Reason string }
}

// restore restores into a new file, and gives its path and what was told.
func (u *runner) restore(sha string, flags ...string) (path string, told restored) {
	u.r.g.t.Helper()
	path = filepath.Join(u.r.g.t.TempDir(), "restored")
	all := decoded[[]restored](u.r.g.t, u.run("restore", append(append([]string{"--json"}, flags...), sha, path)...))
	if len(all) != 1 {
		u.r.g.t.Fatalf("restore of %s tells of %d parts, want one", sha, len(all))
	}
	return path, all[0]
}

// wantRestored restores a snapshot and compares it with an image.
func (u *runner) wantRestored(what, sha string, want io.WriterTo) {
	u.r.g.t.Helper()
	path, told := u.restore(sha)
	defer os.Remove(path)
	if told.SHA != sha || told.Seed == "" || told.RestoreID == "" {
		u.r.g.t.Errorf("%s: restore of %s tells %+v", what, sha, told)
	}
	wantImage(u.r.g.t, what, path, want)
}

func wantImage(t testing.TB, what, path string, want io.WriterTo) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := want.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, b.Bytes()) {
		t.Errorf("%s: %s has %d bytes that are not the %d of the image", what, path, len(got), b.Len())
	}
}

// list are the session's snapshots as the command tells them, newest first.
func (u *runner) list() []headgate.Snapshot {
	u.r.g.t.Helper()
	return decoded[struct {
		Snapshots []headgate.Snapshot `json:"snapshots"`
	}](u.r.g.t, u.run("list", "--json", "--session", u.session)).Snapshots
}

// ready are the ids of those that can be restored, newest first.
func (u *runner) ready() (shas []string) {
	u.r.g.t.Helper()
	for _, s := range u.list() {
		if s.State == "ready" {
			shas = append(shas, s.SHA)
		}
	}
	return shas
}

// memory is an image of so many MiB, 60% of it zero pages; like says which.
func memory(like uint64, mib int) *snapshottest.Image {
	return snapshottest.NewImage(seed+like, int64(mib)<<20, 0.6)
}

// full is one without zeros.
func full(like uint64, mib int) *snapshottest.Image {
	return snapshottest.NewImage(seed+like, int64(mib)<<20, 0)
}

// imageFile writes an image into a file.
func imageFile(t testing.TB, path string, image io.WriterTo) string {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = image.WriteTo(f)
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func newImageFile(t testing.TB, image io.WriterTo) string {
	t.Helper()
	return imageFile(t, filepath.Join(t.TempDir(), "image"), image)
}

// image asks for a range of a snapshot's image, as bytes.
func (u *runner) image(sha, ranges string) harness.Answer {
	u.r.g.t.Helper()
	ask := harness.Ask{Path: u.r.path("/snapshots/" + sha + "/image"), Token: u.token}
	if ranges != "" {
		ask.Header = map[string]string{"Range": ranges}
	}
	return u.r.g.do(ask)
}

// packFiles are the pack files of all repos of a data folder.
func (g *gate) packFiles() []string {
	g.t.Helper()
	found, err := filepath.Glob(filepath.Join(g.Data, "repos", "*", "*", "packs", "pack-*.pack"))
	if err != nil {
		g.t.Fatal(err)
	}
	return found
}

// packBytes is how much they hold, with what lies beside them.
func (g *gate) packBytes() (n int64) {
	g.t.Helper()
	found, err := filepath.Glob(filepath.Join(g.Data, "repos", "*", "*", "packs", "*"))
	if err != nil {
		g.t.Fatal(err)
	}
	for _, path := range found {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
	}
	return n
}

// need ends the test if a program is not there: where everything is run it must be.
func need(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%s is missing: %v", name, err)
			}
			t.Skipf("%s is missing: %v", name, err)
		}
	}
}

// rawOf is a member of an answer as it was sent.
func rawOf(t testing.TB, a harness.Answer, name string) json.RawMessage {
	t.Helper()
	return decoded[map[string]json.RawMessage](t, string(a.Body))[name]
}
