package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/ledger/pebbledb"
)

// space is where everything goes, as all branches of a repo share one.
var space = ledger.RepoSpace("floor")

// genKey stands for the one key besides the ref that every write of headgate checks.
const genKey = "gc/gen"

// commits answers commit-pack: it decodes the same lines, makes the same three
// objects and applies one batch of the same keys. It asks for no token, keeps to
// no policy and proves nothing.
type commits struct {
	ledger interface {
		Apply(context.Context, ledger.Batch) (ledger.Result, error)
		Close() error
	}

	mu       sync.Mutex
	branches map[string]*branch
}

// A branch remembers its record, so that the floor need not read it.
type branch struct {
	mu     sync.Mutex
	oid    string
	record []byte
}

// openCommits opens a ledger in a folder, or for redis://HOST:PORT what stores the same
// bytes in that Redis.
func openCommits(where string) (*commits, error) {
	s := &commits{branches: map[string]*branch{}}
	if address, ok := strings.CutPrefix(where, "redis://"); ok {
		s.ledger = openRawRedis(address)
		return s, nil
	}
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	db, err := pebbledb.Open(where, pebbledb.Options{Logger: quiet})
	if err != nil {
		return nil, err
	}
	s.ledger = db
	_, err = db.Apply(context.Background(), ledger.Batch{Space: space, Sets: []ledger.Set{{Key: genKey, Value: []byte("1")}}})
	return s, err
}

func (s *commits) close() { _ = s.ledger.Close() }

func (s *commits) branch(name string) *branch {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.branches[name]
	if b == nil {
		b = &branch{}
		s.branches[name] = b
	}
	return b
}

func (s *commits) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/apply" {
		s.applyAlone(w, r)
		return
	}
	answer, err := s.commit(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(answer)
}

type metadataLine struct {
	Metadata struct {
		TargetBranch string `json:"target_branch"`
		Message      string `json:"commit_message"`
		Expected     string `json:"expected_head_sha"`
		Author       struct {
			Name  string `json:"name"`
			Email string `json:"email"`
		} `json:"author"`
		Files []struct {
			Path      string `json:"path"`
			Operation string `json:"operation"`
			ContentID string `json:"content_id"`
			Mode      string `json:"mode"`
		} `json:"files"`
	} `json:"metadata"`
}

type chunkLine struct {
	Chunk struct {
		ContentID string `json:"content_id"`
		Data      []byte `json:"data"`
		EOF       bool   `json:"eof"`
	} `json:"blob_chunk"`
}

type answer struct {
	Commit struct {
		SHA          string `json:"commit_sha"`
		Tree         string `json:"tree_sha"`
		TargetBranch string `json:"target_branch"`
		PackBytes    int    `json:"pack_bytes"`
		BlobCount    int    `json:"blob_count"`
	} `json:"commit"`
	Result struct {
		Branch       string `json:"branch"`
		TargetBranch string `json:"target_branch"`
		Old          string `json:"old_sha"`
		New          string `json:"new_sha"`
		Success      bool   `json:"success"`
		Status       string `json:"status"`
		Message      string `json:"message"`
	} `json:"result"`
}

func (s *commits) commit(r *http.Request) (*answer, error) {
	var meta metadataLine
	var chunk chunkLine
	lines := json.NewDecoder(r.Body)
	if err := lines.Decode(&meta); err != nil {
		return nil, err
	}
	if err := lines.Decode(&chunk); err != nil {
		return nil, err
	}
	m := &meta.Metadata
	if len(m.Files) != 1 {
		return nil, fmt.Errorf("%d files, want one", len(m.Files))
	}
	b := s.branch(m.TargetBranch)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.oid != "" && b.oid != m.Expected {
		return nil, fmt.Errorf("branch is at %s", b.oid)
	}
	now := time.Now()
	blob := newObject(blobType, chunk.Chunk.Data)
	tree := newObject(treeType, treeOf(m.Files[0].Mode, m.Files[0].Path, blob))
	who := fmt.Sprintf("%s <%s> %d +0000", m.Author.Name, m.Author.Email, now.Unix())
	commit := newObject(commitType, fmt.Appendf(nil, "tree %s\nparent %s\nauthor %s\ncommitter %s\n\n%s\n", tree.hex(), m.Expected, who, who, m.Message))
	record, err := s.apply(r.Context(), m.TargetBranch, m.Expected, b.record, now, blob, tree, commit)
	if err != nil {
		return nil, err
	}
	b.oid, b.record = commit.hex(), record
	var a answer
	a.Commit.SHA, a.Commit.Tree, a.Commit.TargetBranch, a.Commit.BlobCount = b.oid, tree.hex(), m.TargetBranch, 1
	a.Commit.PackBytes = len(blob.data) + len(tree.data) + len(commit.data)
	a.Result.Branch, a.Result.TargetBranch, a.Result.Old, a.Result.New = m.TargetBranch, m.TargetBranch, m.Expected, b.oid
	a.Result.Success, a.Result.Status = true, "ok"
	return &a, nil
}

// apply writes one batch and gives the branch's new record.
func (s *commits) apply(ctx context.Context, branch, old string, before []byte, now time.Time, objects ...object) ([]byte, error) {
	batch, record := batchOf("refs/heads/"+branch, old, before, now, objects)
	_, err := s.ledger.Apply(ctx, batch)
	return record, err
}

func treeOf(mode, path string, blob object) []byte {
	var b bytes.Buffer
	b.WriteString(mode + " " + path + "\x00")
	b.Write(blob.oid[:])
	return b.Bytes()
}
