package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/httpapi"
	"github.com/headgate/headgate/sessions"
	"github.com/headgate/headgate/sessions/snapshot"
	"github.com/headgate/headgate/tokens"
)

// newKeeper makes the keeper of the node's sessions. The store, whose guard it is,
// is opened after it.
func (n *node) newKeeper(o nodeOptions) *sessions.Keeper {
	return sessions.New(sessions.Options{
		Ledger: n.ledger, Logger: o.log, Limits: o.sessions.ofKeeper(),
		Doors: func(repo sessions.Repo, by sessions.Actor) (sessions.Door, error) {
			r, err := n.openRepo(repo.Org, repo.Name, repo.ID)
			if err != nil {
				return nil, err
			}
			return httpapi.NewDoor(r, gitstore.Caller{Actor: gitstore.Actor(by)}), nil
		},
	})
}

// newSnapshots makes the keeper of the node's snapshots, beside that of its sessions.
func (n *node) newSnapshots(o nodeOptions) *snapshot.Keeper {
	return snapshot.New(snapshot.Options{
		Ledger: n.ledger, Logger: o.log, Limits: o.snapshots.ofKeeper(), Users: httpapi.NewSnapshotUsers(n.sessions),
		Repos: func(repo snapshot.RepoID, by snapshot.Actor) (snapshot.Repo, error) {
			r, err := n.openRepo(repo.Org, repo.Name, repo.ID)
			if err != nil {
				return nil, err
			}
			return httpapi.NewSnapshotRepo(r, gitstore.Caller{Actor: gitstore.Actor(by)}), nil
		},
	})
}

// openRepo opens a repo for a keeper's own work, from what the process has in memory or
// by a few reads.
func (n *node) openRepo(org, name, id string) (*gitstore.Repo, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := n.store.Repo(ctx, org, name)
	if err != nil {
		return nil, err
	}
	if r.Info().ID != id {
		return nil, fmt.Errorf("open %s/%s: %w: it is another one now", org, name, gitstore.ErrRepoNotFound)
	}
	return r, nil
}

// openServerKeys opens the keys that sign what the server issues, and makes the first.
func (o nodeOptions) openServerKeys() (*tokens.ServerKeys, error) {
	folder := o.keys
	if folder == "" {
		folder = filepath.Join(o.data, serverKeysName)
	}
	return o.authority.openServerKeys(folder, o.log)
}

// reap lets the keepers end what time has come for, until stopReaping.
func (n *node) reap(o nodeOptions) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	n.stopReaping = func() { cancel(); running.Wait() }
	for what, run := range map[string]func(context.Context) error{"sessions": n.sessions.Run, "snapshots": n.snapshots.Run} {
		running.Go(func() {
			if err := run(ctx); ctx.Err() == nil {
				o.log.Error(what+" are no longer looked after", "err", err)
			}
		})
	}
}
