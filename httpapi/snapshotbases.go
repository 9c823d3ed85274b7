package httpapi

import (
	"net/http"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/sessions/snapshot"
)

// A baseBody is a base image: a snapshot that the operator has named.
type baseBody struct {
	Org  string `json:"org"`
	Repo string `json:"repo"`
	Name string `json:"name"`
	SHA  string `json:"sha"`
}

// operatorRepo opens a repo for the operator, who may do everything.
func (s *Server) operatorRepo(q *request, org, name string) (*gitstore.Repo, error) {
	if s.Snapshots == nil {
		return nil, errNoSnapshots
	}
	r, err := s.Store.Repo(q.ctx(), org, name)
	if err == nil {
		q.x.repo = name
	}
	return r, err
}

// operatorCaller is who the operator is in the log.
func operatorCaller(org string) gitstore.Caller {
	return gitstore.Caller{Actor: gitstore.Actor{Org: org, Subject: deniedBy}}
}

// operatorBase names a snapshot as a base.
func (s *Server) operatorBase(q *request) error {
	var want baseBody
	if err := s.readJSON(q, &want); err != nil {
		return err
	}
	id, err := snapshot.ParseOID(want.SHA)
	if err != nil || id.IsZero() {
		return invalid("sha is not a snapshot's 40 hex digits")
	}
	r, err := s.operatorRepo(q, want.Org, want.Repo)
	if err != nil {
		return err
	}
	if err := s.Snapshots.SetBase(q.ctx(), NewSnapshotRepo(r, operatorCaller(want.Org)), want.Name, id); err != nil {
		return err
	}
	return q.x.json(http.StatusOK, want)
}

// operatorBaseRemove takes a base's name away; its snapshot is an ordinary one again.
func (s *Server) operatorBaseRemove(q *request) error {
	v := q.query()
	org, repo, name := v.need("org"), v.need("repo"), v.need("name")
	if v.err != nil {
		return v.err
	}
	r, err := s.operatorRepo(q, org, repo)
	if err != nil {
		return err
	}
	if err := s.Snapshots.SetBase(q.ctx(), NewSnapshotRepo(r, operatorCaller(org)), name, snapshot.OID{}); err != nil {
		return err
	}
	q.x.WriteHeader(http.StatusNoContent)
	return nil
}

// operatorBases lists the bases of a repo by name.
func (s *Server) operatorBases(q *request) error {
	v := q.query()
	org, repo, cursor, limit := v.need("org"), v.need("repo"), v.text("cursor"), v.limit(pageDefault, pageMost)
	if v.err != nil {
		return v.err
	}
	r, err := s.operatorRepo(q, org, repo)
	if err != nil {
		return err
	}
	after := refpolicy.RefName("")
	if cursor != "" {
		after = refpolicy.RefName(snapshot.BasePrefix + cursor)
	}
	refs, err := r.Refs(q.ctx(), gitstore.Caller{}, snapshot.BasePrefix, after, limit+1)
	if err != nil {
		return err
	}
	bases := []baseBody{}
	page := pageBody{}
	for i, ref := range refs {
		if i == limit {
			page = pageOf(bases[i-1].Name)
			break
		}
		bases = append(bases, baseBody{org, repo, string(ref.Name[len(snapshot.BasePrefix):]), ref.OID.String()})
	}
	return q.x.json(http.StatusOK, struct {
		Bases []baseBody `json:"bases"`
		pageBody
	}{bases, page})
}
