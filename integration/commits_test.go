package integration

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/headgate/headgate/integration/harness"
)

const chunkSize = 4 << 20

// blobID is the id that git gives to a file with these bytes.
func blobID(content []byte) string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", len(content))
	h.Write(content)
	return fmt.Sprintf("%x", h.Sum(nil))
}

// stream is a commit-pack body with one file, made as it is read.
func stream(c harness.Commit, path string, content io.Reader) io.Reader {
	c.Files = append([]harness.File{{Path: path}}, c.Files...)
	read, w := io.Pipe()
	go func() {
		_, err := io.WriteString(w, harness.Line(map[string]any{"metadata": c.Metadata()}))
		buf := make([]byte, chunkSize)
		for err == nil {
			var n int
			n, err = io.ReadFull(content, buf)
			if last := err == io.EOF || err == io.ErrUnexpectedEOF; last {
				_, werr := io.WriteString(w, harness.Chunk("c0", buf[:n], true))
				w.CloseWithError(werr)
				return
			}
			if err == nil {
				_, err = io.WriteString(w, harness.Chunk("c0", buf[:n], false))
			}
		}
		w.CloseWithError(err)
	}()
	return read
}

// commitLarge commits one file that is streamed in chunks and gives the commit.
func (r *repo) commitLarge(branch, path, expected string, content io.Reader) string {
	r.g.t.Helper()
	a := r.g.do(harness.Ask{
		Method: "POST", Path: r.path("/commit-pack"), Token: r.write,
		Body: stream(harness.Commit{Branch: branch, Expected: expected}, path, content),
	})
	if a.Status != 201 {
		r.g.t.Fatalf("commit-pack of a large file = %s, want 201", a)
	}
	return a.Text("commit", "commit_sha")
}

// lines builds a body by hand: metadata for these files, then the given lines.
func lines(files []map[string]any, chunks ...string) string {
	m := harness.Commit{Branch: "main"}.Metadata()
	m["files"] = files
	return harness.Line(map[string]any{"metadata": m}) + strings.Join(chunks, "")
}

func upsert(path, id string) map[string]any { return map[string]any{"path": path, "content_id": id} }

func TestCase4_1_Chunks(t *testing.T) {
	g := start(t)
	for _, tc := range []struct {
		name   string
		files  []map[string]any
		chunks []string
		want   map[string]string
	}{
		{"sizes 1 to 4", []map[string]any{upsert("f", "1")}, []string{
			harness.Chunk("1", []byte("0"), false), harness.Chunk("1", []byte("12"), false), harness.Chunk("1", []byte("345"), false), harness.Chunk("1", []byte("6789"), true),
		}, map[string]string{"f": "0123456789"}},
		{"interleaved", []map[string]any{upsert("a", "1"), upsert("b", "2")}, []string{
			harness.Chunk("1", []byte("a1"), false), harness.Chunk("2", []byte("b1"), false), harness.Chunk("1", []byte("a2"), true), harness.Chunk("2", []byte("b2"), true),
		}, map[string]string{"a": "a1a2", "b": "b1b2"}},
		{"empty file", []map[string]any{upsert("e", "1")}, []string{harness.Chunk("1", nil, true)}, map[string]string{"e": ""}},
		{"end in an empty chunk", []map[string]any{upsert("f", "1")}, []string{harness.Chunk("1", []byte("abc"), false), harness.Chunk("1", nil, true)}, map[string]string{"f": "abc"}},
		{"CRLF and blank lines", []map[string]any{upsert("f", "1")}, []string{"\n\r\n", strings.ReplaceAll(harness.Chunk("1", []byte("abc"), true), "\n", "\r\n"), "\n"}, map[string]string{"f": "abc"}},
		{"empty chunk for a delete", []map[string]any{upsert("f", "1"), {"path": "g", "operation": "delete", "content_id": "2"}}, []string{harness.Chunk("1", []byte("abc"), true), harness.Chunk("2", nil, true)}, map[string]string{"f": "abc"}},
	} {
		r := g.repo()
		a := g.do(r.packAsk(lines(tc.files, tc.chunks...), r.write))
		if a.Status != 201 {
			t.Errorf("%s: commit-pack = %s, want 201", tc.name, a)
			continue
		}
		for path, content := range tc.want {
			if f := r.file("main", path); string(f.Body) != content || f.Header.Get("X-Blob-Sha") != blobID([]byte(content)) {
				t.Errorf("%s: file %s = %s, blob %s; want %q", tc.name, path, f, f.Header.Get("X-Blob-Sha"), content)
			}
		}
	}
	if blobID(nil) != "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391" {
		t.Error("the empty blob has another id")
	}
}

// Whatever is wrong with a stream, nothing of it is kept.
func TestCase4_BadStreams(t *testing.T) {
	g := start(t)
	r, head := g.seeded()
	ok := []map[string]any{upsert("f", "1")}
	whole := harness.Chunk("1", []byte("x"), true)
	for _, tc := range []struct {
		name, body string
		status     int
	}{
		{"empty body", "", 400},
		{"not JSON", "hello\n", 400},
		{"chunk first", whole, 400},
		{"no end", lines(ok, harness.Chunk("1", []byte("x"), false)), 400},
		{"no chunk", lines(ok), 400},
		{"unknown id", lines(ok, whole, harness.Chunk("9", []byte("x"), true)), 400},
		{"chunk after the end", lines(ok, whole, whole), 400},
		{"data for a delete", lines([]map[string]any{{"path": "README.md", "operation": "delete", "content_id": "1"}}, whole), 400},
		{"an id twice", lines([]map[string]any{upsert("a", "1"), upsert("b", "1")}, whole), 400},
		{"metadata twice", lines(ok) + lines(ok, whole), 400},
		{"base64 without padding", lines(ok, `{"blob_chunk":{"content_id":"1","data":"YQ","eof":true}}`+"\n"), 400},
		{"base64 of another alphabet", lines(ok, `{"blob_chunk":{"content_id":"1","data":"__8=","eof":true}}`+"\n"), 400},
		{"unknown operation", lines([]map[string]any{{"path": "f", "operation": "rename", "content_id": "1"}}, whole), 400},
		{"chunk over 4 MiB", lines(ok, harness.Chunk("1", make([]byte, chunkSize+1), true)), 413},
		{"array for metadata", `{"metadata":[]}` + "\n", 400},
		{"no author", `{"metadata":{"target_branch":"main","commit_message":"m","files":[]}}` + "\n", 400},
		{"line feed in a name", `{"metadata":{"target_branch":"main","commit_message":"m","author":{"name":"a\nb","email":"e"},"files":[]}}` + "\n", 400},
		{"empty message", strings.Replace(lines(ok, whole), `"work"`, `"  "`, 1), 400},
	} {
		a := g.do(r.packAsk(tc.body, r.write))
		if a.Status != tc.status || a.Text("error") == "" || a.Text("result", "status") == "" {
			t.Errorf("%s: commit-pack = %s, want %d with error and result.status", tc.name, a, tc.status)
		}
		if got := r.head("main", false); got != head {
			t.Fatalf("%s: main moved to %s", tc.name, got)
		}
	}
}

func TestCase4_2_FileAndFolderInTheWay(t *testing.T) {
	g := start(t)
	r, head := g.seeded(harness.File{Path: "a", Content: "x"}, harness.File{Path: "d/x", Content: "x"})
	for _, path := range []string{"a/b", "d"} {
		a := r.tryCommit(harness.Commit{Branch: "main", Files: []harness.File{{Path: path, Content: "y"}}})
		if a.Status != 400 || a.Text("result", "status") != "invalid" {
			t.Errorf("upsert %s = %s, want 400 invalid", path, a)
		}
	}
	sha := r.commit(harness.Commit{Branch: "main", Expected: head, Files: []harness.File{{Path: "a", Delete: true}, {Path: "a/b", Content: "y"}, {Path: "d", Delete: true}, {Path: "d", Content: "z"}}})
	r.wantFile(sha, "a/b", "y")
	r.wantFile(sha, "d", "z")
}

func TestCase4_3_DeletingEverything(t *testing.T) {
	g := start(t)
	r, _ := g.seeded(harness.File{Path: "d/only", Content: "x"}, harness.File{Path: "f", Content: "y"})
	r.commit(harness.Commit{Branch: "main", Files: []harness.File{{Path: "d/only", Delete: true}}})
	if a := r.get("/files"); fmt.Sprint(a.List("paths")) != "[f]" || len(a.List("entries")) != 1 {
		t.Errorf("files = %s, want f alone", a)
	}
	a := r.tryCommit(harness.Commit{Branch: "main", Files: []harness.File{{Path: "f", Delete: true}}})
	if a.Text("commit", "tree_sha") != "4b825dc642cb6eb9a060e54bf8d69288fbee4904" {
		t.Errorf("commit without files = %s, want the empty tree", a)
	}
	for name, files := range map[string][]harness.File{"no files": nil, "a missing path": {{Path: "nope", Delete: true}}} {
		if a := r.tryCommit(harness.Commit{Branch: "main", Files: files}); a.Status != 412 || a.Text("result", "status") != "precondition_failed" || a.Text("code") != "no_changes" {
			t.Errorf("commit of %s = %s, want 412 no_changes", name, a)
		}
	}
	if a := r.get("/files"); a.Status != 200 || len(a.List("entries")) != 0 {
		t.Errorf("files of an empty tree = %s, want 200 and none", a)
	}
}

func TestCase4_4_DeleteOfSomethingAbsent(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	sha := r.commit(harness.Commit{Branch: "main", Files: []harness.File{{Path: "nope", Delete: true}, {Path: "ok", Content: "ok"}}})
	r.wantFile(sha, "ok", "ok")
}

func TestCase4_5_Modes(t *testing.T) {
	g := start(t)
	r, _ := g.seeded(harness.File{Path: "run", Content: "1", Mode: "100755"}, harness.File{Path: "link", Content: "target.txt", Mode: "120000"},
		harness.File{Path: "sub", Content: strings.Repeat("ab", 20), Mode: "160000"}, harness.File{Path: "plain", Content: "p"})
	r.commit(harness.Commit{Branch: "main", Files: []harness.File{{Path: "run", Content: "2"}}})
	clone := r.clone(r.remote(r.read))
	want := "100644 plain\n100755 run\n120000 link\n160000 sub"
	var got []string
	for line := range strings.Lines(g.run(clone, "ls-tree", "HEAD")) {
		fields := strings.Fields(line)
		got = append(got, fields[0]+" "+fields[3])
	}
	for _, entry := range strings.Split(want, "\n") {
		if !strings.Contains(strings.Join(got, "\n"), entry) {
			t.Errorf("git ls-tree = %q, want %q in it", got, entry)
		}
	}
	head := r.head("main", false)
	for _, f := range []harness.File{
		{Path: "f", Content: "x", Mode: "777"}, {Path: "f", Content: "x", Mode: "040000"}, {Path: "f", Content: "x", Mode: "100664"},
		{Path: "f", Content: strings.Repeat("x", 5000), Mode: "120000"}, {Path: "f", Content: "a\x00b", Mode: "120000"}, {Path: "f", Content: "no hex", Mode: "160000"},
	} {
		if a := r.tryCommit(harness.Commit{Branch: "main", Files: []harness.File{f}}); a.Status != 400 {
			t.Errorf("upsert with mode %s and %d bytes = %s, want 400", f.Mode, len(f.Content), a)
		}
	}
	if got := r.head("main", false); got != head {
		t.Errorf("refused modes moved main to %s", got)
	}
}

// Bytes go in and out as they are, past attributes and line ends (PI-14).
func TestCase4_6_And4_7_BytesAreKept(t *testing.T) {
	g := start(t)
	odd := "a\r\nb\n\x00\xff\xfe\xc3\x28"
	lfs := "version https://git-lfs.github.com/spec/v1\noid sha256:" + strings.Repeat("ab", 32) + "\nsize 12345\n"
	r, sha := g.seeded(harness.File{Path: ".gitattributes", Content: "* text=auto eol=lf\n"}, harness.File{Path: "odd", Content: odd},
		harness.File{Path: "lfs", Content: lfs}, harness.File{Path: "lfs-crlf", Content: strings.ReplaceAll(lfs, "\n", "\r\n")})
	for path, content := range map[string]string{"odd": odd, "lfs": lfs, "lfs-crlf": strings.ReplaceAll(lfs, "\n", "\r\n")} {
		r.wantFile(sha, path, content)
		if f := r.file(sha, path); f.Header.Get("ETag") != `"`+blobID([]byte(content))+`"` || f.Header.Get("Content-Length") != fmt.Sprint(len(content)) {
			t.Errorf("file %s: ETag %s, length %s; want the blob's", path, f.Header.Get("ETag"), f.Header.Get("Content-Length"))
		}
	}
	clone := r.mirror(r.remote(r.read))
	out := g.git.Run(clone, nil, "cat-file", "blob", "HEAD:odd")
	sameBytes(t, "git cat-file of odd", []byte(out.Stdout), []byte(odd))
}

func TestCase2_6_Guards(t *testing.T) {
	g := start(t)
	r, first := g.seeded()
	second := r.commit(harness.Commit{Branch: "main", Expected: first, Files: []harness.File{{Path: "n", Content: "2"}}})
	for _, tc := range []struct {
		name   string
		commit harness.Commit
		status int
		label  string
	}{
		{"an older commit", harness.Commit{Branch: "main", Expected: first}, 409, "precondition_failed"},
		{"zeros", harness.Commit{Branch: "main", Expected: zeros}, 409, "precondition_failed"},
		{"an unknown commit", harness.Commit{Branch: "main", Expected: strings.Repeat("12", 20)}, 409, "precondition_failed"},
		{"a new branch, base at another commit", harness.Commit{Branch: "new", Base: "main", Expected: first}, 409, "precondition_failed"},
		{"a new branch without a base", harness.Commit{Branch: "new"}, 404, "not_found"},
		{"a base that is missing", harness.Commit{Branch: "new", Base: "nope"}, 404, "not_found"},
		{"a new branch, a guard, no base", harness.Commit{Branch: "new", Expected: first}, 409, "precondition_failed"},
	} {
		tc.commit.Files = []harness.File{{Path: "x", Content: tc.name}}
		if a := r.tryCommit(tc.commit); a.Status != tc.status || a.Text("result", "status") != tc.label || a.Get("commit") != nil {
			t.Errorf("%s: commit-pack = %s, want %d %s", tc.name, a, tc.status, tc.label)
		}
	}
	if head := r.head("main", false); head != second || r.head("new", false) != "" {
		t.Fatalf("refused guards left main at %s and new at %s", head, r.head("new", false))
	}
	made := r.tryCommit(harness.Commit{Branch: "new", Base: "main", Expected: second, Files: []harness.File{{Path: "x", Content: "x"}}})
	if made.Status != 201 || made.Text("result", "old_sha") != zeros {
		t.Errorf("new branch from main = %s, want 201 and the old value zeros", made)
	}
	// A preview: an ephemeral branch that begins on an ordinary one.
	if a := r.tryCommit(harness.Commit{Branch: "preview", Ephemeral: true, Base: "main", Files: []harness.File{{Path: "x", Content: "x"}}}); a.Status != 201 {
		t.Errorf("ephemeral branch from main = %s, want 201", a)
	}
	// OQ-K8: a guard that is no id is a revision; an id is in lower case.
	for expected, status := range map[string]int{first[:7]: 409, strings.ToUpper(second): 400, "none": 400} {
		a := r.tryCommit(harness.Commit{Branch: "main", Expected: expected, Files: []harness.File{{Path: "k8", Content: expected}}})
		if a.Status != status || r.head("main", false) != second {
			t.Errorf("guard %q = %s, want %d and main where it was", expected, a, status)
		}
	}
	at := second
	for _, form := range []func(string) string{func(oid string) string { return oid[:7] }, func(string) string { return "main" }} {
		a := r.tryCommit(harness.Commit{Branch: "main", Expected: form(at), Files: []harness.File{{Path: "k8", Content: at}}})
		if a.Status != 201 {
			t.Errorf("guard %q on main at %s = %s, want 201", form(at), at, a)
		}
		at = r.head("main", false)
	}
}

func TestA07_ChunksAndCutStreams(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	over := lines([]map[string]any{upsert("f", "1")}, harness.Chunk("1", bytes.Repeat([]byte("x"), chunkSize+1), true))
	if a := g.do(r.packAsk(over, r.write)); a.Status != 413 || a.Text("code") != "payload_too_large" || a.Text("result", "status") != "payload_too_large" {
		t.Errorf("chunk of 4 MiB and a byte = %s, want 413 payload_too_large", a)
	}
	full := lines([]map[string]any{upsert("f", "1")}, harness.Chunk("1", bytes.Repeat([]byte("x"), chunkSize), true))
	if a := g.do(r.packAsk(full, r.write)); a.Status != 201 {
		t.Errorf("chunk of 4 MiB = %s, want 201", a)
	}
	head := r.head("main", false)
	for _, n := range []int{0, 1, 100, 5000, 6 << 20} {
		ask := r.packAsk("", r.write)
		half := lines([]map[string]any{upsert("big", "1")}, harness.Chunk("1", bytes.Repeat([]byte("y"), chunkSize), false), harness.Chunk("1", bytes.Repeat([]byte("y"), chunkSize), true))
		ask.Body = io.MultiReader(strings.NewReader(half[:n]), cutReader{})
		if a, err := g.Do(ask); err == nil && a.Status < 400 {
			t.Errorf("commit cut after %d bytes = %s, want no success", n, a)
		}
		if got := r.head("main", false); got != head {
			t.Fatalf("commit cut after %d bytes moved main to %s", n, got)
		}
	}
}

// A cutReader fails, and with it the connection of the request that reads it.
type cutReader struct{}

func (cutReader) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }

// Both route sets and both vocabularies do the same.
func TestPI10_BothRoutesAndVocabularies(t *testing.T) {
	g := start(t)
	r, head := g.seeded()
	for i, route := range []string{"/api/v1/repos", r.path("")} {
		for j, names := range [][2]string{{"expected_head_sha", "ephemeral"}, {"expected_target_sha", "target_is_ephemeral"}} {
			m := harness.Commit{Branch: "main"}.Metadata()
			m["files"] = []map[string]any{upsert("f", "1")}
			m[names[0]], m[names[1]] = head, false
			body := harness.Line(map[string]any{"metadata": m}) + harness.Chunk("1", fmt.Appendf(nil, "%d%d", i, j), true)
			a := g.want(201, harness.Ask{Method: "POST", Path: route + "/commit-pack", Token: r.write, Body: strings.NewReader(body)})
			if a.Text("result", "branch") != "main" || a.Text("result", "target_branch") != "main" {
				t.Errorf("commit-pack by %s = %s, want both names of the branch", route, a)
			}
			head = a.Text("commit", "commit_sha")
		}
	}
	r.wantFile(head, "f", "11")
}
