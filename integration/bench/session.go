package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Forks of the rows about forks make so many children.
const forkedAtOnce = 1_000

// sessionSettings let one fork make that many, and one repo hold them all.
const sessionSettings = settings + "[sessions]\nmax_fork_n = 1_000\nmax_live = 5_000_000\nreap_every = \"100ms\"\n"

// sessionRows measures sessions beside bare branches: what the record, the lease and
// the tokens cost.
func sessionRows(ctx context.Context, w *workshop) ([]row, error) {
	r, err := w.newSessionRepo("sessions")
	if err != nil {
		return nil, err
	}
	branches := newBrancher(r, w.connect(r.server.address), 99)
	makers := make([]*sessionMaker, manyClients)
	many := make([]*brancher, manyClients)
	for i := range makers {
		makers[i] = newSessionMaker(r, w.connect(r.server.address), i)
		many[i] = newBrancher(r, w.connect(r.server.address), i)
	}
	create := func(n int) side {
		return func(ctx context.Context, _ int) (float64, error) {
			return w.rate(ctx, n, func(i int) error { return makers[i].step() })
		}
	}
	branch := func(n int) side {
		return func(ctx context.Context, _ int) (float64, error) {
			return w.rate(ctx, n, func(i int) error { return many[i].step() })
		}
	}
	oneBranch := func(ctx context.Context, _ int) (float64, error) {
		return w.rate(ctx, 1, func(int) error { return branches.step() })
	}
	parent, err := makers[0].made()
	if err != nil {
		return nil, err
	}
	return []row{
		{name: "session-create-1", work: "create a session with branch, record, lease and log entry, 1 client", reference: "create a branch", goal: 0.7, figure: perSecond, ours: create(1), theirs: branch(1)},
		{name: "session-create-32", work: "the same, 32 clients", reference: "create a branch, 32 clients", goal: 0.7, figure: perSecond, ours: create(manyClients), theirs: branch(manyClients)},
		{name: "session-fork-tokens", work: "fork(1,000) with tokens, children", reference: "create one session after another", goal: 15, figure: perSecond, ours: w.forks(r, parent, true), theirs: create(1)},
		{name: "session-fork", work: "fork(1,000) without tokens, children", reference: "create one session after another", goal: 50, figure: perSecond, ours: w.forks(r, parent, false), theirs: create(1)},
		{name: "session-token", work: "issue a token", reference: "create a branch", goal: 0.8, figure: perSecond, ours: w.issues(r, parent), theirs: oneBranch},
	}, nil
}

// newSessionRepo starts a server whose limits let sessions be made by thousands, and
// makes a repo with one commit there.
func (w *workshop) newSessionRepo(name string) (*repo, error) {
	config := filepath.Join(w.dir, "sessions.toml")
	if err := os.WriteFile(config, []byte(sessionSettings), 0o600); err != nil {
		return nil, err
	}
	server, err := w.start("headgate", "serve", "--listen", "127.0.0.1:0", "--data", filepath.Join(w.dir, "data-"+name), "--config", config, "--trust", org+"="+w.publicKey())
	if err != nil {
		return nil, err
	}
	r, err := w.newRepoOn(server, name)
	if err != nil {
		return nil, err
	}
	_, err = r.commit("main", statePath, states(1, stateBytes))
	return r, err
}

// A sessionMaker creates sessions with a number in the id that is changed in place.
type sessionMaker struct {
	conn    *conn
	request []byte
	serial  []byte
	n       int
}

func newSessionMaker(r *repo, c *conn, client int) *sessionMaker {
	id := fmt.Sprintf("c%02d-%010d", client, 0)
	body := fmt.Sprintf(`{"id":%q,"base_ref":"main","holder":"bench"}`, id)
	request := message("POST", r.path("/sessions"), r.bearer(), "application/json", []byte(body))
	end := bytes.LastIndex(request, []byte(id)) + len(id)
	return &sessionMaker{conn: c, request: request, serial: request[end-10 : end]}
}

func (m *sessionMaker) step() error {
	_, err := m.made()
	return err
}

// made is step, and tells the session's id.
func (m *sessionMaker) made() (id string, err error) {
	m.n++
	copy(m.serial, fmt.Appendf(nil, "%010d", m.n))
	answer, err := m.conn.do(m.request, http.StatusCreated)
	if err != nil {
		return "", err
	}
	var session struct {
		ID string `json:"id"`
	}
	return session.ID, json.Unmarshal(answer, &session)
}

// forks makes one fork and tells how many children that is in a second.
func (w *workshop) forks(r *repo, parent string, withTokens bool) side {
	c := w.connect(r.server.address)
	token := ""
	if withTokens {
		token = `,"token":{}`
	}
	body := fmt.Sprintf(`{"n":%d,"keep_state":false%s}`, forkedAtOnce, token)
	request := message("POST", r.path("/sessions/"+parent+"/fork"), r.bearer(), "application/json", []byte(body))
	return func(context.Context, int) (float64, error) {
		perFork, err := timed(1, func(int) error {
			answer, err := c.do(request, http.StatusCreated)
			if err != nil {
				return err
			}
			if got := bytes.Count(answer, []byte(`"ephemeral_remote_url"`)); withTokens && got != forkedAtOnce {
				return fmt.Errorf("the fork has %d tokens: %.300s", got, answer)
			}
			return nil
		})
		return perFork * forkedAtOnce, err
	}
}

// issues issues tokens for one session.
func (w *workshop) issues(r *repo, session string) side {
	c := w.connect(r.server.address)
	request := message("POST", r.path("/sessions/"+session+"/tokens"), r.bearer(), "application/json", []byte(`{}`))
	return func(ctx context.Context, _ int) (float64, error) {
		return w.rate(ctx, 1, func(int) error {
			_, err := c.do(request, http.StatusCreated)
			return err
		})
	}
}

// recordRows measures what many records of sessions cost: work in a repo that has
// them beside the same in one that has a thousand.
func recordRows(ctx context.Context, w *workshop) ([]row, error) {
	many, err := w.newSessionRepo("records")
	if err != nil {
		return nil, err
	}
	few, err := w.newRepoOn(many.server, "fewrecords")
	if err != nil {
		return nil, err
	}
	if _, err := few.commit("main", statePath, states(1, stateBytes)); err != nil {
		return nil, err
	}
	reference := fmt.Sprintf("the same with %d", forkedAtOnce)
	var rows []row
	stores := []*records{{repo: many}, {repo: few}}
	// The few first: both are on disk when they are measured, and not one in memory alone.
	for i, n := range []int{forkedAtOnce, w.records} {
		if err := stores[1-i].fill(w, n); err != nil {
			return nil, err
		}
	}
	work := func(name, what string, step func(*records) func(context.Context) (time.Duration, error)) {
		ours, theirs := pairs(pairsOfPush, step(stores[0]), step(stores[1]))
		rows = append(rows, row{
			name: name, work: fmt.Sprintf("%s, %d session records", what, w.records), reference: reference,
			goal: sameRecordCost, figure: perOperation, ours: ours, theirs: theirs,
		})
	}
	ask := func(method, tail string) func(*records) func(context.Context) (time.Duration, error) {
		return func(s *records) func(context.Context) (time.Duration, error) {
			c := w.connect(s.server.address)
			return func(context.Context) (time.Duration, error) {
				path := strings.ReplaceAll(tail, "{id}", s.next())
				return c.took(message(method, s.path(path), s.bearer(), "", nil), http.StatusOK)
			}
		}
	}
	work("records-list", "a page of 100 sessions", ask("GET", "/sessions?limit=100"))
	work("records-list-label", "a page of 100 of one label", ask("GET", "/sessions?limit=100&label=fleet:a"))
	work("records-get", "get a session", ask("GET", "/sessions/{id}"))
	work("records-end", "end a session", ask("DELETE", "/sessions/{id}"))
	work("records-expire", "expire a session, from its time to its end", w.expires)
	return rows, nil
}

// sameRecordCost is the goal of work that has to take at most 1.2 times as long.
const sameRecordCost = 0.83

// records is a repo with many sessions, and some of their ids.
type records struct {
	*repo
	ids []string
	n   int
}

// next is an id that was not told before.
func (s *records) next() string {
	s.n++
	return s.ids[s.n%len(s.ids)]
}

// fill makes n sessions by forks.
func (s *records) fill(w *workshop, n int) error {
	c := w.connect(s.server.address)
	begun := time.Now()
	answer, err := c.do(message("POST", s.path("/sessions"), s.bearer(), "application/json", []byte(`{"base_ref":"main"}`)), http.StatusCreated)
	if err != nil {
		return err
	}
	var parent struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(answer, &parent); err != nil {
		return err
	}
	for made := 0; made < n; made += forkedAtOnce {
		body := fmt.Sprintf(`{"n":%d,"labels":{"fleet":"a"}}`, min(n-made, forkedAtOnce))
		answer, err := c.do(message("POST", s.path("/sessions/"+parent.ID+"/fork"), s.bearer(), "application/json", []byte(body)), http.StatusCreated)
		if err != nil {
			return err
		}
		var fork struct {
			Children []struct {
				Session struct {
					ID string `json:"id"`
				} `json:"session"`
			} `json:"children"`
		}
		if err := json.Unmarshal(answer, &fork); err != nil {
			return err
		}
		if len(s.ids) < 20_000 {
			for _, child := range fork.Children {
				s.ids = append(s.ids, child.Session.ID)
			}
		}
	}
	fmt.Fprintf(os.Stderr, "bench: %d sessions made in %s\n", n, time.Since(begun).Round(time.Millisecond))
	return nil
}

// expires makes a session whose time is up after a second, and tells how long after
// that it is seen to have ended.
func (w *workshop) expires(s *records) func(context.Context) (time.Duration, error) {
	const life = time.Second
	c := w.connect(s.server.address)
	return func(ctx context.Context) (time.Duration, error) {
		begun := time.Now()
		answer, err := c.do(message("POST", s.path("/sessions"), s.bearer(), "application/json", []byte(`{"base_ref":"main","ttl_s":1}`)), http.StatusCreated)
		if err != nil {
			return 0, err
		}
		var session struct {
			ID    string `json:"id"`
			State string `json:"state"`
		}
		for err == nil && ctx.Err() == nil {
			if err = json.Unmarshal(answer, &session); err != nil {
				break
			}
			if session.State == "ended" {
				return time.Since(begun) - life, nil
			}
			time.Sleep(time.Millisecond)
			answer, err = c.do(message("GET", s.path("/sessions/"+session.ID), s.bearer(), "", nil), http.StatusOK)
		}
		return 0, errors.Join(err, ctx.Err())
	}
}
