package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"sync/atomic"
)

// branchRows measures the creation of branches.
func branchRows(ctx context.Context, w *workshop) ([]row, error) {
	r, err := w.newRepo("branches")
	if err != nil {
		return nil, err
	}
	if _, err := r.commit("main", statePath, states(1, stateBytes)); err != nil {
		return nil, err
	}
	clients := make([]*brancher, manyClients)
	for i := range clients {
		clients[i] = newBrancher(r, w.connect(r.server.address), i)
	}
	create := func(n int) side {
		return func(ctx context.Context, _ int) (float64, error) {
			return w.rate(ctx, n, func(client int) error { return clients[client].step() })
		}
	}
	p, err := newPlumbing(ctx, filepath.Join(w.dir, "branches.git"))
	if err != nil {
		return nil, err
	}
	if err := p.commit(ctx); err != nil {
		return nil, err
	}
	var made atomic.Int64
	updateRef := func(n int) side {
		return func(ctx context.Context, _ int) (float64, error) {
			return w.rate(ctx, n, func(int) error {
				_, err := git(ctx, p.dir, nil, "update-ref", fmt.Sprintf("refs/heads/b/%d", made.Add(1)), p.head, zeroID)
				return err
			})
		}
	}
	return []row{
		{name: "branch-1", work: "create a branch, 1 client", reference: "git update-ref", goal: 3, figure: perSecond, ours: create(1), theirs: updateRef(1)},
		{name: "branch-32", work: "create a branch, 32 clients", reference: "git update-ref, one after another", goal: 10, figure: perSecond, ours: create(manyClients), theirs: updateRef(1)},
		{name: "branch-32-side", work: "create a branch, 32 clients", reference: "git update-ref, 32 at once", figure: perSecond, ours: create(manyClients), theirs: updateRef(manyClients)},
	}, nil
}

// A brancher creates branches with a number in the name that is changed in place.
type brancher struct {
	conn    *conn
	request []byte
	serial  []byte
	n       int
}

func newBrancher(r *repo, c *conn, client int) *brancher {
	name := fmt.Sprintf("b/%02d-%010d", client, 0)
	body := fmt.Sprintf(`{"target_branch":%q,"base_ref":"main"}`, name)
	request := message("POST", r.path("/branches/create"), r.bearer(), "application/json", []byte(body))
	end := bytes.LastIndex(request, []byte(name)) + len(name)
	return &brancher{conn: c, request: request, serial: request[end-10 : end]}
}

func (b *brancher) step() error {
	b.n++
	copy(b.serial, fmt.Appendf(nil, "%010d", b.n))
	_, err := b.conn.do(b.request, http.StatusOK)
	return err
}
