package httpapi

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore"
)

// A metadata line begins a commit-pack. Old and new names of a field stand side by
// side; the new one wins.
type metadata struct {
	TargetBranch      string    `json:"target_branch"`
	CommitMessage     string    `json:"commit_message"`
	Author            *identity `json:"author"`
	Committer         *identity `json:"committer"`
	ExpectedTargetSHA string    `json:"expected_target_sha"`
	ExpectedHeadSHA   string    `json:"expected_head_sha"`
	BaseBranch        string    `json:"base_branch"`
	TargetIsEphemeral *bool     `json:"target_is_ephemeral"`
	Ephemeral         *bool     `json:"ephemeral"`
	BaseIsEphemeral   *bool     `json:"base_is_ephemeral"`
	EphemeralBase     *bool     `json:"ephemeral_base"`
	Files             fileList  `json:"files"`
}

type fileEntry struct {
	Path      string `json:"path"`
	Operation string `json:"operation"`
	ContentID string `json:"content_id"`
	Mode      string `json:"mode"`
}

// A fileList is decoded entry by entry, so that a list over its limit ends there
// instead of in memory.
type fileList struct {
	entries []fileEntry
	limit   int
}

// UnmarshalJSON reads an array of entries; null is an empty one.
func (l *fileList) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	if b[0] != '[' {
		return invalid("files is not an array")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		if len(l.entries) == l.limit {
			return tooLarge("files has more than %d entries", l.limit)
		}
		var e fileEntry
		if err := d.Decode(&e); err != nil {
			return invalid("files[%d]: %v", len(l.entries), err)
		}
		l.entries = append(l.entries, e)
	}
	return nil
}

// parseMetadata reads the first line of a stream.
func parseMetadata(line []byte, files int) (*metadata, error) {
	body := struct {
		Metadata *metadata `json:"metadata"`
	}{Metadata: &metadata{Files: fileList{limit: files}}}
	if err := unmarshal(line, &body); err != nil {
		return nil, err
	}
	if body.Metadata == nil || !bytes.Contains(line, []byte(`"metadata"`)) {
		return nil, invalid("first line is not the metadata")
	}
	return body.Metadata, nil
}

// spec is what the store is asked for. Its Target is set as soon as it is known to
// be a branch, also beside an error.
func (m *metadata) spec() (gitstore.CommitSpec, error) {
	var (
		s   gitstore.CommitSpec
		err error
	)
	if m.TargetBranch == "" {
		return s, invalid("target_branch is missing")
	}
	if s.Target, err = branchRef(m.TargetBranch, firstBool(m.TargetIsEphemeral, m.Ephemeral)); err != nil {
		return s, err
	}
	baseEphemeral := firstBool(m.BaseIsEphemeral, m.EphemeralBase)
	switch {
	case m.BaseBranch != "":
		if s.Base, err = branchRef(m.BaseBranch, baseEphemeral); err != nil {
			return s, err
		}
	case baseEphemeral:
		return s, invalid("base_is_ephemeral needs base_branch")
	}
	if strings.TrimSpace(m.CommitMessage) == "" {
		return s, invalid("commit_message is missing")
	}
	s.Message, s.Expected = m.CommitMessage, first(m.ExpectedTargetSHA, m.ExpectedHeadSHA)
	if err := m.people(&s); err != nil {
		return s, err
	}
	s.Files, err = m.changes()
	return s, err
}

func (m *metadata) people(s *gitstore.CommitSpec) (err error) {
	if m.Author == nil {
		return invalid("author is missing")
	}
	if s.Author, err = m.Author.signature("author"); err != nil {
		return err
	}
	if m.Committer != nil {
		s.Committer, err = m.Committer.signature("committer")
	}
	return err
}

// changes are the entries of files as the store takes them, in order.
func (m *metadata) changes() ([]gitstore.FileChange, error) {
	changes := make([]gitstore.FileChange, len(m.Files.entries))
	ids := make(map[string]struct{}, len(changes))
	for i, f := range m.Files.entries {
		c := &changes[i]
		c.Path, c.ContentID = strings.TrimPrefix(f.Path, "/"), f.ContentID
		switch f.Operation {
		case "", "upsert":
			if f.ContentID == "" {
				return nil, invalid("files[%d]: content_id is missing", i)
			}
		case "delete":
			c.Delete = true
		default:
			return nil, invalid("files[%d]: operation is neither upsert nor delete", i)
		}
		mode, ok := modes[f.Mode]
		if !ok {
			return nil, invalid("files[%d]: mode is none of 100644, 100755, 120000 and 160000", i)
		}
		c.Mode = mode
		if f.ContentID == "" {
			continue
		}
		if _, twice := ids[f.ContentID]; twice {
			return nil, invalid("files[%d]: content_id %.80q is used twice", i, f.ContentID)
		}
		ids[f.ContentID] = struct{}{}
	}
	return changes, nil
}

// modes are the values of mode; without one an existing file keeps its own.
var modes = map[string]gitstore.Mode{
	"":       0,
	"100644": gitstore.ModeFile,
	"100755": gitstore.ModeExecutable,
	"120000": gitstore.ModeSymlink,
	"160000": gitstore.ModeSubmodule,
}

// deleted holds the content ids of entries that delete.
func (m *metadata) deleted() map[string]bool {
	var ids map[string]bool
	for _, f := range m.Files.entries {
		if f.Operation == "delete" && f.ContentID != "" {
			if ids == nil {
				ids = make(map[string]bool)
			}
			ids[f.ContentID] = true
		}
	}
	return ids
}

// An identity is an author or committer, with a time if it is not the server's.
type identity struct {
	Name      string       `json:"name"`
	Email     string       `json:"email"`
	Date      string       `json:"date"`
	Timestamp *json.Number `json:"timestamp"`
}

// signature checks an identity by git's rules: both parts are there after
// trimming, and nothing in them would break the commit's header.
func (i identity) signature(who string) (gitstore.Signature, error) {
	s := gitstore.Signature{Name: strings.TrimSpace(i.Name), Email: strings.TrimSpace(i.Email)}
	if s.Name == "" || s.Email == "" {
		return s, invalid("%s needs a name and an email", who)
	}
	if strings.ContainsAny(s.Name+s.Email, "\n\x00<>") {
		return s, invalid("%s holds a line feed, NUL, < or >", who)
	}
	var err error
	s.When, err = i.when(who)
	return s, err
}

// when is zero for the server's own time.
func (i identity) when(who string) (time.Time, error) {
	switch {
	case i.Date != "":
		t, err := time.Parse(time.RFC3339, i.Date)
		if err != nil || t.Unix() < 0 {
			return t, invalid("date of %s is not an RFC 3339 time of 1970 or later", who)
		}
		return t.Truncate(time.Second), nil
	case i.Timestamp != nil:
		n, err := i.Timestamp.Int64()
		if err != nil || n < 0 || n > maxTimestamp {
			return time.Time{}, invalid("timestamp of %s is not a number of seconds since 1970", who)
		}
		return time.Unix(n, 0).UTC(), nil
	}
	return time.Time{}, nil
}

// maxTimestamp is the end of the year 9999.
const maxTimestamp = 253402300799
