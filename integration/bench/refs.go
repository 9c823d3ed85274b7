package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

const (
	fewBranches   = 10
	branchesBatch = 1_000 // made by one push
	pairsOfPush   = 31
	ephemeralRefs = "refs/namespaces/ephemeral/refs/heads/"
	// sameCost is the goal of work that has to take at most 1.1 times as long.
	sameCost = 0.91
)

// refsRows measures what many sessions' branches cost: beside a server that shows
// all of them to everybody, and beside a repository of ours that has ten.
func refsRows(ctx context.Context, w *workshop) ([]row, error) {
	many, err := w.newSessions("many", w.branches, nil)
	if err != nil {
		return nil, err
	}
	few, err := w.newSessions("few", fewBranches, many.server)
	if err != nil {
		return nil, err
	}
	rows := w.sameCostRows(many, few)
	address, err := w.plainSessions(ctx, many)
	if err != nil {
		return nil, err
	}
	const reference = "git http-backend, nginx, fcgiwrap"
	ours := gitPeer{w.connect(many.server.address), "/many+ephemeral.git", basicOf(many.own)}
	theirs := gitPeer{w.connect(address), "/" + fixtureName, ""}
	list := lsRefsBody()
	asks := func(p gitPeer, refs int, request []byte) side {
		return func(context.Context, int) (float64, error) {
			return timed(1, func(int) error {
				answer, err := p.conn.do(request, http.StatusOK)
				if got := bytes.Count(answer, []byte(" refs/heads/")); err == nil && got < refs {
					err = fmt.Errorf("answer names %d refs, want %d: %.200q", got, refs, answer)
				}
				return err
			})
		}
	}
	lsRemote := func(remote string) side {
		return func(ctx context.Context, _ int) (float64, error) {
			return timed(1, func(int) error { return gitSkim(ctx, "", "ls-remote", "-q", remote) })
		}
	}
	return append(rows,
		row{name: "refs-info", work: fmt.Sprintf("info/refs of a push, %d session branches, confined token, on the wire", w.branches), reference: reference, goal: 50, figure: perOperation,
			ours: asks(ours, 1, ours.infoRefs("git-receive-pack")), theirs: asks(theirs, w.branches, theirs.infoRefs("git-receive-pack"))},
		row{name: "refs-ls", work: "ls-refs, the same", reference: reference, goal: 50, figure: perOperation,
			ours: asks(ours, 1, ours.lsRefs(list)), theirs: asks(theirs, w.branches, theirs.lsRefs(list))},
		row{name: "refs-ls-remote", work: "git ls-remote, the same", reference: reference, goal: 5, figure: perOperation,
			ours: lsRemote(many.remoteOf(many.own, "+ephemeral")), theirs: lsRemote("http://" + address + "/" + fixtureName)},
		row{name: "refs-ls-remote-normal", work: "git ls-remote of the normal URL", reference: "the same with ten", goal: sameCost, figure: perOperation,
			ours: lsRemote(many.remote()), theirs: lsRemote(few.remote())},
	), nil
}

// sessions is a repo with n sessions' branches, all of them where main is.
type sessions struct {
	*repo
	n    int
	head string
	own  string // a token confined to session 1
}

// newSessions makes the repo on a server, which it starts when there is none, and
// its branches by pushes of a thousand.
func (w *workshop) newSessions(name string, n int, server *process) (s *sessions, err error) {
	s = &sessions{n: n}
	if server == nil {
		s.repo, err = w.newRepo(name)
	} else {
		s.repo, err = w.newRepoOn(server, name)
	}
	if err != nil {
		return nil, err
	}
	if s.head, err = s.commit("main", statePath, states(1, stateBytes)); err != nil {
		return nil, err
	}
	if s.own, err = tokens.Sign(w.key, tokens.Claims{
		Org: org, Subject: "sandbox", Repo: name, Scopes: []tokens.Scope{tokens.GitRead, tokens.GitWrite},
		Refs: []refpolicy.Rule{
			{Pattern: ephemeralRefs + "s/1", Ops: []refpolicy.Op{refpolicy.NoForcePush}},
			{Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoRead}},
		},
		ExpiresAt: time.Now().Add(24 * time.Hour),
	}); err != nil {
		return nil, err
	}
	p := gitPeer{w.connect(s.server.address), "/" + name + "+ephemeral.git", s.basic()}
	begun := time.Now()
	for from := 0; from < n; from += branchesBatch {
		if err := p.createBranches(s.head, from, min(n, from+branchesBatch)); err != nil {
			return nil, err
		}
	}
	fmt.Fprintf(os.Stderr, "bench: %d session branches made in %s\n", n, time.Since(begun).Round(time.Millisecond))
	return s, nil
}

// newRepoOn creates a repo on a running server.
func (w *workshop) newRepoOn(server *process, name string) (*repo, error) {
	token, err := w.token(name)
	if err != nil {
		return nil, err
	}
	r := &repo{server, name, token}
	return r, r.post("/api/repos", "application/json", strings.NewReader("{}"), nil)
}

// createBranches makes the branches s/<from> to s/<to - 1> by one push.
func (p *gitPeer) createBranches(head string, from, to int) error {
	var body []byte
	for i := from; i < to; i++ {
		line := fmt.Sprintf("%s %s refs/heads/s/%d", zeroID, head, i)
		if i == from {
			line += "\x00report-status"
		}
		body = append(body, pktLine(line)...)
	}
	answer, err := p.conn.do(p.receivePack(append(append(body, "0000"...), packOf()...)), http.StatusOK)
	if got := bytes.Count(answer, []byte("ok refs/heads/s/")); err == nil && got != to-from {
		err = fmt.Errorf("%d of %d branches were made: %.300q", got, to-from, answer)
	}
	return err
}

func (s *sessions) remoteOf(token, view string) string {
	return fmt.Sprintf("http://t:%s@%s/%s%s.git", token, s.server.address, s.name, view)
}

// plainSessions serves the same branches as a server would that knows no sessions:
// in one bare repository, its refs packed.
func (w *workshop) plainSessions(ctx context.Context, s *sessions) (address string, err error) {
	root := filepath.Join(w.dir, "plain-sessions")
	plain := filepath.Join(root, fixtureName)
	if _, err := git(ctx, "", nil, "clone", "-q", "--bare", s.remote(), plain); err != nil {
		return "", err
	}
	lines := make([]string, s.n)
	for i := range lines {
		lines[i] = fmt.Sprintf("%s refs/heads/s/%d\n", s.head, i)
	}
	slices.Sort(lines)
	refs := "# pack-refs with: peeled fully-peeled sorted \n" + s.head + " refs/heads/main\n" + strings.Join(lines, "")
	if err := os.WriteFile(filepath.Join(plain, "packed-refs"), []byte(refs), 0o644); err != nil {
		return "", err
	}
	if _, err := git(ctx, plain, nil, "config", "http.receivepack", "true"); err != nil {
		return "", err
	}
	return w.httpBackend(ctx, root)
}

func (p *gitPeer) infoRefs(service string) []byte {
	return message("GET", p.path+"/info/refs?service="+service, p.authorization, "", nil)
}

func (p *gitPeer) lsRefs(body []byte) []byte {
	return message("POST", p.path+"/git-upload-pack", p.authorization, "application/x-git-upload-pack-request", body, "Git-Protocol: version=2")
}

func (p *gitPeer) receivePack(body []byte) []byte {
	return message("POST", p.path+"/git-receive-pack", p.authorization, "application/x-git-receive-pack-request", body)
}

func lsRefsBody() []byte {
	body := append(pktLine("command=ls-refs\n"), pktLine("object-format=sha1")...)
	body = append(append(body, "0001"...), pktLine("peel\n")...)
	return append(append(body, pktLine("symrefs\n")...), "0000"...)
}

// pairs are both sides of a row whose repetition is so many pairs, one piece of work
// on each side in turn; a side's figure is its median. step does a piece and tells
// how long it took.
func pairs(n int, ours, theirs func(context.Context) (time.Duration, error)) (a, b side) {
	var medians [2]float64
	measured := -1
	half := func(which int) side {
		return func(ctx context.Context, rep int) (float64, error) {
			if measured != rep {
				var took [2][]float64
				for i := range 2 * n {
					side := (i + i/2) % 2 // which one goes first alternates
					d, err := []func(context.Context) (time.Duration, error){ours, theirs}[side](ctx)
					if err != nil {
						return 0, err
					}
					took[side] = append(took[side], d.Seconds())
				}
				medians, measured = [2]float64{median(took[0]), median(took[1])}, rep
			}
			return 1 / medians[which], nil
		}
	}
	return half(0), half(1)
}

// sameCostRows are work in a repo with many sessions beside one with ten.
func (w *workshop) sameCostRows(many, few *sessions) []row {
	reference := fmt.Sprintf("the same with %d", fewBranches)
	work := func(name, what string, step func(*sessions) func(context.Context) (time.Duration, error)) row {
		ours, theirs := pairs(pairsOfPush, step(many), step(few))
		return row{name: name, work: fmt.Sprintf("%s, %d session branches", what, many.n), reference: reference, goal: sameCost, figure: perOperation, ours: ours, theirs: theirs}
	}
	return []row{
		work("refs-push", "push on the wire, info/refs and POST, server time", func(s *sessions) func(context.Context) (time.Duration, error) {
			return w.servedPushes(s, gitPeer{w.connect(s.server.address), "/" + s.name + ".git", s.basic()}, "refs/heads/pushed", zeroID)
		}),
		work("refs-push-own", "the same by a confined token", func(s *sessions) func(context.Context) (time.Duration, error) {
			return w.servedPushes(s, gitPeer{w.connect(s.server.address), "/" + s.name + "+ephemeral.git", basicOf(s.own)}, "refs/heads/s/1", s.head)
		}),
		work("refs-create", "create a branch", w.creates),
		work("refs-commit", "commit-pack under compare-and-swap", w.commitsOnSession),
		work("refs-get", "look up a branch", func(s *sessions) func(context.Context) (time.Duration, error) {
			return w.asked(s, "GET", "/branch?ephemeral=true&name=s/7", nil)
		}),
		work("refs-list", "list five branches by prefix", func(s *sessions) func(context.Context) (time.Duration, error) {
			return w.asked(s, "GET", "/branches?ephemeral=true&limit=5&prefix=s/", nil)
		}),
		work("refs-list-created", "list five branches in order of creation", func(s *sessions) func(context.Context) (time.Duration, error) {
			return w.asked(s, "GET", "/branches?ephemeral=true&limit=5", nil)
		}),
		work("refs-delete", "delete a branch", w.deletes),
	}
}

// servedPushes pushes one small commit at a time and tells how long the server worked
// for it, by its metrics.
func (w *workshop) servedPushes(s *sessions, p gitPeer, branch, tip string) func(context.Context) (time.Duration, error) {
	push := &wirePush{gitPeer: p, branch: branch, tip: tip, parent: s.head}
	ask := p.infoRefs("git-receive-pack")
	metrics := w.connect(s.server.address)
	return func(context.Context) (time.Duration, error) {
		before, err := served(metrics)
		if err != nil {
			return 0, err
		}
		if _, err := p.conn.skim(ask, http.StatusOK); err != nil {
			return 0, err
		}
		if err := push.step(); err != nil {
			return 0, err
		}
		after, err := served(metrics)
		return time.Duration((after - before) * float64(time.Second)), err
	}
}

// served is how many seconds a server has worked for pushes and the asking before them.
func served(c *conn) (seconds float64, err error) {
	text, err := c.do(message("GET", "/metrics", "", "", nil), http.StatusOK)
	if err != nil {
		return 0, err
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		for _, route := range []string{"git.refs", "git.push"} {
			if v, ok := strings.CutPrefix(lines.Text(), fmt.Sprintf("headgate_request_seconds_sum{route=%q} ", route)); ok {
				s, perr := strconv.ParseFloat(v, 64)
				seconds, err = seconds+s, errors.Join(err, perr)
			}
		}
	}
	return seconds, errors.Join(err, lines.Err())
}

// asked is one request on a connection of its own, again and again.
func (w *workshop) asked(s *sessions, method, tail string, body []byte) func(context.Context) (time.Duration, error) {
	c := w.connect(s.server.address)
	request := message(method, s.path(tail), s.bearer(), "application/json", body)
	return func(context.Context) (time.Duration, error) { return c.took(request, http.StatusOK) }
}

// took is how long a request takes until its answer is there.
func (c *conn) took(request []byte, want int) (time.Duration, error) {
	begun := time.Now()
	_, err := c.do(request, want)
	return time.Since(begun), err
}

// creates makes another branch each time.
func (w *workshop) creates(s *sessions) func(context.Context) (time.Duration, error) {
	c, n := w.connect(s.server.address), 0
	return func(context.Context) (time.Duration, error) {
		n++
		body := fmt.Sprintf(`{"target_branch":"made/%d","base_ref":"main","target_is_ephemeral":true}`, n)
		return c.took(message("POST", s.path("/branches/create"), s.bearer(), "application/json", []byte(body)), http.StatusOK)
	}
}

// deletes deletes one branch after another, each just made.
func (w *workshop) deletes(s *sessions) func(context.Context) (time.Duration, error) {
	c, n := w.connect(s.server.address), 0
	return func(context.Context) (time.Duration, error) {
		n++
		create := fmt.Sprintf(`{"target_branch":"gone/%d","base_ref":"main","target_is_ephemeral":true}`, n)
		if _, err := c.do(message("POST", s.path("/branches/create"), s.bearer(), "application/json", []byte(create)), http.StatusOK); err != nil {
			return 0, err
		}
		body := fmt.Sprintf(`{"target_branch":"gone/%d","ephemeral":true}`, n)
		return c.took(message("DELETE", s.path("/branches"), s.bearer(), "application/json", []byte(body)), http.StatusOK)
	}
}

// commitsOnSession commits to session 2, each time on what it wrote before.
func (w *workshop) commitsOnSession(s *sessions) func(context.Context) (time.Duration, error) {
	const branch = "own"
	made := false
	var c *committer
	return func(context.Context) (time.Duration, error) {
		if !made {
			body := fmt.Sprintf(`{"target_branch":%q,"base_ref":"main"}`, branch)
			if err := s.post(s.path("/branches/create"), "application/json", strings.NewReader(body), nil); err != nil {
				return 0, err
			}
			made, c = true, newCommitter(s.repo, w.connect(s.server.address), branch, s.head)
		}
		begun := time.Now()
		err := c.step()
		return time.Since(begun), err
	}
}
