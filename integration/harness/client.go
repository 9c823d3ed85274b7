package harness

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// An Ask is one HTTP request.
type Ask struct {
	Method string // GET unless given
	Path   string // with its query, escaped
	Token  string // sent as Bearer
	Basic  string // sent as the password of Basic
	Header map[string]string
	Body   io.Reader
	JSON   any // the body, if not nil
}

// An Answer is one HTTP response, read to its end.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Do sends a and reads the answer. Redirects are not followed.
func (s *Server) Do(a Ask) (Answer, error) {
	r, err := s.Request(a)
	if err != nil {
		return Answer{}, err
	}
	resp, err := s.Client.Do(r)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return Answer{resp.StatusCode, resp.Header, body}, err
}

// Request is the HTTP request that a stands for.
func (s *Server) Request(a Ask) (*http.Request, error) {
	if a.Method == "" {
		a.Method = http.MethodGet
	}
	if a.JSON != nil {
		body, err := json.Marshal(a.JSON)
		if err != nil {
			return nil, err
		}
		a.Body = bytes.NewReader(body)
	}
	r, err := http.NewRequest(a.Method, s.URL+a.Path, a.Body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", a.Method, a.Path, err)
	}
	if a.Token != "" {
		r.Header.Set("Authorization", "Bearer "+a.Token)
	}
	if a.Basic != "" {
		r.SetBasicAuth("t", a.Basic)
	}
	for name, value := range a.Header {
		r.Header.Set(name, value)
	}
	return r, nil
}

// Get finds a member of the JSON body by names and is nil when it is not there.
func (a Answer) Get(names ...string) any {
	var v any
	if err := json.Unmarshal(a.Body, &v); err != nil {
		return nil
	}
	for _, name := range names {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

// Text is Get for a string.
func (a Answer) Text(names ...string) string {
	s, _ := a.Get(names...).(string)
	return s
}

// List is Get for an array.
func (a Answer) List(names ...string) []any {
	l, _ := a.Get(names...).([]any)
	return l
}

func (a Answer) String() string {
	return fmt.Sprintf("%d %.400s", a.Status, a.Body)
}

// A File is one entry of a commit.
type File struct {
	Path    string
	Content string
	Mode    string // empty: none is sent
	Delete  bool
}

// A Commit is what commit-pack is asked for. Extra goes into the metadata as it is.
type Commit struct {
	Branch    string
	Ephemeral bool
	Base      string
	Expected  string
	Message   string
	Files     []File
	Extra     map[string]any
}

// Metadata is the first line's content.
func (c Commit) Metadata() map[string]any {
	files := make([]map[string]any, len(c.Files))
	for i, f := range c.Files {
		files[i] = map[string]any{"path": f.Path, "operation": "upsert", "content_id": contentID(i)}
		if f.Mode != "" {
			files[i]["mode"] = f.Mode
		}
		if f.Delete {
			files[i]["operation"] = "delete"
		}
	}
	message := c.Message
	if message == "" {
		message = "work"
	}
	m := map[string]any{
		"target_branch": c.Branch, "commit_message": message, "files": files,
		"author": map[string]any{"name": "Ada", "email": "ada@example.com"},
	}
	for name, value := range map[string]string{"base_branch": c.Base, "expected_head_sha": c.Expected} {
		if value != "" {
			m[name] = value
		}
	}
	if c.Ephemeral {
		m["ephemeral"] = true
	}
	for name, value := range c.Extra {
		m[name] = value
	}
	return m
}

func contentID(i int) string { return fmt.Sprintf("c%d", i) }

// Lines is the whole body, one chunk for each file.
func (c Commit) Lines() string {
	var b strings.Builder
	b.WriteString(Line(map[string]any{"metadata": c.Metadata()}))
	for i, f := range c.Files {
		if !f.Delete {
			b.WriteString(Chunk(contentID(i), []byte(f.Content), true))
		}
	}
	return b.String()
}

// Line is v as one line.
func Line(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of strings, numbers and booleans can be encoded
	}
	return string(b) + "\n"
}

// Chunk is one line of a file's bytes.
func Chunk(id string, data []byte, last bool) string {
	return `{"blob_chunk":{"content_id":"` + id + `","data":"` + base64.StdEncoding.EncodeToString(data) +
		`","eof":` + fmt.Sprint(last) + "}}\n"
}
