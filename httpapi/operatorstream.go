package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"net/http"
	"sync"
	"time"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/gitstore/ledger"
)

// The answer to an operator's request is a stream of events, a line of JSON each. A
// "data" event is followed by as many raw bytes as it says. While nothing else is to
// be told there is a "progress" event now and then, so that nobody between takes the
// connection for dead. The last event is a "result" or an "error": a stream without
// either was cut. package client reads it.
type operatorEvent struct {
	Type string `json:"type"` // progress, gc, fsck, file, data, end, keep, drop, damaged, result, error

	Org      string        `json:"org,omitempty"` // gc, fsck, progress, damaged: the repo it is about
	Repo     string        `json:"repo,omitempty"`
	GC       *gcBody       `json:"gc,omitempty"`       // gc: what was done
	Findings []findingBody `json:"findings,omitempty"` // fsck: nothing for a sound repo

	File   *operatorFile `json:"file,omitempty"`   // file: what begins
	Bytes  int           `json:"bytes,omitempty"`  // data: that follow
	SHA256 string        `json:"sha256,omitempty"` // end: of the file that ends
	Pack   string        `json:"pack,omitempty"`   // keep: a pack that the client said it has; Repo is its repo's id
	Space  []byte        `json:"space,omitempty"`  // drop: a space to be forgotten
	ID     string        `json:"id,omitempty"`     // damaged: of a repo that the backup goes on without

	Code  string `json:"code,omitempty"`  // error
	Error string `json:"error,omitempty"` // error, damaged: what went wrong, in full
}

// An operatorFile says what a file is: of an export by its name, of a backup by the rest.
type operatorFile struct {
	Name  string `json:"name,omitempty"`
	Kind  string `json:"kind,omitempty"`
	Space []byte `json:"space,omitempty"`
	Repo  string `json:"repo,omitempty"` // the repo's id
	Pack  string `json:"pack,omitempty"`
	Size  int64  `json:"size,omitempty"` // bytes; -1: not known
}

// gcBody is what upkeep did to a repo.
type gcBody struct {
	Dead      int  `json:"dead"`      // objects that are gone
	Condemned int  `json:"condemned"` // packs that were rewritten
	Merged    int  `json:"merged"`    // packs that were united with others
	Removed   int  `json:"removed"`   // packs whose files were removed
	Indexed   bool `json:"indexed"`   // the index over the packs was written anew
}

// findingBody is a piece of damage.
type findingBody struct {
	Kind    gitstore.FindingKind `json:"kind"`
	Subject string               `json:"subject"`
	Detail  string               `json:"detail"`
}

// operatorBeat is how long a stream may be silent.
const operatorBeat = 5 * time.Second

// An operatorStream writes events. It is safe for concurrent use.
type operatorStream struct {
	x    *exchange
	stop context.CancelCauseFunc // ends the work when nobody takes what it tells

	mu     sync.Mutex // guards all below, and x
	silent bool       // nothing was sent since the last beat
	err    error      // of the connection

	file hash.Hash // of the file that is being sent; the worker's own
}

var _ gitstore.BackupSink = (*backupStream)(nil)

// stream answers with the events of work. What work ends with is the last event.
func (s *Server) stream(q *request, work func(context.Context, *operatorStream) error) error {
	ctx, stop := context.WithCancelCause(q.ctx())
	defer stop(nil)
	h := q.x.Header()
	h["Content-Type"] = []string{"application/x-ndjson"}
	h["Cache-Control"] = []string{"no-store"}
	h["X-Accel-Buffering"] = []string{"no"}
	q.x.WriteHeader(http.StatusOK)
	st := &operatorStream{x: q.x, stop: stop}
	_ = st.send(operatorEvent{Type: "progress"}) // what the client hears of at once
	var beating sync.WaitGroup
	done := make(chan struct{})
	beating.Go(func() { st.beat(done) })
	err := work(ctx, st)
	close(done)
	beating.Wait()
	last := operatorEvent{Type: "result"}
	if err != nil {
		q.x.failure = err
		last = operatorEvent{Type: "error", Code: problemOf(err).code, Error: err.Error()}
	}
	_ = st.send(last)
	return nil
}

func (st *operatorStream) beat(done <-chan struct{}) {
	t := time.NewTicker(operatorBeat)
	defer t.Stop()
	for {
		select {
		case <-done:
			return
		case <-t.C:
		}
		st.tick()
	}
}

// tick tells that the stream lives if it was silent since the last tick.
func (st *operatorStream) tick() {
	st.mu.Lock()
	silent := st.silent
	st.silent = true
	st.mu.Unlock()
	if silent {
		_ = st.send(operatorEvent{Type: "progress"})
	}
}

// send sends an event with the bytes that follow it. Its error is the connection's,
// and has ended the work.
func (st *operatorStream) send(e operatorEvent, data ...byte) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.err != nil {
		return st.err
	}
	st.silent = false
	_, err = st.x.Write(append(line, '\n'))
	if err == nil && len(data) > 0 {
		_, err = st.x.Write(data)
	}
	if err == nil && e.Type != "data" {
		err = st.x.conn.Flush()
	}
	if err != nil {
		st.err = err
		st.stop(context.Canceled) // the client has gone
	}
	return err
}

// begin begins a file.
func (st *operatorStream) begin(f operatorFile) error {
	st.file = sha256.New()
	return st.send(operatorEvent{Type: "file", File: &f})
}

// Write sends bytes of the file that has begun.
func (st *operatorStream) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	st.file.Write(p)
	if err := st.send(operatorEvent{Type: "data", Bytes: len(p)}, p...); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (st *operatorStream) end() error {
	return st.send(operatorEvent{Type: "end", SHA256: hex.EncodeToString(st.file.Sum(nil))})
}

// backupStream sends a backup to a client that has some of its packs.
type backupStream struct {
	*operatorStream
	have map[string]bool
	skip bool // go on without a damaged repo
}

func (b *backupStream) HasPack(pack string) bool { return b.have[pack] }

func (b *backupStream) Begin(f gitstore.BackupFile) error {
	return b.begin(operatorFile{Kind: f.Kind, Space: []byte(f.Space), Repo: f.Repo, Pack: f.Pack, Size: f.Size})
}

func (b *backupStream) End() error { return b.end() }

func (b *backupStream) Keep(repo, pack string) error {
	return b.send(operatorEvent{Type: "keep", Repo: repo, Pack: pack})
}

func (b *backupStream) Drop(s ledger.Space) error {
	return b.send(operatorEvent{Type: "drop", Space: []byte(s)})
}

func (b *backupStream) Damaged(d gitstore.DamagedRepo) error {
	if !b.skip {
		return d.Err
	}
	return b.send(operatorEvent{Type: "damaged", ID: d.ID, Org: d.Org, Repo: d.Name, Error: d.Err.Error()})
}
