package httpapi

import (
	"net/http"
	"strings"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/refpolicy"
)

// A branchBody is a branch in lists and look-ups; Cursor is there in lists.
type branchBody struct {
	Cursor    string `json:"cursor,omitempty"`
	Name      string `json:"name"`
	HeadSHA   string `json:"head_sha"`
	CreatedAt string `json:"created_at"`
}

func branchBodyOf(ref gitstore.Ref, cursor string) branchBody {
	return branchBody{
		Cursor: cursor, Name: ref.Name.Short(), HeadSHA: ref.OID.String(),
		CreatedAt: wireTime(ref.CreatedAt.UTC()),
	}
}

func (s *Server) listBranches(q *request) error {
	v := q.query()
	ephemeral, cursor, prefix := v.flag("ephemeral"), v.text("cursor"), v.text("prefix")
	limit := v.limit(pageDefault, pageMost)
	if v.err != nil {
		return v.err
	}
	var page gitstore.BranchPage
	var err error
	if prefix == "" {
		page, err = q.repo.Branches(q.ctx(), q.caller(), ephemeral, cursor, limit)
	} else {
		page, err = q.repo.BranchesBelow(q.ctx(), q.caller(), ephemeral, prefix, cursor, limit)
	}
	if err != nil {
		return err
	}
	branches := make([]branchBody, len(page.Branches))
	for i, b := range page.Branches {
		branches[i] = branchBodyOf(b.Ref, b.Cursor)
	}
	return q.x.json(http.StatusOK, struct {
		Branches []branchBody `json:"branches"`
		pageBody
	}{branches, pageOf(page.Next)})
}

func (s *Server) getBranch(q *request) error {
	v := q.query()
	name, ephemeral := v.need("name"), v.flag("ephemeral")
	if v.err != nil {
		return v.err
	}
	ref, err := branchRef(name, ephemeral)
	if err != nil {
		return err
	}
	branch, err := q.repo.Ref(q.ctx(), q.caller(), ref)
	if err != nil {
		return err
	}
	return q.x.json(http.StatusOK, struct {
		Branch branchBody `json:"branch"`
	}{branchBodyOf(branch, "")})
}

type createBranchBody struct {
	TargetBranch      string `json:"target_branch"`
	BaseRef           string `json:"base_ref"`
	BaseBranch        string `json:"base_branch"`
	BaseIsEphemeral   bool   `json:"base_is_ephemeral"`
	TargetIsEphemeral bool   `json:"target_is_ephemeral"`
	Force             bool   `json:"force"`
}

func (b createBranchBody) spec() (gitstore.BranchSpec, error) {
	if b.TargetBranch == "" {
		return gitstore.BranchSpec{}, invalid("target_branch is missing")
	}
	target, err := branchRef(b.TargetBranch, b.TargetIsEphemeral)
	if err != nil {
		return gitstore.BranchSpec{}, err
	}
	base := first(b.BaseRef, b.BaseBranch)
	if base == "" {
		return gitstore.BranchSpec{}, invalid("base_ref is missing")
	}
	if b.BaseIsEphemeral {
		base = strings.TrimPrefix(base, refpolicy.BranchPrefix)
	}
	return gitstore.BranchSpec{
		Target: target, Base: base, BaseEphemeral: b.BaseIsEphemeral, Force: b.Force,
	}, nil
}

func (s *Server) createBranch(q *request) error {
	var body createBranchBody
	if err := s.readJSON(q, &body); err != nil {
		return err
	}
	spec, err := body.spec()
	if err != nil {
		return err
	}
	info := q.repo.Info()
	answer := func(ref gitstore.Ref) any {
		return createdBranchBody{
			"branch created", ref.Name.Short(), body.TargetIsEphemeral, ref.OID.String(),
			ref.Name.String(), info.ID, info.Name, info.Name,
		}
	}
	spec.Once = onceOf(q, http.StatusOK, answer)
	ref, err := q.repo.CreateBranch(q.ctx(), q.caller(), spec)
	if err != nil {
		return err
	}
	return q.x.json(http.StatusOK, answer(ref))
}

type createdBranchBody struct {
	Message   string `json:"message"`
	Target    string `json:"target_branch"`
	Ephemeral bool   `json:"target_is_ephemeral"`
	CommitSHA string `json:"commit_sha"`
	Ref       string `json:"ref"`
	RepoID    string `json:"repo_id"`
	RepoName  string `json:"repo_name"`
	URL       string `json:"url"`
}

type deletedBranchBody struct {
	Target    string `json:"target_branch"`
	Name      string `json:"name"`
	Message   string `json:"message"`
	Ephemeral bool   `json:"ephemeral"`
}

func (s *Server) deleteBranch(q *request) error {
	var body struct {
		TargetBranch string `json:"target_branch"`
		Name         string `json:"name"`
		Ephemeral    bool   `json:"ephemeral"`
	}
	if err := s.readJSON(q, &body); err != nil {
		return err
	}
	name := first(body.TargetBranch, body.Name)
	if name == "" {
		return invalid("target_branch is missing")
	}
	strict := refpolicy.StrictBranch
	if body.Ephemeral {
		strict = refpolicy.StrictEphemeralBranch
	}
	ref, err := strict(name)
	if err != nil {
		return err
	}
	answer := deletedBranchBody{ref.Short(), ref.Short(), "branch deleted", body.Ephemeral}
	once := onceOf(q, http.StatusOK, func(gitstore.Ref) any { return answer })
	if err := q.repo.DeleteBranch(q.ctx(), q.caller(), ref, once); err != nil {
		return err
	}
	return q.x.json(http.StatusOK, answer)
}
