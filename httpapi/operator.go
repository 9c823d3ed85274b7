package httpapi

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/gitstore/packs"
)

// operatorPrefix is where the operator's routes are. Without the operator's key every
// path below it gets one and the same answer.
const operatorPrefix = "/api/operator/"

// asOperator is nil if a request carries the operator's key. No token opens these
// routes, and the key opens no other.
func (s *Server) asOperator(r *http.Request) error {
	got, err := credentials(r, false)
	if err != nil {
		return err
	}
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(s.OperatorKey))
	if subtle.ConstantTimeCompare(a[:], b[:]) != 1 || s.OperatorKey == "" {
		return errNoCredentials
	}
	return nil
}

// operatorWant is the body of requests about some repos.
type operatorWant struct {
	Org  string `json:"org"`  // only repos of this org
	Repo string `json:"repo"` // only repos of this name
	Now  bool   `json:"now"`  // gc: all of it, at once
	Form string `json:"form"` // export: "mirror" (the default) or "bundle"
}

// picks gives what picks the wanted repos, and what is to be asked afterwards: it is
// ErrRepoNotFound if some were named and there was none.
func (w operatorWant) picks() (picks func(gitstore.RepoInfo) bool, met func() error) {
	found := w.Org == "" && w.Repo == ""
	picks = func(r gitstore.RepoInfo) bool {
		picked := (w.Org == "" || w.Org == r.Org) && (w.Repo == "" || w.Repo == r.Name)
		found = found || picked
		return picked
	}
	return picks, func() error {
		if !found {
			return gitstore.ErrRepoNotFound
		}
		return nil
	}
}

func (s *Server) operatorGC(q *request) error {
	var want operatorWant
	if err := s.readJSON(q, &want); err != nil {
		return err
	}
	return s.stream(q, func(ctx context.Context, st *operatorStream) error {
		wanted, met := want.picks()
		picks := func(r gitstore.RepoInfo) bool {
			if !wanted(r) {
				return false
			}
			_ = st.send(operatorEvent{Type: "progress", Org: r.Org, Repo: r.Name})
			return true
		}
		reports, err := s.Store.GC(ctx, picks, want.Now)
		for _, r := range reports {
			did := gcBody{r.Prune.Dead, r.Prune.Condemned, r.Merged, r.Removed, r.Indexed}
			if serr := st.send(operatorEvent{Type: "gc", Org: r.Repo.Org, Repo: r.Repo.Name, GC: &did}); serr != nil {
				return serr
			}
		}
		if err == nil {
			err = met()
		}
		return err
	})
}

func (s *Server) operatorFsck(q *request) error {
	var want operatorWant
	if err := s.readJSON(q, &want); err != nil {
		return err
	}
	return s.stream(q, func(ctx context.Context, st *operatorStream) error {
		picks, met := want.picks()
		err := s.Store.FsckAll(ctx, picks, func(r gitstore.RepoInfo, found []gitstore.Finding) error {
			e := operatorEvent{Type: "fsck", Org: r.Org, Repo: r.Name}
			for _, f := range found {
				e.Findings = append(e.Findings, findingBody(f))
			}
			return st.send(e)
		})
		if err == nil {
			err = met()
		}
		return err
	})
}

func (s *Server) operatorExport(q *request) error {
	var want operatorWant
	if err := s.readJSON(q, &want); err != nil {
		return err
	}
	if want.Form != "" && want.Form != "mirror" && want.Form != "bundle" {
		return invalid("form is neither mirror nor bundle")
	}
	r, err := s.Store.Repo(q.ctx(), want.Org, want.Repo)
	if err != nil {
		return err
	}
	q.x.repo = want.Repo
	return s.stream(q, func(ctx context.Context, st *operatorStream) error {
		if want.Form == "bundle" {
			if err := st.begin(operatorFile{Name: "bundle"}); err != nil {
				return err
			}
			if err := s.Store.ExportBundle(ctx, r, st); err != nil {
				return err
			}
			return st.end()
		}
		return s.Store.ExportFiles(ctx, r, st.sendFile)
	})
}

// sendFile sends one file of an export.
func (st *operatorStream) sendFile(name string, body io.Reader) error {
	if err := st.begin(operatorFile{Name: name}); err != nil {
		return err
	}
	if _, err := io.CopyBuffer(onlyWriter{st}, struct{ io.Reader }{body}, make([]byte, 128<<10)); err != nil {
		return err
	}
	return st.end()
}

// haveBytes bounds the list of packs that a client of a backup has: 6 million of them.
const haveBytes = 256 << 20

var errNoPackList = invalid("the body is not a list of names of packs")

func (s *Server) operatorBackup(q *request) error {
	skip := q.r.URL.Query().Get("skip_damaged")
	if skip != "" && skip != "true" && skip != "false" {
		return invalid("skip_damaged is neither true nor false")
	}
	have := map[string]bool{}
	if q.r.Body != nil {
		lines := bufio.NewScanner(capReader(q.r.Body, haveBytes, "list of packs"))
		for lines.Scan() {
			name := strings.TrimSpace(lines.Text())
			if name == "" {
				continue
			}
			if err := packs.CheckName(name); err != nil {
				return errNoPackList
			}
			have[name] = true
		}
		if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
			return errNoPackList
		} else if err != nil {
			return err
		}
	}
	return s.stream(q, func(ctx context.Context, st *operatorStream) error {
		return s.Store.Backup(ctx, &backupStream{st, have, skip == "true"})
	})
}
