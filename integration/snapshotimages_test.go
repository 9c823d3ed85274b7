package integration

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	headgate "github.com/headgate/headgate/httpapi/client"
	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

// What real programs leave: the memory of a running program, its namespace pickled and
// as JSON, saved together as one folder, and again after it went on.
func TestRealImages_ProgramAndNamespace(t *testing.T) {
	need(t, "gcore", "python3")
	g := start(t)
	r, _ := g.seeded()
	u := r.runner("s")
	dir := t.TempDir()
	p := startPython(t, dir)
	p.step()
	first := dumpOf(t, p, filepath.Join(dir, "images"), filepath.Join(t.TempDir(), "kept-1"))
	saved := u.save(filepath.Join(dir, "images"), "--machine", "arch=amd64")
	if saved.State != "ready" || saved.Size < 1<<20 {
		t.Fatalf("save of a program = %+v, want it ready", saved)
	}
	p.step()
	second := dumpOf(t, p, filepath.Join(dir, "images"), filepath.Join(t.TempDir(), "kept-2"))
	next := u.save(filepath.Join(dir, "images"), "--machine", "arch=amd64")
	if next.New > saved.Stored/2 {
		t.Errorf("save of the program a moment later adds %d bytes to %d, want less than half", next.New, saved.Stored)
	}
	for sha, kept := range map[string]string{saved.SHA: first, next.SHA: second} {
		to := t.TempDir()
		u.run("restore", sha, to)
		for _, name := range []string{"memory.core", "namespace.pkl", "namespace.json"} {
			want, err := os.ReadFile(filepath.Join(kept, name))
			if err != nil {
				t.Fatal(err)
			}
			wantImage(t, name, filepath.Join(to, name), bytes.NewBuffer(want))
		}
		out, err := exec.Command("python3", "-c", "import pickle,sys,json; a=pickle.load(open(sys.argv[1],'rb')); b=json.load(open(sys.argv[2])); print(a['step']==b['step'], len(a['rows']))",
			filepath.Join(to, "namespace.pkl"), filepath.Join(to, "namespace.json")).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "True 2000") {
			t.Errorf("restored namespace: %v %s", err, out)
		}
	}
}

// An interpreter is a program whose memory is saved.
type interpreter struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

const pythonProgram = `
import json, os, pickle, sys
rows = {"step": 0, "rows": [("row %d" % i, i * i, os.urandom(16).hex()) for i in range(2000)]}
heap = [bytearray(os.urandom(1024)) for _ in range(3000)]
for line in sys.stdin:
    rows["step"] += 1
    rows["rows"][rows["step"]] = ("changed", rows["step"], "x")
    heap[rows["step"]] = bytearray(os.urandom(1024))
    folder = line.strip()
    os.makedirs(folder, exist_ok=True)
    pickle.dump(rows, open(os.path.join(folder, "namespace.pkl"), "wb"))
    json.dump(rows, open(os.path.join(folder, "namespace.json"), "w"))
    print("ready", flush=True)
`

func startPython(t testing.TB, dir string) *interpreter {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "python3", "-c", pythonProgram)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	return &interpreter{t: t, cmd: cmd, in: in, out: bufio.NewReader(out)}
}

// step lets it work and write its namespace down.
func (p *interpreter) step() {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, "images"); err != nil {
		p.t.Fatal(err)
	}
	if line, err := p.out.ReadString('\n'); err != nil || line != "ready\n" {
		p.t.Fatalf("the program says %q, %v", line, err)
	}
}

// dumpOf puts a program's memory beside its namespace, and keeps a copy of all in kept.
func dumpOf(t testing.TB, p *interpreter, images, kept string) string {
	t.Helper()
	base := filepath.Join(t.TempDir(), "core")
	if out, err := exec.Command("gcore", "-o", base, fmt.Sprint(p.cmd.Process.Pid)).CombinedOutput(); err != nil {
		t.Fatalf("gcore: %v\n%s", err, out)
	}
	if err := os.Rename(fmt.Sprintf("%s.%d", base, p.cmd.Process.Pid), filepath.Join(images, "memory.core")); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(kept, os.DirFS(images)); err != nil {
		t.Fatal(err)
	}
	return kept
}

// A tar of a workspace is cut by content: a file that is put in at its beginning moves
// all that follows, and costs little more than itself (PN-22).
func TestRealImages_TarOfAWorkspace(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	u := r.runner("s")
	before, after := tarOf(t, false), tarOf(t, true)
	first := u.saveStream(before)
	second := u.saveStream(after)
	if grown := int64(len(after) - len(before)); second.New > grown+256<<10 || second.New == 0 {
		t.Errorf("a file of %d bytes put in the front adds %d of %d, want little more", grown, second.New, first.Stored)
	}
	for sha, want := range map[string][]byte{first.SHA: before, second.SHA: after} {
		path, _ := u.restore(sha)
		wantImage(t, "tar", path, bytes.NewBuffer(want))
		if got := u.run("restore", sha, "-"); got != string(want) {
			t.Errorf("restore into a pipe gives %d bytes, want the %d of the tar", len(got), len(want))
		}
	}
}

// saveStream saves what comes by a pipe, as files.
func (u *runner) saveStream(text []byte) headgate.Snapshot {
	u.r.g.t.Helper()
	cmd := u.command("save", u.saveArgs("-", "--kind", "files")...)
	cmd.Stdin = bytes.NewReader(text)
	out, complaint, err := finish(u.r.g.t, cmd)
	if err != nil {
		u.r.g.t.Fatalf("save of a stream: %v\n%s\n%s", err, complaint, u.r.g.tail())
	}
	return decoded[headgate.Snapshot](u.r.g.t, out)
}

// tarOf is an archive of files, with one more at its beginning if that is asked for.
func tarOf(t testing.TB, more bool) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name string, content []byte) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(content); err != nil {
			t.Fatal(err)
		}
	}
	if more {
		add("a-new-file", bytes.Repeat([]byte("what the sandbox has just written\n"), 1000))
	}
	stream := snapshottest.NewStream(seed+31, 6<<20)
	for n := range 60 {
		content := make([]byte, 100_000)
		if _, err := stream.ReadAt(content, int64(n)*100_000); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		add(fmt.Sprintf("src/%03d.txt", n), content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A sparse disk image: its holes are saved as zeros that take nothing, and are holes
// again in what is restored.
func TestRealImages_SparseDisk(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	u := r.runner("s")
	path := filepath.Join(t.TempDir(), "disk.img")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	const size = 192 << 20
	written := noise(t, 256<<10)
	for _, at := range []int64{0, 50<<20 + 4096, size - int64(len(written))} {
		if _, err := f.WriteAt(written, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	saved := u.save(path, "--kind", "disk")
	if saved.Size != size || saved.Stored > 2<<20 || saved.Zero < size-2<<20 {
		t.Errorf("save of a sparse disk = %+v, want %d bytes of which nearly all are zero", saved, size)
	}
	back, _ := u.restore(saved.SHA)
	if got, blocks := sizes(t, back); got != size || blocks > 4<<20 {
		t.Errorf("restored disk has %d bytes and takes %d, want %d with holes", got, blocks, size)
	}
	if out, err := exec.Command("cmp", path, back).CombinedOutput(); err != nil {
		t.Errorf("restored disk is another: %s", out)
	}
}

// sizes are a file's length, and the bytes it takes.
func sizes(t testing.TB, path string) (size, blocks int64) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size(), info.Sys().(*syscall.Stat_t).Blocks * 512
}

// While processes below a sandbox keep starting and ending nothing is saved and nothing
// is listed; once they are quiet the save is ready and says so (D-02, CL-15).
func TestD02_CL15_Quiescence(t *testing.T) {
	t.Parallel() // with the others that mostly wait
	g := start(t)
	r, _ := g.seeded()
	u := r.runner("s")
	file := newImageFile(t, memory(41, 2))
	busy := shellTree(t, "while :; do sleep 0.05; done")
	before := g.packBytes()
	u.fails("save", u.saveArgs(file, "--quiesce", fmt.Sprint(busy)), "not_quiescent")
	if list := u.list(); len(list) != 0 || g.packBytes() != before {
		t.Errorf("after not_quiescent there is %+v, and packs have grown by %d", list, g.packBytes()-before)
	}
	quiet := shellTree(t, "sleep 1000 & sleep 1000 & wait")
	got := u.save(file, "--quiesce", fmt.Sprint(quiet))
	if got.State != "ready" {
		t.Errorf("save of a quiet sandbox = %+v, want it ready", got)
	}
	shown := decoded[headgate.Snapshot](t, u.run("show", "--json", got.SHA))
	if !strings.Contains(string(shown.Manifest), `"quiescence":{"before":"`) {
		t.Errorf("manifest = %s, want the proof of quiet in it", shown.Manifest)
	}
}

// shellTree starts a shell and what is below it, and gives its id.
func shellTree(t testing.TB, script string) (pid int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	return cmd.Process.Pid
}
