package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/httpapi"
	"github.com/headgate/headgate/sessions"
	"github.com/headgate/headgate/tokens"
)

// newKeeper makes the keeper of the node's sessions. The store, whose guard it is,
// is opened after it.
func (n *node) newKeeper(o nodeOptions) *sessions.Keeper {
	return sessions.New(sessions.Options{
		Ledger: n.ledger, Logger: o.log, Limits: o.sessions.ofKeeper(),
		Doors: func(repo sessions.Repo, by sessions.Actor) (sessions.Door, error) {
			// Repos are opened from what the process has in memory, or by a few reads.
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			r, err := n.store.Repo(ctx, repo.Org, repo.Name)
			if err != nil {
				return nil, err
			}
			if id := r.Info().ID; id != repo.ID {
				return nil, fmt.Errorf("open %s/%s: %w: it is another one now", repo.Org, repo.Name, gitstore.ErrRepoNotFound)
			}
			return httpapi.NewDoor(r, gitstore.Caller{Actor: gitstore.Actor(by)}), nil
		},
	})
}

// openServerKeys opens the keys that sign what the server issues, and makes the first.
func (o nodeOptions) openServerKeys() (*tokens.ServerKeys, error) {
	folder := o.keys
	if folder == "" {
		folder = filepath.Join(o.data, serverKeysName)
	}
	return o.authority.openServerKeys(folder, o.log)
}

// reap lets the keeper end sessions whose time has come, until stopReaping.
func (n *node) reap(o nodeOptions) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	n.stopReaping = func() { cancel(); <-ended }
	go func() {
		defer close(ended)
		if err := n.sessions.Run(ctx); ctx.Err() == nil {
			o.log.Error("sessions are no longer looked after", "err", err)
		}
	}()
}
