package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	manyClients = 32
	stateBytes  = 1 << 10 // of a session's state, one file
	statePath   = "state.json"
	zeroID      = "0000000000000000000000000000000000000000"
)

// newBranchedRepo starts a server with a repo that has one commit, root, and a branch
// at it for each of many clients: s/0, s/1 and so on.
func (w *workshop) newBranchedRepo(name string) (r *repo, root string, err error) {
	if r, err = w.newRepo(name); err != nil {
		return nil, "", err
	}
	if root, err = r.commit("main", statePath, states(1, stateBytes)); err != nil {
		return nil, "", err
	}
	for i := range manyClients {
		body := fmt.Sprintf(`{"target_branch":"s/%d","base_ref":"main"}`, i)
		if err := r.post(r.path("/branches/create"), "application/json", strings.NewReader(body), nil); err != nil {
			return nil, "", err
		}
	}
	return r, root, nil
}

// commitRows measures commits of one small file under compare-and-swap.
func commitRows(ctx context.Context, w *workshop) ([]row, error) {
	r, root, err := w.newBranchedRepo("commits")
	if err != nil {
		return nil, err
	}
	floor, err := w.start("floor", "commit", filepath.Join(w.dir, "data-floor"))
	if err != nil {
		return nil, err
	}
	ours, theirs := w.committers(r, r.server.address, root), w.committers(r, floor.address, root)
	plumbing, err := newPlumbing(ctx, filepath.Join(w.dir, "plumbing.git"))
	if err != nil {
		return nil, err
	}
	one, many := w.commits(ours, 1), w.commits(ours, manyClients)
	return []row{
		{name: "commit-1", work: "commit-pack, one file of 1 KiB, 1 client", reference: "floor", goal: 0.6, figure: perSecond, ours: one, theirs: w.commits(theirs, 1)},
		{name: "commit-32", work: "the same, 32 clients on 32 branches", reference: "floor", goal: 0.6, least: 2000, figure: perSecond, ours: many, theirs: w.commits(theirs, manyClients)},
		{name: "commit-apply-1", work: "the same, 1 client", reference: "raw ledger.Apply", figure: perSecond, ours: one, theirs: w.applies(floor.address, 1)},
		{name: "commit-apply-32", work: "the same, 32 clients", reference: "raw ledger.Apply", figure: perSecond, ours: many, theirs: w.applies(floor.address, manyClients)},
		{name: "commit-git", work: "the same, 1 client", reference: "hash-object, mktree, commit-tree, update-ref", goal: 10, figure: perSecond, ours: one,
			theirs: func(ctx context.Context, _ int) (float64, error) {
				return w.rate(ctx, 1, func(int) error { return plumbing.commit(ctx) })
			}},
	}, nil
}

// committers are clients with a branch each that stands at root.
func (w *workshop) committers(r *repo, address, root string) []*committer {
	all := make([]*committer, manyClients)
	for i := range all {
		all[i] = newCommitter(r, w.connect(address), fmt.Sprintf("s/%d", i), root)
	}
	return all
}

func (w *workshop) commits(all []*committer, clients int) side {
	return func(ctx context.Context, _ int) (float64, error) {
		return w.rate(ctx, clients, func(client int) error { return all[client].step() })
	}
}

// A committer commits to one branch, each time on what it wrote before. Its request
// is made once; the guard and a few digits of the content are changed in place.
type committer struct {
	conn    *conn
	request []byte
	guard   []byte // of request: the expected head
	serial  []byte // of request: digits within the content's base64
	n       uint64
}

func newCommitter(r *repo, c *conn, branch, head string) *committer {
	body := append(metadataLine(branch, statePath, head), chunkLine(states(2, stateBytes), true)...)
	request := message("POST", r.path("/commit-pack"), r.bearer(), "application/x-ndjson", body)
	guard := bytes.LastIndex(request, []byte(head))
	const before = `"data":"`
	serial := bytes.LastIndex(request, []byte(before)) + len(before)
	return &committer{
		conn: c, request: request,
		guard: request[guard : guard+len(head)], serial: request[serial : serial+12],
		n: uint64(time.Now().UnixNano()) & 0xffffffff,
	}
}

var shaMember = []byte(`"commit_sha":"`)

func (c *committer) step() error {
	c.n++
	copy(c.serial, fmt.Appendf(nil, "%012x", c.n))
	answer, err := c.conn.do(c.request, http.StatusCreated)
	if err != nil {
		return err
	}
	at := bytes.Index(answer, shaMember)
	if at < 0 || len(answer) < at+len(shaMember)+40 {
		return fmt.Errorf("answer without a commit: %.300s", answer)
	}
	copy(c.guard, answer[at+len(shaMember):])
	return nil
}

// applies has the floor apply batches like those of its commits, without HTTP.
func (w *workshop) applies(address string, clients int) side {
	return func(context.Context, int) (float64, error) {
		answer, err := http.Get(fmt.Sprintf("http://%s/apply?clients=%d&for=%s", address, clients, w.span))
		if err != nil {
			return 0, err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			return 0, err
		}
		return strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	}
}

// plumbing makes commits as a script would: with git's commands, a process each.
type plumbing struct {
	dir  string
	head string
	n    uint64
}

func newPlumbing(ctx context.Context, dir string) (*plumbing, error) {
	if _, err := git(ctx, "", nil, "init", "-q", "--bare", dir); err != nil {
		return nil, err
	}
	return &plumbing{dir: dir, head: zeroID}, nil
}

func (p *plumbing) commit(ctx context.Context) error {
	p.n++
	blob, err := git(ctx, p.dir, bytes.NewReader(states(p.n, stateBytes)), "hash-object", "-w", "--stdin")
	if err != nil {
		return err
	}
	tree, err := git(ctx, p.dir, strings.NewReader("100644 blob "+blob+"\t"+statePath+"\n"), "mktree")
	if err != nil {
		return err
	}
	args := []string{"commit-tree", tree}
	if p.head != zeroID {
		args = append(args, "-p", p.head)
	}
	commit, err := git(ctx, p.dir, strings.NewReader("step\n"), args...)
	if err != nil {
		return err
	}
	_, err = git(ctx, p.dir, nil, "update-ref", "refs/heads/main", commit, p.head)
	p.head = commit
	return err
}
