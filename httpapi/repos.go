package httpapi

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/refpolicy"
)

type createRepoBody struct {
	DefaultBranch string          `json:"default_branch"`
	RepoName      string          `json:"repo_name"`
	BaseRepo      json.RawMessage `json:"base_repo"`
	InitialCommit json.RawMessage `json:"initial_commit"`
}

// A repoBody is a repo in lists and look-ups.
type repoBody struct {
	RepoID        string  `json:"repo_id"`
	RepoName      string  `json:"repo_name"`
	URL           string  `json:"url"`
	DefaultBranch string  `json:"default_branch"`
	CreatedAt     string  `json:"created_at"`
	BaseRepo      *string `json:"base_repo"` // no repo here has one
}

func repoBodyOf(i gitstore.RepoInfo) repoBody {
	return repoBody{
		RepoID: i.ID, RepoName: i.Name, URL: i.Name,
		DefaultBranch: i.DefaultBranch, CreatedAt: wireTime(i.CreatedAt.UTC()),
	}
}

// orgClaim is the repo claim of org-wide tokens, and so no repo's name.
const orgClaim = "org"

func (s *Server) createRepo(q *request) error {
	if q.name == orgClaim {
		return &requestError{kind: kindForbidden, text: "an org-wide token cannot create a repository"}
	}
	var body createRepoBody
	if err := s.readJSON(q, &body); err != nil {
		return err
	}
	if err := body.check(q.name); err != nil {
		return err
	}
	v := q.query()
	branch, err := defaultBranch(first(body.DefaultBranch, v.text("default_branch"), "main"))
	if err == nil {
		err = v.err
	}
	if err != nil {
		return err
	}
	answer := func(info gitstore.RepoInfo) any {
		return createdRepoBody{info.ID, info.Name, info.Name, info.DefaultBranch, s.remoteURL(q.r, info.Name), "repository created"}
	}
	info, err := s.Store.CreateRepo(q.ctx(), q.caller(), q.who.Org, q.name, branch, onceOf(q, http.StatusCreated, answer))
	if err != nil {
		return err
	}
	return q.x.json(http.StatusCreated, answer(info))
}

type createdRepoBody struct {
	RepoID   string `json:"repo_id"`
	RepoName string `json:"repo_name"`
	URL      string `json:"url"`
	Default  string `json:"default_branch"`
	HTTPURL  string `json:"http_url"`
	Message  string `json:"message"`
}

func (b createRepoBody) check(name string) error {
	if b.RepoName != "" && b.RepoName != name {
		return invalid("repo_name is not the token's repo")
	}
	if isGiven(b.BaseRepo) {
		var base struct {
			Name string `json:"name"`
		}
		if err := unmarshal(b.BaseRepo, &base); err != nil {
			return invalid("base_repo is not an object with a name")
		}
		return &requestError{kind: kindNotSupported, text: "creating a repository from another one is not supported"}
	}
	if isGiven(b.InitialCommit) {
		return invalid("initial_commit needs a base_repo of the kind snapshot")
	}
	return nil
}

// isGiven reports whether a member is there and not null.
func isGiven(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// defaultBranch is the short name that a default branch is known by.
func defaultBranch(name string) (string, error) {
	ref, err := refpolicy.Branch(name)
	return ref.Short(), err
}

// remoteURL is how git clients reach the main remote of a repo.
func (s *Server) remoteURL(r *http.Request, name string) string {
	return s.baseURL(r) + (&url.URL{Path: "/" + name + ".git"}).EscapedPath()
}

// baseURL is how clients reach this server, without a slash at its end.
func (s *Server) baseURL(r *http.Request) string {
	if s.PublicURL != "" {
		return s.PublicURL
	}
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

func (s *Server) listRepos(q *request) error {
	v := q.query()
	cursor, search := v.text("cursor"), strings.TrimSpace(v.text("q"))
	limit := v.limit(pageDefault, pageMost)
	if v.err != nil {
		return v.err
	}
	page, err := s.Store.ListRepos(q.ctx(), q.who.Org, search, cursor, limit)
	if err != nil {
		return err
	}
	repos := make([]repoBody, len(page.Repos))
	for i, info := range page.Repos {
		repos[i] = repoBodyOf(info)
	}
	return q.x.json(http.StatusOK, struct {
		Repos []repoBody `json:"repos"`
		pageBody
	}{repos, pageOf(page.Next)})
}

// A pageBody is the end of every list.
type pageBody struct {
	NextCursor string `json:"next_cursor,omitempty"`
	HasMore    bool   `json:"has_more"`
}

func pageOf(next string) pageBody { return pageBody{NextCursor: next, HasMore: next != ""} }

func (s *Server) getRepo(q *request) error {
	return q.x.json(http.StatusOK, repoBodyOf(q.repo.Info()))
}

func (s *Server) updateRepo(q *request) error {
	var body struct {
		DefaultBranch string `json:"default_branch"`
	}
	if err := s.readJSON(q, &body); err != nil {
		return err
	}
	if body.DefaultBranch == "" {
		return invalid("nothing to update: default_branch is missing")
	}
	branch, err := defaultBranch(body.DefaultBranch)
	if err != nil {
		return err
	}
	answer := func(info gitstore.RepoInfo) any { return repoBodyOf(info) }
	info, err := q.repo.SetDefaultBranch(q.ctx(), q.caller(), branch, onceOf(q, http.StatusOK, answer))
	if err != nil {
		return err
	}
	return q.x.json(http.StatusOK, answer(info))
}

func (s *Server) deleteRepo(q *request) error {
	answer := func(info gitstore.RepoInfo) any {
		return deletedRepoBody{info.ID, info.Name, info.Name, "repository deleted"}
	}
	info, err := s.Store.DeleteRepo(q.ctx(), q.caller(), q.who.Org, q.name, onceOf(q, http.StatusOK, answer))
	if err != nil {
		return err
	}
	s.feeds.lookAt(q.who.Org, q.name)
	return q.x.json(http.StatusOK, answer(info))
}

type deletedRepoBody struct {
	RepoID   string `json:"repo_id"`
	RepoName string `json:"repo_name"`
	URL      string `json:"url"`
	Message  string `json:"message"`
}
