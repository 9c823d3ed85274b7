package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/redisdb"
)

// redisRows measures nodes on a Redis that syncs every write.
func redisRows(ctx context.Context, w *workshop) ([]row, error) {
	server, err := w.redis(ctx)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(w.dir, "data-redis")
	var nodes []*process
	for range 2 {
		node, err := w.headgate(data, "--ledger", "redis://"+server)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
	}
	r, err := w.newRepoOn(nodes[0], "commits")
	if err != nil {
		return nil, err
	}
	root, err := r.commit("main", statePath, states(1, stateBytes))
	if err != nil {
		return nil, err
	}
	for i := range 2 * manyClients {
		body := fmt.Sprintf(`{"target_branch":"s/%d","base_ref":"main"}`, i)
		if err := r.post(r.path("/branches/create"), "application/json", strings.NewReader(body), nil); err != nil {
			return nil, err
		}
	}
	one := make([]*committer, manyClients)
	both := make([]*committer, manyClients)
	for i := range manyClients {
		one[i] = newCommitter(r, w.connect(nodes[0].address), fmt.Sprintf("s/%d", i), root)
		both[i] = newCommitter(r, w.connect(nodes[i%2].address), fmt.Sprintf("s/%d", manyClients+i), root)
	}
	floor, err := w.start("floor", "commit", "redis://"+server)
	if err != nil {
		return nil, err
	}
	raw := w.newRawBatches(server)
	applies, err := w.redisApplies(ctx, server)
	if err != nil {
		return nil, err
	}
	return []row{
		{name: "redis-apply", work: "ledger.Apply of a commit's batch on a Redis ledger, 32 writers", reference: "raw Lua batches of the same bytes", goal: 0.4, figure: perSecond, ours: applies, theirs: raw.side(w, manyClients)},
		{name: "redis-commit", work: "commit-pack of 1 KiB on a Redis ledger, 32 clients", reference: "floor over raw Lua batches", goal: 0.4, figure: perSecond, ours: w.commits(one, manyClients), theirs: w.commits(w.committers(r, floor.address, root), manyClients)},
		{name: "redis-commit-raw", work: "the same", reference: "raw Lua batches, without HTTP", figure: perSecond, ours: w.commits(one, manyClients), theirs: raw.side(w, manyClients)},
		{name: "redis-two-nodes", work: "the same, the clients on two nodes", reference: "on one node", goal: 0.8, figure: perSecond, ours: w.commits(both, manyClients), theirs: w.commits(one, manyClients)},
	}, nil
}

// redis starts a Redis that has on disk what it has answered.
func (w *workshop) redis(ctx context.Context) (address string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address = l.Addr().String()
	l.Close()
	dir := filepath.Join(w.dir, "redis")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	_, port, _ := net.SplitHostPort(address)
	cmd := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--dir", dir,
		"--appendonly", "yes", "--appendfsync", "always", "--save", "")
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start redis-server: %w", err)
	}
	w.onStop((&process{cmd: cmd}).stop)
	c := redis.NewClient(&redis.Options{Addr: address})
	defer c.Close()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if err = c.Ping(ctx).Err(); err == nil {
			return address, nil
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("redis-server does not answer: %w", err)
		}
	}
}

// rawBatches store what a commit stores, by a script that does nothing else: nothing
// is checked, ordered or remembered.
type rawBatches struct {
	client *redis.Client
	object []byte
}

var rawBatch = redis.NewScript(`
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
redis.call('XADD', KEYS[2], '*', 'd', ARGV[1])
return 1`)

func (w *workshop) newRawBatches(address string) *rawBatches {
	client := redis.NewClient(&redis.Options{Addr: address, PoolSize: 2 * manyClients, Protocol: 2, DisableIdentity: true})
	w.onStop(func() { client.Close() })
	b := &rawBatches{client: client, object: make([]byte, 600)} // a blob of 1 KiB as it is stored
	_, _ = rand.Read(b.object)                                  // never fails
	return b
}

func (b *rawBatches) side(w *workshop, clients int) side {
	return func(ctx context.Context, _ int) (float64, error) {
		return w.rate(ctx, clients, func(client int) error { return b.store(ctx, client) })
	}
}

// store writes one batch of the keys and about the bytes of a commit.
func (b *rawBatches) store(ctx context.Context, client int) error {
	args := []any{b.object[:logBytes]}
	for _, set := range commitSets(b.object, client) {
		args = append(args, set.Key, set.Value)
	}
	return rawBatch.Run(ctx, b.client, []string{"raw:{bench}:values", "raw:{bench}:log"}, args...).Err()
}

const logBytes = 330 // of a commit's log entry

// commitSets are about what a commit writes: blob, tree and commit, by which ref it came,
// where the ref is now. stored is a blob as it is stored, and long enough for the rest.
func commitSets(stored []byte, client int) []ledger.Set {
	var id [20]byte
	_, _ = rand.Read(id[:])
	name, ref := hex.EncodeToString(id[:]), fmt.Sprintf("refs/heads/s/%d", client)
	return []ledger.Set{
		{Key: "hot/b" + name, Value: stored}, {Key: "hot/t" + name, Value: stored[:60]}, {Key: "hot/c" + name, Value: stored[:200]},
		{Key: "born/" + name, Value: []byte(ref)}, {Key: "ref/" + ref, Value: id[:]}, {Key: "tip/" + name + "/" + ref},
	}
}

// redisApplies has writers apply a commit's batch through the ledger, each on its own
// ref, which is checked.
func (w *workshop) redisApplies(ctx context.Context, address string) (side, error) {
	db, err := redisdb.Open(ctx, "redis://"+address, redisdb.Options{})
	if err != nil {
		return nil, err
	}
	w.onStop(func() { db.Close() })
	stored := make([]byte, 600) // a blob of 1 KiB as it is stored
	_, _ = rand.Read(stored)    // never fails
	last := make([][]ledger.Set, manyClients)
	apply := func(client int) error {
		b := ledger.Batch{Space: ledger.RepoSpace("applied"), Sets: commitSets(stored, client), Log: stored[:logBytes]}
		if before := last[client]; before != nil {
			ref, tip := before[4], before[5]
			b.Checks, b.Deletes = []ledger.Check{ledger.Equal(ref.Key, ref.Value)}, []string{tip.Key}
		}
		_, err := db.Apply(ctx, b)
		last[client] = b.Sets
		return err
	}
	return func(ctx context.Context, _ int) (float64, error) { return w.rate(ctx, manyClients, apply) }, nil
}
