package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
)

const (
	readers    = 16
	smallBytes = 4 << 10
)

// fileRows measures the reading of files by pointer: commit and path.
func fileRows(ctx context.Context, w *workshop) ([]row, error) {
	r, err := w.newRepo("files")
	if err != nil {
		return nil, err
	}
	noisy := fmt.Sprintf("file by pointer, %s, incompressible", sizeText(w.fileSize))
	again := fmt.Sprintf("file by pointer, %s, compressible, asked again", sizeText(w.fileSize))
	makers := []struct {
		name string
		make func(name string) (row, error)
	}{
		{"file-small", func(name string) (row, error) { return smallFileRow(w, r, name) }},
		{"file-large-noise", func(name string) (row, error) { return largeFileRow(w, r, name, noisy, noise(1, w.fileSize)) }},
		{"file-large-again", func(name string) (row, error) { return largeFileRow(w, r, name, again, states(1, w.fileSize)) }},
		{"file-large-first", func(name string) (row, error) { return firstTimeRow(ctx, w, r, name) }},
	}
	var rows []row
	for _, m := range makers {
		if !w.wants(m.name) { // large files take their time to make
			continue
		}
		made, err := m.make(m.name)
		if err != nil {
			return nil, err
		}
		rows = append(rows, made)
	}
	return rows, nil
}

func sizeText(bytes int) string { return fmt.Sprintf("%d MiB", bytes>>20) }

// get is the request for a file at a commit.
func (r *repo) get(commit, path string) []byte {
	return message("GET", r.path("/file?ref="+commit+"&path="+path), r.bearer(), "", nil)
}

// gets has clients ask for the same thing again and again; each answer must hold size
// bytes, if size is not negative.
func (w *workshop) gets(conns []*conn, request []byte, size int) side {
	step := func(client int) error {
		n, err := conns[client].skim(request, http.StatusOK)
		if err == nil && size >= 0 && n != int64(size) {
			err = fmt.Errorf("answer of %d bytes, want %d", n, size)
		}
		return err
	}
	return func(ctx context.Context, _ int) (float64, error) {
		return w.rate(ctx, len(conns), step)
	}
}

// smallFileRow asks for a warm small file beside the route that does nothing: it
// goes through the same http.Server, exchange, log line, metrics and router, but
// asks for no token.
func smallFileRow(w *workshop, r *repo, name string) (row, error) {
	const path = "notes/state.json"
	commit, err := r.commit("main", path, states(1, smallBytes))
	if err != nil {
		return row{}, err
	}
	conns := w.connectAll(r.server.address, readers)
	return row{
		name: name, work: "file by pointer, 4 KiB, warm, 16 clients", reference: "empty handler behind the same middleware (/healthz)", goal: 0.5, figure: perSecond,
		ours:   w.gets(conns, r.get(commit, path), smallBytes),
		theirs: w.gets(conns, message("GET", "/healthz", "", "", nil), -1),
	}, nil
}

// largeFileRow asks for a large file that was asked for before, beside
// http.ServeContent of the same bytes.
func largeFileRow(w *workshop, r *repo, name, work string, content []byte) (row, error) {
	commit, err := r.commit("main", name, content)
	if err != nil {
		return row{}, err
	}
	plain := filepath.Join(w.dir, name)
	if err := os.WriteFile(plain, content, 0o600); err != nil {
		return row{}, err
	}
	floor, err := w.start("floor", "file", plain)
	if err != nil {
		return row{}, err
	}
	ours, theirs := w.connectAll(r.server.address, 1), w.connectAll(floor.address, 1)
	request := r.get(commit, name)
	for range 3 { // asked again means: asked before
		if _, err := ours[0].skim(request, http.StatusOK); err != nil {
			return row{}, err
		}
	}
	return row{
		name: name, work: work, reference: "http.ServeContent", goal: 0.5, figure: megabytes(len(content)),
		ours:   w.gets(ours, request, len(content)),
		theirs: w.gets(theirs, message("GET", "/", "", "", nil), len(content)),
	}, nil
}

// firstTimeRow asks for a compressible large file nobody asked for before, another
// one in each repetition, beside git cat-file from a pack.
func firstTimeRow(ctx context.Context, w *workshop, r *repo, name string) (row, error) {
	dir := filepath.Join(w.dir, "files.git")
	if _, err := git(ctx, "", nil, "init", "-q", "--bare", dir); err != nil {
		return row{}, err
	}
	commits := make([]string, w.reps)
	for rep := range commits {
		content := states(uint64(100+rep), w.fileSize)
		var err error
		if commits[rep], err = r.commit("main", firstTimePath(rep), content); err != nil {
			return row{}, err
		}
		if err := importFile(ctx, dir, firstTimePath(rep), content); err != nil {
			return row{}, err
		}
	}
	conn := w.connect(r.server.address)
	return row{
		name: name, work: fmt.Sprintf("file by pointer, %s, compressible, first time", sizeText(w.fileSize)), reference: "git cat-file", goal: 0.9, figure: megabytes(w.fileSize),
		ours: func(_ context.Context, rep int) (float64, error) {
			return timed(1, func(int) error {
				n, err := conn.skim(r.get(commits[rep], firstTimePath(rep)), http.StatusOK)
				if err == nil && n != int64(w.fileSize) {
					err = fmt.Errorf("answer of %d bytes, want %d", n, w.fileSize)
				}
				return err
			})
		},
		theirs: func(ctx context.Context, rep int) (float64, error) {
			return timed(1, func(int) error { return gitSkim(ctx, dir, "cat-file", "blob", firstTimePath(rep)+":file") })
		},
	}, nil
}

func firstTimePath(rep int) string { return fmt.Sprintf("first-%d", rep) }

// importFile packs a file as a branch of its own.
func importFile(ctx context.Context, dir, branch string, content []byte) error {
	var in bytes.Buffer
	fmt.Fprintf(&in, "commit refs/heads/%s\ncommitter bench <bench@example.invalid> 1700000000 +0000\ndata 4\nstep\nM 100644 inline file\ndata %d\n", branch, len(content))
	in.Write(content)
	in.WriteString("\n")
	_, err := git(ctx, dir, &in, "-c", "fastimport.unpackLimit=0", "fast-import", "--quiet")
	return err
}
