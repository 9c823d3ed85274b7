package httpapi

import (
	"errors"
	"net/http"
	"strings"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/refpolicy/sigcheck"
)

// A commitBody is a commit in lists and look-ups; Signature and Payload are there
// in look-ups of signed commits.
type commitBody struct {
	SHA            string   `json:"sha"`
	ParentSHAs     []string `json:"parent_shas"`
	TreeSHA        string   `json:"tree_sha"`
	Message        string   `json:"message"`
	AuthorName     string   `json:"author_name"`
	AuthorEmail    string   `json:"author_email"`
	AuthorDate     string   `json:"author_date"`
	CommitterName  string   `json:"committer_name"`
	CommitterEmail string   `json:"committer_email"`
	Date           string   `json:"date"`
	Signature      string   `json:"signature,omitempty"`
	Payload        string   `json:"payload,omitempty"`
}

func commitBodyOf(c gitstore.CommitInfo) commitBody {
	parents := make([]string, len(c.Parents))
	for i, p := range c.Parents {
		parents[i] = p.String()
	}
	return commitBody{
		SHA: c.OID.String(), ParentSHAs: parents, TreeSHA: c.Tree.String(),
		Message:    strings.TrimRight(c.Message, "\n"),
		AuthorName: c.Author.Name, AuthorEmail: c.Author.Email, AuthorDate: wireTime(c.Author.When),
		CommitterName: c.Committer.Name, CommitterEmail: c.Committer.Email, Date: wireTime(c.Committer.When),
	}
}

func (s *Server) listCommits(q *request) error {
	v := q.query()
	rev, ephemeral := v.text("ref", "branch"), v.flag("ephemeral")
	path, cursor := strings.TrimPrefix(v.text("path"), "/"), v.text("cursor")
	limit, retained := v.limit(pageDefault, pageMost), v.flag(readableUntil)
	if v.err != nil {
		return v.err
	}
	var from refpolicy.OID
	if cursor == "" {
		at, err := q.repo.Resolve(q.ctx(), q.caller(), rev, ephemeral && rev != "")
		if errors.Is(err, gitstore.ErrEmptyRepo) {
			return q.x.json(http.StatusOK, commitPage{Commits: []commitBody{}})
		}
		if err != nil {
			return err
		}
		from = at.Commit
	}
	page, err := q.repo.Log(q.ctx(), q.caller(), from, path, cursor, limit)
	if err == nil && retained {
		err = q.tellRetention(page.From)
	}
	if err != nil {
		return err
	}
	body := commitPage{Commits: make([]commitBody, len(page.Commits)), pageBody: pageOf(page.Next)}
	for i, c := range page.Commits {
		body.Commits[i] = commitBodyOf(c)
	}
	return q.x.json(http.StatusOK, body)
}

type commitPage struct {
	Commits []commitBody `json:"commits"`
	pageBody
}

func (s *Server) getCommit(q *request) error {
	v := q.query()
	rev, ephemeral, retained := v.need("ref", "sha"), v.flag("ephemeral"), v.flag(readableUntil)
	if v.err != nil {
		return v.err
	}
	at, err := q.repo.Resolve(q.ctx(), q.caller(), rev, ephemeral)
	if err != nil {
		return err
	}
	c, err := q.repo.Commit(q.ctx(), at.Commit)
	if err == nil && retained {
		err = q.tellRetention(at.Commit)
	}
	if err != nil {
		return err
	}
	body := commitBodyOf(c)
	if payload, signature, ok := sigcheck.SplitSignature(c.Raw); ok {
		body.Signature, body.Payload = string(signature), string(payload)
	}
	return q.x.json(http.StatusOK, struct {
		Commit commitBody `json:"commit"`
	}{body})
}
