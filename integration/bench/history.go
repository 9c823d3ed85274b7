package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// A history is shaped like that of a project under work: source files edited in a
// few places, binaries replaced, all of it the same in every run. Branches c/1 to
// c/60 stand one to sixty commits behind main, so that each repetition can ask for
// something that nobody asked for before.
type history struct {
	r     *rand.Rand
	texts [][]string // files, lines
}

const (
	historyTexts    = 1500
	historyBinaries = 60
	historyBranches = 60
)

// fixture gives the bare repository of the history, made once and kept.
func (w *workshop) fixture(ctx context.Context) (string, error) {
	dir := filepath.Join(w.fixtures, fmt.Sprintf("history-%d.git", w.depth))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(w.fixtures, 0o755); err != nil {
		return "", err
	}
	making, err := os.MkdirTemp(w.fixtures, "making-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(making)
	if err := makeHistory(ctx, making, w.depth); err != nil {
		return "", fmt.Errorf("make history: %w", err)
	}
	return dir, os.Rename(making, dir)
}

func makeHistory(ctx context.Context, dir string, commits int) error {
	if _, err := git(ctx, "", nil, "init", "-q", "--bare", "--initial-branch=main", dir); err != nil {
		return err
	}
	in, out := io.Pipe()
	go func() {
		b := bufio.NewWriterSize(out, 1<<20)
		h := &history{r: rand.New(rand.NewPCG(5, 6))}
		h.write(b, commits)
		out.CloseWithError(b.Flush())
	}()
	if _, err := git(ctx, dir, in, "-c", "fastimport.unpackLimit=0", "fast-import", "--quiet"); err != nil {
		return err
	}
	// Noise has no deltas, and looking for them takes minutes.
	attributes := filepath.Join(dir, "info", "attributes")
	err := errors.Join(os.MkdirAll(filepath.Dir(attributes), 0o755), os.WriteFile(attributes, []byte("*.bin -delta\n"), 0o644))
	if err != nil {
		return err
	}
	_, err = git(ctx, dir, nil, "repack", "-adfq", "--depth=50", "--window=10")
	return err
}

// write gives the stream that git fast-import reads. A bufio.Writer keeps its error.
func (h *history) write(w *bufio.Writer, commits int) {
	for i := range commits {
		message := fmt.Sprintf("step %d\n", i)
		fmt.Fprintf(w, "commit refs/heads/main\nmark :%d\ncommitter bench <bench@example.invalid> %d +0000\ndata %d\n%s", i+1, 1_700_000_000+i*3600, len(message), message)
		if i == 0 {
			h.begin(w)
			continue
		}
		seen := map[int]bool{}
		for n := 1 + h.r.IntN(7); n > 0; n-- {
			if k := h.r.IntN(historyTexts); !seen[k] {
				seen[k] = true
				h.edit(k)
				h.writeText(w, k)
			}
		}
		if i%4 == 1 {
			h.writeBinary(w, h.r.IntN(historyBinaries))
		}
	}
	for k := 1; k <= historyBranches && k < commits; k++ {
		fmt.Fprintf(w, "reset refs/heads/c/%d\nfrom :%d\n\n", k, commits-k)
	}
}

func (h *history) begin(w *bufio.Writer) {
	for k := range historyTexts {
		lines := make([]string, 20+h.r.IntN(400))
		for n := range lines {
			lines[n] = h.line()
		}
		h.texts = append(h.texts, lines)
		h.writeText(w, k)
	}
	for k := range historyBinaries {
		h.writeBinary(w, k)
	}
}

func (h *history) line() string {
	var b strings.Builder
	b.WriteString(strings.Repeat("\t", h.r.IntN(4)))
	for n := 2 + h.r.IntN(8); n > 0; n-- {
		b.WriteString(word(h.r))
		b.WriteString([]string{" ", "(", ") ", " := ", ", ", ".", "[i] "}[h.r.IntN(7)])
	}
	if h.r.IntN(8) == 0 {
		fmt.Fprintf(&b, "%x", h.r.Uint32())
	}
	return b.String() + "\n"
}

// edit replaces, inserts and deletes lines in one to three places.
func (h *history) edit(k int) {
	for n := 1 + h.r.IntN(3); n > 0; n-- {
		f := h.texts[k]
		at, size := h.r.IntN(len(f)), 1+h.r.IntN(12)
		end := min(len(f), at+h.r.IntN(size+1))
		edited := append([]string{}, f[:at]...)
		for range size {
			edited = append(edited, h.line())
		}
		h.texts[k] = append(edited, f[end:]...)
	}
}

func (h *history) writeText(w *bufio.Writer, k int) {
	text := strings.Join(h.texts[k], "")
	fmt.Fprintf(w, "M 100644 inline src/%s/part%d/file%04d.go\ndata %d\n%s\n", words[k%len(words)], k%10, k, len(text), text)
}

func (h *history) writeBinary(w *bufio.Writer, slot int) {
	data := noise(h.r.Uint64(), 60_000+h.r.IntN(430_000))
	fmt.Fprintf(w, "M 100644 inline assets/image%02d.bin\ndata %d\n", slot, len(data))
	w.Write(data)
	w.WriteByte('\n')
}

// newHistoryRepo starts a server with the fixture in a repo, pushed as anybody
// would and settled.
func (w *workshop) newHistoryRepo(ctx context.Context, name, fixture string) (*repo, error) {
	r, err := w.newRepo(name)
	if err != nil {
		return nil, err
	}
	if _, err := git(ctx, fixture, nil, "-c", "http.postBuffer=1048576", "push", "-q", r.remote(), "refs/heads/*:refs/heads/*"); err != nil {
		return nil, err
	}
	r.server.stop() // ending settles
	r.server, err = w.headgate(filepath.Join(w.dir, "data-"+name))
	return r, err
}

// remote is the repo's address for git, the token in it.
func (r *repo) remote() string {
	return fmt.Sprintf("http://t:%s@%s/%s.git", r.token, r.server.address, r.name)
}

// commitsOf lists main, newest first.
func commitsOf(ctx context.Context, dir string) ([]string, error) {
	out, err := git(ctx, dir, nil, "rev-list", "main")
	return strings.Fields(out), err
}

// rootTree is the raw tree of main's head.
func rootTree(ctx context.Context, dir string) ([]byte, error) {
	cmd := gitCommand(ctx, dir, nil, "cat-file", "tree", "main^{tree}")
	var said bytes.Buffer
	cmd.Stderr = &said
	tree, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git cat-file: %w: %s", err, said.Bytes())
	}
	return tree, nil
}
