package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
)

// A repo is one on a measured server, with a token for it.
type repo struct {
	server *process
	name   string
	token  string
}

// newRepo starts a server over a new folder and creates a repo there.
func (w *workshop) newRepo(name string) (*repo, error) {
	server, err := w.headgate(filepath.Join(w.dir, "data-"+name))
	if err != nil {
		return nil, err
	}
	token, err := w.token(name)
	if err != nil {
		return nil, err
	}
	r := &repo{server, name, token}
	return r, r.post("/api/repos", "application/json", bytes.NewReader([]byte("{}")), nil)
}

func (r *repo) bearer() string { return "Bearer " + r.token }

func (r *repo) path(tail string) string { return "/api/repos/" + r.name + tail }

// post makes a request that is not measured; answer may be nil.
func (r *repo) post(path, contentType string, body io.Reader, answer any) error {
	request, err := http.NewRequest(http.MethodPost, "http://"+r.server.address+path, body)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", r.bearer())
	request.Header.Set("Content-Type", contentType)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("POST %s: %s: %.300s", path, response.Status, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// commit writes one file to a branch and gives the commit's id.
func (r *repo) commit(branch, path string, content []byte) (string, error) {
	read, write := io.Pipe()
	go func() { write.CloseWithError(writeStream(write, branch, path, content)) }()
	defer read.Close()
	var answer struct {
		Commit struct {
			SHA string `json:"commit_sha"`
		} `json:"commit"`
	}
	err := r.post(r.path("/commit-pack"), "application/x-ndjson", read, &answer)
	return answer.Commit.SHA, err
}

// chunkBytes is how much of a file stands on a line: a multiple of three, so that
// only the last line is padded.
const chunkBytes = 3 << 20

func writeStream(w io.Writer, branch, path string, content []byte) error {
	if _, err := w.Write(metadataLine(branch, path, "")); err != nil {
		return err
	}
	for first := true; first || len(content) > 0; first = false {
		n := min(len(content), chunkBytes)
		if _, err := w.Write(chunkLine(content[:n], n == len(content))); err != nil {
			return err
		}
		content = content[n:]
	}
	return nil
}

// metadataLine begins a commit of one file; expected is the guard, if any.
func metadataLine(branch, path, expected string) []byte {
	guard := ""
	if expected != "" {
		guard = fmt.Sprintf(`"expected_head_sha":%q,`, expected)
	}
	return fmt.Appendf(nil, `{"metadata":{"target_branch":%q,%s"commit_message":"step","author":{"name":"bench","email":"bench@example.invalid"},`+
		`"files":[{"path":%q,"operation":"upsert","content_id":"1","mode":"100644"}]}}`+"\n", branch, guard, path)
}

func chunkLine(content []byte, last bool) []byte {
	line := []byte(`{"blob_chunk":{"content_id":"1","data":"`)
	line = base64.StdEncoding.AppendEncode(line, content)
	return fmt.Appendf(line, `","eof":%t}}`+"\n", last)
}
