package httpapi

import (
	"net/http"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/sessions"
)

// A comparisonBody is what the children of a fork have made of its state: the files
// that at least one of them changed.
type comparisonBody struct {
	GroupID   string           `json:"group_id"`
	BaseSHA   string           `json:"base_sha"`
	Children  []string         `json:"children"`
	Files     []fileMatrixBody `json:"files"`
	Truncated bool             `json:"truncated"`
}

// A fileMatrixBody is one file with what each child has there.
type fileMatrixBody struct {
	Path   string      `json:"path"`
	Status string      `json:"status"`
	Base   *fileAtBody `json:"base,omitempty"`
	By     []byBody    `json:"by"`
}

type fileAtBody struct {
	SHA  string `json:"sha"`
	Mode string `json:"mode"`
}

type byBody struct {
	Session string `json:"session"`
	SHA     string `json:"sha,omitempty"`
	Mode    string `json:"mode,omitempty"`
	Absent  bool   `json:"absent,omitempty"`
}

// What a file is across the children.
const (
	fileSame    = "same"      // all have the same
	fileDiffers = "differs"   // some have another, or none
	fileOnly    = "only_here" // one child has it, no other and not the state they came from
)

// compareFork compares the children that have not ended.
func (s *Server) compareFork(q *request) error {
	got, err := s.Sessions.Group(q.ctx(), q.session(), q.door(), q.id)
	if err != nil {
		return err
	}
	base, err := refpolicy.ParseOID(got.Group.StateSHA)
	if err != nil {
		return err
	}
	body := comparisonBody{GroupID: got.Group.ID, BaseSHA: got.Group.StateSHA, Children: []string{}, Files: []fileMatrixBody{}}
	var tips []refpolicy.OID
	for _, child := range got.Children {
		if child.State == sessions.Ended || child.HeadSHA == "" { // or is ending at this moment
			continue
		}
		tip, err := refpolicy.ParseOID(child.HeadSHA)
		if err != nil {
			return err
		}
		body.Children, tips = append(body.Children, child.ID), append(tips, tip)
	}
	if len(tips) == 0 {
		return q.x.json(http.StatusOK, body)
	}
	found, err := q.repo.CompareTips(q.ctx(), q.caller(), base, tips)
	if err != nil {
		return err
	}
	body.Truncated = found.Truncated
	for _, p := range found.Paths {
		body.Files = append(body.Files, fileMatrixBodyOf(p, body.Children))
	}
	return q.x.json(http.StatusOK, body)
}

func fileMatrixBodyOf(p gitstore.PathComparison, children []string) fileMatrixBody {
	b := fileMatrixBody{Path: p.Path, Status: statusOf(p), By: make([]byBody, len(p.Tips))}
	if p.Base != (gitstore.PathState{}) {
		b.Base = &fileAtBody{p.Base.OID.String(), modeText(p.Base.Mode)}
	}
	for i, tip := range p.Tips {
		b.By[i] = byBody{Session: children[i], Absent: true}
		if tip != (gitstore.PathState{}) {
			b.By[i] = byBody{Session: children[i], SHA: tip.OID.String(), Mode: modeText(tip.Mode)}
		}
	}
	return b
}

func statusOf(p gitstore.PathComparison) string {
	have, same := 0, true
	for _, tip := range p.Tips {
		if tip != (gitstore.PathState{}) {
			have++
		}
		same = same && tip == p.Tips[0]
	}
	switch {
	case have == 1 && p.Base == (gitstore.PathState{}):
		return fileOnly
	case same:
		return fileSame
	}
	return fileDiffers
}
