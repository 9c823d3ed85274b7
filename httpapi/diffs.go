package httpapi

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/refpolicy"
)

// A diffHead is what stands in a diff's answer before stats and files. A branch
// diff has Branch and Base, a commit diff SHA.
type diffHead struct {
	Branch       string    `json:"branch,omitempty"`
	Base         string    `json:"base,omitempty"`
	SHA          string    `json:"sha,omitempty"`
	BaseSHA      string    `json:"base_sha,omitempty"`
	MergeBaseSHA string    `json:"merge_base_sha,omitempty"`
	Stats        diffStats `json:"stats"`
}

type diffStats struct {
	Files     int `json:"files"`
	Additions int `json:"additions"`
	Deletions int `json:"deletions"`
	Changes   int `json:"changes"`
}

type fileDiffBody struct {
	Path      string  `json:"path"`
	OldPath   *string `json:"old_path,omitempty"`
	State     string  `json:"state"`
	Raw       *string `json:"raw,omitempty"`
	Bytes     int64   `json:"bytes"`
	IsEOF     bool    `json:"is_eof"`
	Additions *int    `json:"additions,omitempty"`
	Deletions *int    `json:"deletions,omitempty"`
}

// branchDiff compares a branch with the point where it left its base.
func (s *Server) branchDiff(q *request) error {
	v := q.query()
	branch, base := v.need("branch"), v.text("base")
	ephemeral, baseEphemeral := v.flag("ephemeral"), v.flag("ephemeral_base")
	paths, retained := v.list("path"), v.flag(readableUntil)
	if v.err != nil {
		return v.err
	}
	tip, err := q.repo.Resolve(q.ctx(), q.caller(), branch, ephemeral)
	if err != nil {
		return err
	}
	from, err := q.repo.Resolve(q.ctx(), q.caller(), base, baseEphemeral && base != "")
	if err != nil {
		return err
	}
	head := diffHead{Branch: branch, Base: first(base, from.Echo), SHA: tip.Commit.String()}
	start := from.Commit
	mergeBase, ok, err := q.repo.MergeBase(q.ctx(), from.Commit, tip.Commit)
	if err != nil {
		return err
	}
	if ok {
		start, head.MergeBaseSHA = mergeBase, mergeBase.String()
	}
	head.BaseSHA = from.Commit.String()
	if retained {
		if err := q.tellRetention(tip.Commit, from.Commit); err != nil {
			return err
		}
	}
	return q.diff(head, gitstore.DiffRequest{Base: start, Head: tip.Commit, Paths: paths})
}

// commitDiff compares a commit with another one, or with its first parent.
func (s *Server) commitDiff(q *request) error {
	v := q.query()
	rev, base := v.need("ref", "sha"), v.text("base_ref", "baseSha")
	exact := v.flag("git_apply_compatible", "gitApplyCompatible")
	refEphemeral, baseEphemeral := v.flag("ref_is_ephemeral"), v.flag("base_is_ephemeral")
	paths, retained := v.list("path"), v.flag(readableUntil)
	if v.err != nil {
		return v.err
	}
	at, err := q.repo.Resolve(q.ctx(), q.caller(), rev, refEphemeral)
	if err != nil {
		return err
	}
	head := diffHead{SHA: at.Commit.String()}
	from, err := q.diffBase(at.Commit, base, baseEphemeral)
	if err != nil {
		return err
	}
	if !from.IsZero() {
		head.BaseSHA = from.String()
		mergeBase, ok, err := q.repo.MergeBase(q.ctx(), from, at.Commit)
		if err != nil {
			return err
		}
		if ok {
			head.MergeBaseSHA = mergeBase.String()
		}
	}
	if retained {
		if err := q.tellRetention(at.Commit, from); err != nil {
			return err
		}
	}
	return q.diff(head, gitstore.DiffRequest{Base: from, Head: at.Commit, Paths: paths, Exact: exact})
}

// diffBase is what a commit is compared with: the given base, its first parent, or
// the empty tree of a root commit.
func (q *request) diffBase(commit refpolicy.OID, base string, ephemeral bool) (refpolicy.OID, error) {
	if base != "" {
		at, err := q.repo.Resolve(q.ctx(), q.caller(), base, ephemeral)
		return at.Commit, err
	}
	c, err := q.repo.Commit(q.ctx(), commit)
	if err != nil || len(c.Parents) == 0 {
		return refpolicy.ZeroOID, err
	}
	return c.Parents[0], nil
}

func (q *request) diff(head diffHead, r gitstore.DiffRequest) error {
	d, err := q.repo.Diff(q.ctx(), r)
	if err != nil {
		return err
	}
	head.Stats = diffStats{
		Files: len(d.Files) + len(d.Filtered), Additions: d.Additions, Deletions: d.Deletions,
		Changes: d.Additions + d.Deletions,
	}
	if r.Exact && len(r.Paths) == 0 {
		d = withoutUnsayable(d)
	}
	return q.x.diff(head, d)
}

// withoutUnsayable withholds patches that JSON cannot carry byte for byte: they
// would be shown with U+FFFD and not apply. d is shared and stays as it is.
func withoutUnsayable(d *gitstore.Diff) *gitstore.Diff {
	unsayable := func(f gitstore.FileDiff) bool { return !utf8.Valid(f.Raw) }
	if !slices.ContainsFunc(d.Files, unsayable) {
		return d
	}
	out := *d
	out.Files, out.Filtered = nil, slices.Clone(d.Filtered)
	for _, f := range d.Files {
		if unsayable(f) {
			out.Filtered = append(out.Filtered, f)
		} else {
			out.Files = append(out.Files, f)
		}
	}
	slices.SortFunc(out.Filtered, func(a, b gitstore.FileDiff) int { return strings.Compare(a.Path, b.Path) })
	return &out
}

// diff writes a diff file by file, so that the whole answer is never in memory a
// second time.
func (x *exchange) diff(head diffHead, d *gitstore.Diff) error {
	e := encoders.Get().(*encoder)
	defer e.release()
	if err := e.json.Encode(head); err != nil {
		return err
	}
	e.buf.Truncate(e.buf.Len() - len("}\n"))
	e.buf.WriteString(`,"files":`)
	if err := x.fileDiffs(e, d.Files, true); err != nil {
		return err
	}
	e.buf.WriteString(`,"filtered_files":`)
	if err := x.fileDiffs(e, d.Filtered, false); err != nil {
		return err
	}
	e.buf.WriteString("}\n")
	x.Header()["Content-Type"] = jsonType
	return x.spill(e)
}

// spillBytes is how much of an answer is gathered before it is sent.
const spillBytes = 32 << 10

func (x *exchange) fileDiffs(e *encoder, files []gitstore.FileDiff, shown bool) error {
	e.buf.WriteByte('[')
	for i := range files {
		if i > 0 {
			e.buf.WriteByte(',')
		}
		if err := e.json.Encode(fileDiffBodyOf(&files[i], shown)); err != nil {
			return err
		}
		if e.buf.Len() > spillBytes {
			x.Header()["Content-Type"] = jsonType
			if err := x.spill(e); err != nil {
				return err
			}
		}
	}
	e.buf.WriteByte(']')
	return nil
}

// spill sends what e holds.
func (x *exchange) spill(e *encoder) error {
	_, err := x.Write(e.buf.Bytes())
	e.buf.Reset()
	return err
}

func fileDiffBodyOf(f *gitstore.FileDiff, shown bool) fileDiffBody {
	body := fileDiffBody{Path: f.Path, State: f.State, Bytes: f.Bytes, IsEOF: true}
	if f.OldPath != "" {
		body.OldPath = &f.OldPath
	}
	if shown {
		raw := string(f.Raw)
		body.Raw, body.Additions, body.Deletions = &raw, &f.Additions, &f.Deletions
	}
	return body
}
