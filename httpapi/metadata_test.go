package httpapi

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/gitstore"
)

// metadataLine is a good first line with members put in place of its own or added;
// a nil takes one away.
func metadataLine(t testing.TB, change meta) []byte {
	t.Helper()
	m := meta{
		"target_branch": "main", "commit_message": "state",
		"author": meta{"name": "Build Bot", "email": "bot@example.org"},
		"files":  []meta{{"path": "a", "content_id": "c0"}},
	}
	for k, v := range change {
		if m[k] = v; v == nil {
			delete(m, k)
		}
	}
	line, err := json.Marshal(meta{"metadata": m})
	if err != nil {
		t.Fatal(err)
	}
	return line
}

func specOf(t testing.TB, change meta) (gitstore.CommitSpec, error) {
	t.Helper()
	m, err := parseMetadata(metadataLine(t, change), 1000)
	if err != nil {
		return gitstore.CommitSpec{}, err
	}
	return m.spec()
}

func TestMetadataSpec(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change meta
		got    func(gitstore.CommitSpec) any
		want   any
	}{
		{"target", nil, func(s gitstore.CommitSpec) any { return s.Target }, "refs/heads/main"},
		{"full target", meta{"target_branch": "refs/heads/x"}, func(s gitstore.CommitSpec) any { return s.Target }, "refs/heads/x"},
		{"old ephemeral", meta{"ephemeral": true}, func(s gitstore.CommitSpec) any { return s.Target }, "refs/namespaces/ephemeral/refs/heads/main"},
		{"new ephemeral", meta{"target_is_ephemeral": true}, func(s gitstore.CommitSpec) any { return s.Target }, "refs/namespaces/ephemeral/refs/heads/main"},
		{"the new name wins", meta{"ephemeral": true, "target_is_ephemeral": false}, func(s gitstore.CommitSpec) any { return s.Target }, "refs/heads/main"},
		{"base", meta{"base_branch": "b"}, func(s gitstore.CommitSpec) any { return s.Base }, "refs/heads/b"},
		{"old base flag", meta{"base_branch": "b", "ephemeral_base": true}, func(s gitstore.CommitSpec) any { return s.Base }, "refs/namespaces/ephemeral/refs/heads/b"},
		{"new base flag", meta{"base_branch": "b", "base_is_ephemeral": true}, func(s gitstore.CommitSpec) any { return s.Base }, "refs/namespaces/ephemeral/refs/heads/b"},
		{"false without base", meta{"base_is_ephemeral": false}, func(s gitstore.CommitSpec) any { return s.Base }, ""},
		{"old guard", meta{"expected_head_sha": "x"}, func(s gitstore.CommitSpec) any { return s.Expected }, "x"},
		{"new guard", meta{"expected_head_sha": "x", "expected_target_sha": "y"}, func(s gitstore.CommitSpec) any { return s.Expected }, "y"},
		{"empty new guard", meta{"expected_head_sha": "x", "expected_target_sha": ""}, func(s gitstore.CommitSpec) any { return s.Expected }, "x"},
		{"author", meta{"author": meta{"name": " A ", "email": " e "}}, func(s gitstore.CommitSpec) any { return s.Author.Name + "|" + s.Author.Email }, "A|e"},
		{"no committer", nil, func(s gitstore.CommitSpec) any { return s.Committer == gitstore.Signature{} }, "true"},
		{"date", meta{"author": meta{"name": "a", "email": "e", "date": "2026-02-03T10:12:45.7+01:00"}}, func(s gitstore.CommitSpec) any { return s.Author.When.Format(time.RFC3339Nano) }, "2026-02-03T10:12:45+01:00"},
		{"timestamp", meta{"author": meta{"name": "a", "email": "e", "timestamp": 86400}}, func(s gitstore.CommitSpec) any { return s.Author.When.Format(time.RFC3339Nano) }, "1970-01-02T00:00:00Z"},
		{"one slash", meta{"files": []meta{{"path": "/a", "content_id": "c"}}}, func(s gitstore.CommitSpec) any { return s.Files[0].Path }, "a"},
		{"no files", meta{"files": nil}, func(s gitstore.CommitSpec) any { return len(s.Files) }, "0"},
		{"modes", meta{"files": []meta{{"path": "a", "content_id": "1"}, {"path": "b", "content_id": "2", "mode": "100755"}, {"path": "c", "operation": "delete"}}},
			func(s gitstore.CommitSpec) any {
				return fmt.Sprintf("%o %o %v", s.Files[0].Mode, s.Files[1].Mode, s.Files[2].Delete)
			}, "0 100755 true"},
	} {
		s, err := specOf(t, tc.change)
		if err != nil || fmt.Sprint(tc.got(s)) != tc.want {
			t.Errorf("%s: spec of %v = %v, %v; want %v", tc.name, tc.change, tc.got(s), err, tc.want)
		}
	}
}

func TestMetadataRefuses(t *testing.T) {
	author := func(m meta) meta { return meta{"author": m} }
	entry := func(m meta) meta { return meta{"files": []meta{m}} }
	for name, change := range map[string]meta{
		"no target":           {"target_branch": nil},
		"empty target":        {"target_branch": ""},
		"a tag":               {"target_branch": "refs/tags/x"},
		"stored name":         {"target_branch": "refs/namespaces/ephemeral/refs/heads/x"},
		"no message":          {"commit_message": nil},
		"blank message":       {"commit_message": " \n"},
		"no author":           {"author": nil},
		"no name":             author(meta{"email": "e"}),
		"blank email":         author(meta{"name": "a", "email": " "}),
		"line feed":           author(meta{"name": "a\nb", "email": "e"}),
		"angle bracket":       author(meta{"name": "a", "email": "<e>"}),
		"bad date":            author(meta{"name": "a", "email": "e", "date": "today"}),
		"bad timestamp":       author(meta{"name": "a", "email": "e", "timestamp": 1.5}),
		"old timestamp":       author(meta{"name": "a", "email": "e", "timestamp": -1}),
		"bad committer":       {"committer": meta{"name": "a"}},
		"base flag alone":     {"base_is_ephemeral": true},
		"old base flag alone": {"ephemeral_base": true},
		"base is a tag":       {"base_branch": "refs/tags/v1"},
		"files no array":      {"files": meta{}},
		"entry no object":     {"files": []string{"a"}},
		"bad operation":       entry(meta{"path": "a", "content_id": "c", "operation": "move"}),
		"no content id":       entry(meta{"path": "a"}),
		"mode 777":            entry(meta{"path": "a", "content_id": "c", "mode": "777"}),
		"mode 040000":         entry(meta{"path": "a", "content_id": "c", "mode": "040000"}),
		"mode 100664":         entry(meta{"path": "a", "content_id": "c", "mode": "100664"}),
		"id twice":            {"files": []meta{{"path": "a", "content_id": "c"}, {"path": "b", "content_id": "c"}}},
		"flag no boolean":     {"ephemeral": "true"},
	} {
		if _, err := specOf(t, change); problemOf(err).status != 400 {
			t.Errorf("%s: spec of %v = %v, want a 400", name, change, err)
		}
	}
	for _, line := range []string{`{}`, `{"metadata":null}`, `{"metadata":[]}`, `{"blob_chunk":{"content_id":"a","data":"","eof":true}}`, `x`, `[`} {
		if _, err := parseMetadata([]byte(line), 10); problemOf(err).status != 400 {
			t.Errorf("parseMetadata(%s) = %v, want a 400", line, err)
		}
	}
}

// Case 12.3: a list of files over the limit ends at the limit, and the limit is named.
func TestCase12_3_TooManyFiles(t *testing.T) {
	line := `{"metadata":{"files":[` + strings.Repeat(`{"path":"a"},`, 200_000) + `{"path":"a"}]}}`
	_, err := parseMetadata([]byte(line), 100_000)
	if p := problemOf(err); p.status != 413 || !strings.Contains(p.text, "100000") {
		t.Errorf("200,001 files = %d %s, want a 413 that names the limit", p.status, p.text)
	}
	deep := `{"metadata":` + strings.Repeat(`{"a":`, 100_000)
	if _, err := parseMetadata([]byte(deep), 10); problemOf(err).status != 400 {
		t.Errorf("JSON 100,000 deep = %v, want a 400", err)
	}
}

func FuzzMetadata(f *testing.F) {
	f.Add(metadataLine(f, nil))
	f.Add([]byte(`{"metadata":{"files":[{"path":1}]}}`))
	f.Add([]byte(`{"metadata":{"files":[`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := parseMetadata(line, 5)
		if err == nil {
			_, err = m.spec()
		}
		if err == nil {
			return
		}
		if s := problemOf(err).status; s != 400 && s != 413 {
			t.Errorf("metadata %q = %v, status %d", line, err, s)
		}
	})
}
