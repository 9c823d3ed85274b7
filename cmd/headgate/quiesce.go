package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	quietFor   = time.Second      // so long nothing may start or end
	quietLimit = 30 * time.Second // so long it is waited for
	quietLook  = 10 * time.Millisecond
)

var (
	errNotQuiescent = errors.New("not_quiescent: processes or threads keep starting or ending, nothing was captured")
	errNoProcess    = errors.New("there is no such process")
)

// A processTree watches a process and all that descends from it, by what the kernel
// tells under /proc.
type processTree struct {
	proc fs.FS
	root int
}

func newProcessTree(pid int) processTree { return processTree{os.DirFS("/proc"), pid} }

// A member is one process of a tree as it is now.
type member struct {
	pid     int
	started string   // clock ticks since boot: tells it from another one of the same id
	reaped  string   // page faults of children that have ended: a child that came and went between two looks leaves them
	threads []string // ids
}

// await waits until nothing of the tree has started or ended for quiet, at most limit,
// and gives the tree's fingerprint: errNotQuiescent, errNoProcess.
func (t processTree) await(ctx context.Context, quiet, limit time.Duration) (string, error) {
	begun := time.Now()
	last, err := t.fingerprint()
	if err != nil {
		return "", err
	}
	tick := time.NewTicker(quietLook)
	defer tick.Stop()
	for since := begun; ; {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-tick.C:
		}
		now, err := t.fingerprint()
		if err != nil {
			return "", err
		}
		if now != last {
			last, since = now, time.Now()
		}
		switch at := time.Now(); {
		case at.Sub(since) >= quiet:
			return last, nil
		case at.Sub(begun) >= limit:
			return "", errNotQuiescent
		}
	}
}

// fingerprint is a hash over the processes and threads of the tree.
func (t processTree) fingerprint() (string, error) {
	all, err := t.members()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, pid := range slices.Sorted(maps.Keys(all)) {
		m := all[pid]
		fmt.Fprintf(h, "%d %s %s %s\n", pid, m.started, m.reaped, strings.Join(m.threads, ","))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// members are the root and its descendants. A process that ends while they are read is
// left out; the next look tells.
func (t processTree) members() (map[int]member, error) {
	entries, err := fs.ReadDir(t.proc, ".")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	children, found := map[int][]int{}, map[int]member{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if m, parent, ok := t.read(pid); ok {
			found[pid] = m
			children[parent] = append(children[parent], pid)
		}
	}
	if _, ok := found[t.root]; !ok {
		return nil, fmt.Errorf("process %d: %w", t.root, errNoProcess)
	}
	tree := map[int]member{}
	for todo := []int{t.root}; len(todo) > 0; todo = todo[1:] {
		m := found[todo[0]]
		m.threads = t.threads(m.pid)
		tree[m.pid] = m
		todo = append(todo, children[m.pid]...)
	}
	return tree, nil
}

// The fields of proc_pid_stat(5) that are read, counted from the one after the name.
const (
	statParent  = 1
	statReaped  = 8 // cminflt
	statStarted = 19
)

func (t processTree) read(pid int) (m member, parent int, ok bool) {
	text, err := fs.ReadFile(t.proc, strconv.Itoa(pid)+"/stat")
	if err != nil {
		return m, 0, false
	}
	end := bytes.LastIndexByte(text, ')') // the name before it may hold anything
	fields := strings.Fields(string(text[end+1:]))
	if end < 0 || len(fields) <= statStarted {
		return m, 0, false
	}
	parent, err = strconv.Atoi(fields[statParent])
	return member{pid: pid, started: fields[statStarted], reaped: fields[statReaped]}, parent, err == nil
}

func (t processTree) threads(pid int) []string {
	entries, err := fs.ReadDir(t.proc, strconv.Itoa(pid)+"/task")
	if err != nil {
		return nil
	}
	ids := make([]string, len(entries))
	for i, e := range entries {
		ids[i] = e.Name()
	}
	return ids
}
