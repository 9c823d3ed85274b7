//go:build ignore

// gogit is go-git as a client, driven by the tests: one request a line on standard
// input, one answer a line on standard output, both JSON. What went wrong is the
// answer's error; the process ends with its input. It is no part of any package, so
// that what go-git needs as a client stands in nobody's imports.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/memory"
)

type request struct {
	Do                                  string
	URL, Dir, Path, Text, Name, Message string
	Depth                               int
	Specs                               []config.RefSpec
}

type answer struct {
	Error string            `json:"error,omitempty"`
	OID   string            `json:"oid,omitempty"`
	Refs  map[string]string `json:"refs,omitempty"`
}

// authority is the test CA, empty without one.
var authority []byte

func main() {
	if file := os.Getenv("GIT_SSL_CAINFO"); file != "" {
		var err error
		if authority, err = os.ReadFile(file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	lines, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var r request
		var a answer
		err := json.Unmarshal(lines.Bytes(), &r)
		if err == nil {
			err = r.run(&a)
		}
		if err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			os.Exit(1)
		}
	}
}

func (r *request) run(a *answer) error {
	switch r.Do {
	case "clone":
		_, err := git.PlainClone(r.Dir, false, &git.CloneOptions{URL: r.URL, Depth: r.Depth, CABundle: authority})
		return err
	case "refs":
		return r.refs(a)
	}
	repo, err := git.PlainOpen(r.Dir)
	if err != nil {
		return err
	}
	switch r.Do {
	case "fetch":
		err := repo.Fetch(&git.FetchOptions{CABundle: authority})
		if errors.Is(err, git.NoErrAlreadyUpToDate) {
			return nil
		}
		return err
	case "commit":
		return r.commit(repo, a)
	case "tag":
		return r.tag(repo)
	case "push":
		return repo.Push(&git.PushOptions{RefSpecs: r.Specs, CABundle: authority})
	}
	return errors.New("unknown operation " + r.Do)
}

func ada() *object.Signature {
	return &object.Signature{Name: "Ada", Email: "ada@example.com", When: time.Now()}
}

func (r *request) refs(a *answer) error {
	remote := git.NewRemote(memory.NewStorage(), &config.RemoteConfig{Name: "origin", URLs: []string{r.URL}})
	refs, err := remote.List(&git.ListOptions{CABundle: authority, PeelingOption: git.AppendPeeled})
	a.Refs = map[string]string{}
	for _, ref := range refs {
		a.Refs[ref.Name().String()] = ref.Hash().String()
	}
	for _, ref := range refs {
		if ref.Type() == plumbing.SymbolicReference {
			a.Refs[ref.Name().String()] = a.Refs[ref.Target().String()]
		}
	}
	return err
}

func (r *request) commit(repo *git.Repository, a *answer) error {
	if err := os.WriteFile(filepath.Join(r.Dir, r.Path), []byte(r.Text), 0o644); err != nil {
		return err
	}
	tree, err := repo.Worktree()
	if err != nil {
		return err
	}
	if _, err := tree.Add(r.Path); err != nil {
		return err
	}
	oid, err := tree.Commit("work on "+r.Path+"\n", &git.CommitOptions{Author: ada()})
	a.OID = oid.String()
	return err
}

func (r *request) tag(repo *git.Repository) error {
	head, err := repo.Head()
	if err != nil {
		return err
	}
	var o *git.CreateTagOptions
	if r.Message != "" {
		o = &git.CreateTagOptions{Tagger: ada(), Message: r.Message}
	}
	_, err = repo.CreateTag(r.Name, head.Hash(), o)
	return err
}
