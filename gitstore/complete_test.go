package gitstore

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// readPath reads a file by commit and path.
func readPath(ctx context.Context, r *Repo, commit refpolicy.OID, path string) (string, error) {
	f, err := r.File(ctx, commit, path)
	if err != nil {
		return "", err
	}
	body, err := f.Open(ctx)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(body)
	return string(b), errors.Join(err, body.Close())
}

func wantFile(t testing.TB, r *Repo, commit refpolicy.OID, path, want string) {
	t.Helper()
	got, err := readPath(context.Background(), r, commit, path)
	if err != nil || got != want {
		t.Errorf("%s at %s is %.40q, %v; want %.40q", path, commit, got, err, want)
	}
}

// completeness walks everything that refs lead to and reads and hashes each object
// as it is stored, past all caches.
type completeness struct {
	r    *Repo
	seen map[refpolicy.OID]bool
}

// checkComplete reports the first object that a ref leads to and that is missing or
// not what its name says.
func checkComplete(ctx context.Context, r *Repo) error {
	refs, err := r.Refs(ctx, Caller{}, "refs/", "", 0)
	if err != nil {
		return err
	}
	c := completeness{r, map[refpolicy.OID]bool{}}
	for _, ref := range refs {
		if err := c.walk(ctx, ref.OID); err != nil {
			return fmt.Errorf("%s: %w", ref.Name, err)
		}
	}
	return nil
}

func (c completeness) walk(ctx context.Context, tip refpolicy.OID) error {
	stack := []refpolicy.OID{tip}
	for len(stack) > 0 {
		oid := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if c.seen[oid] || oid == emptyTree {
			continue
		}
		c.seen[oid] = true
		next, err := c.look(ctx, oid)
		if err != nil {
			return err
		}
		stack = append(stack, next...)
	}
	return nil
}

// look reads one object, hashes it, and tells what it leads to.
func (c completeness) look(ctx context.Context, oid refpolicy.OID) ([]refpolicy.OID, error) {
	typ, size, rc, err := c.r.stream(ctx, oid)
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", typ, size)
	data, err := io.ReadAll(io.TeeReader(rc, h))
	if err != nil {
		return nil, fmt.Errorf("read %s %s: %w", typ, oid, err)
	}
	if got := refpolicy.OID(h.Sum(nil)); got != oid {
		return nil, fmt.Errorf("%s %s has the bytes of %s", typ, oid, got)
	}
	switch typ {
	case CommitObject:
		header, _, err := parseCommitHeader(data)
		return append(header.parents, header.tree), err
	case TagObject:
		t, err := parseTag(data)
		return []refpolicy.OID{t.object}, err
	case TreeObject:
		entries, err := parseTree(data)
		var next []refpolicy.OID
		for _, e := range entries {
			if e.mode != ModeSubmodule {
				next = append(next, e.oid)
			}
		}
		return next, err
	}
	return nil, nil
}
