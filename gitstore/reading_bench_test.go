package gitstore

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

func benchRepo(b *testing.B, files map[string]*blob, changed map[string]*blob) (*gitSource, *Repo, map[int]refpolicy.OID) {
	g := newGitSource(b)
	var h history
	h.commit("refs/heads/main", 1000, nil, files)
	h.commit("refs/heads/main", 2000, []int{1}, changed)
	at := g.put(&h)
	return g, g.store(), at
}

func manyFiles() map[string]*blob {
	files := map[string]*blob{}
	for i := range 2000 {
		files[fmt.Sprintf("dir%d/sub%d/file%d.go", i%20, i%7, i)] = text(lines(i, i+100))
	}
	return files
}

func BenchmarkFile(b *testing.B) {
	_, r, at := benchRepo(b, manyFiles(), map[string]*blob{"dir5/sub5/file5.go": text(strings.Repeat("x", 4096))})
	rev := at[2].String()
	buf := make([]byte, 8192)
	b.Run("resolve", func(b *testing.B) {
		for b.Loop() {
			if _, err := r.Resolve(b.Context(), Caller{}, rev, false); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("find", func(b *testing.B) {
		for b.Loop() {
			if _, err := r.File(b.Context(), at[2], "dir5/sub5/file5.go"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		f, err := r.File(b.Context(), at[2], "dir5/sub5/file5.go")
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			rc, err := f.Open(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			if n, err := rc.Read(buf); n != 4096 {
				b.Fatal(n, err)
			}
			rc.Close()
		}
	})
	b.Run("last change", func(b *testing.B) {
		for b.Loop() {
			if _, err := r.LastChange(b.Context(), at[2], "dir5/sub5/file5.go"); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkDiffFirst compares the first answer to a diff with git diff as a process.
func BenchmarkDiffFirst(b *testing.B) {
	big := map[string]*blob{}
	for name, f := range manyFiles() {
		big[name] = text(strings.ReplaceAll(f.data, "7", "seven"))
	}
	for _, tc := range []struct {
		name    string
		changed map[string]*blob
	}{{"one file", map[string]*blob{"dir5/sub5/file5.go": text("x\n")}}, {"2000 files", big}} {
		g, r, at := benchRepo(b, manyFiles(), tc.changed)
		g.git("repack", "-adq")
		b.Run(tc.name+"/headgate", func(b *testing.B) {
			for b.Loop() {
				r.store.readers.diffs = newLRU[diffKey, *Diff](1 << 20)
				if d, err := r.Diff(b.Context(), DiffRequest{Base: at[1], Head: at[2]}); err != nil || len(d.Files) == 0 {
					b.Fatal(err)
				}
			}
		})
		b.Run(tc.name+"/git", func(b *testing.B) {
			for b.Loop() {
				var out bytes.Buffer
				cmd := g.command("diff", "-b", at[1].String(), at[2].String())
				cmd.Stdout = &out
				if err := cmd.Run(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDiffAgain(b *testing.B) {
	_, r, at := benchRepo(b, manyFiles(), map[string]*blob{"dir5/sub5/file5.go": text("x\n")})
	for b.Loop() {
		if _, err := r.Diff(b.Context(), DiffRequest{Base: at[1], Head: at[2]}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLargeBlob reads 50 MiB: a first time as a stream, again from the cache,
// by git cat-file, and from a plain file.
func BenchmarkLargeBlob(b *testing.B) {
	random := randomBytes(1, 50<<20)
	words := []byte(strings.Repeat(lines(1, 5000), 2<<10))[:50<<20]
	for i := 0; i < len(words); i += 512 {
		copy(words[i:], random[i:i+64])
	}
	for _, tc := range []struct {
		name string
		data []byte
	}{{"random", random}, {"text", words}} {
		g, r, at := benchRepo(b, map[string]*blob{"big": {data: string(tc.data)}}, nil)
		g.git("repack", "-adq")
		f, err := r.File(b.Context(), at[1], "big")
		if err != nil {
			b.Fatal(err)
		}
		read := func(b *testing.B, first bool) {
			b.SetBytes(int64(len(tc.data)))
			for b.Loop() {
				if first {
					r.store.readers.blobs.asked = newLRU[refpolicy.OID, struct{}](askedBlobs)
				}
				rc, err := f.Open(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, struct{ io.Reader }{rc}); n != f.Size {
					b.Fatal(n, err)
				}
				rc.Close()
			}
		}
		b.Run(tc.name+"/first", func(b *testing.B) { read(b, true) })
		b.Run(tc.name+"/again", func(b *testing.B) { read(b, false) })
		b.Run(tc.name+"/git cat-file", func(b *testing.B) {
			b.SetBytes(int64(len(tc.data)))
			for b.Loop() {
				cmd := g.command("cat-file", "blob", f.OID.String())
				out, err := cmd.StdoutPipe()
				if err != nil {
					b.Fatal(err)
				}
				drain(b, cmd, out)
			}
		})
		plain := filepath.Join(b.TempDir(), "plain")
		if err := os.WriteFile(plain, tc.data, 0o600); err != nil {
			b.Fatal(err)
		}
		b.Run(tc.name+"/plain file", func(b *testing.B) {
			b.SetBytes(int64(len(tc.data)))
			for b.Loop() {
				in, err := os.Open(plain)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, struct{ io.Reader }{in}); err != nil {
					b.Fatal(err)
				}
				in.Close()
			}
		})
	}
}

func drain(b *testing.B, cmd *exec.Cmd, out io.Reader) {
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, out); err != nil {
		b.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkLogDeep(b *testing.B) {
	g := newGitSource(b)
	var h history
	for i := range 5000 {
		h.commit("refs/heads/main", 1000+i, map[bool][]int{true: {i}}[i > 0], map[string]*blob{fmt.Sprintf("d%d/f", i%50): text(fmt.Sprint(i)), "first": text("x")})
	}
	at := g.put(&h)
	r := g.store()
	b.Run("last change of an old file", func(b *testing.B) {
		for b.Loop() {
			r.store.readers.changes = newLRU[pathKey, CommitInfo](1 << 20)
			if c, err := r.LastChange(b.Context(), at[5000], "first"); err != nil || c.OID != at[1] {
				b.Fatal(c.OID, err)
			}
		}
	})
	b.Run("git log -1", func(b *testing.B) {
		for b.Loop() {
			g.git("log", "-1", "--format=%H", at[5000].String(), "--", "first")
		}
	})
	b.Run("page of 100", func(b *testing.B) {
		for b.Loop() {
			if _, err := r.Log(b.Context(), Caller{}, at[5000], "", "", 100); err != nil {
				b.Fatal(err)
			}
		}
	})
}
