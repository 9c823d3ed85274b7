package httpapi

import (
	"errors"
	"io"
	"net/http"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/refpolicy"
)

// commitPack makes a commit of files that arrive as a stream of lines: metadata,
// then the files' bytes in chunks. The whole stream is read before a ref moves.
func (s *Server) commitPack(q *request) error {
	lines := newLineReader(q.r.Body, s.Limits.LineBytes)
	defer lines.release()
	line, err := lines.next()
	if err == io.EOF {
		return invalid("body is empty: its first line is the metadata")
	}
	if err != nil {
		return err
	}
	meta, err := parseMetadata(line, s.Limits.CommitFiles)
	if err != nil {
		return err
	}
	spec, err := meta.spec()
	q.target = spec.Target.Short()
	if err != nil {
		return err
	}
	answer := func(done gitstore.CommitResult) any { return committed(done, q.target) }
	spec.Once = onceOf(q, http.StatusCreated, answer)
	writer, err := q.repo.NewCommit(q.ctx(), q.caller(), spec)
	if err != nil {
		return err
	}
	defer writer.Abort()
	if err := s.readChunks(lines, writer, meta.deleted()); err != nil {
		return err
	}
	done, err := writer.Commit(q.ctx())
	if err != nil {
		return err
	}
	return q.x.json(http.StatusCreated, answer(done))
}

// readChunks hands every chunk of the stream to w. An entry that deletes may come
// with an empty chunk.
func (s *Server) readChunks(lines *lineReader, w *gitstore.CommitWriter, deleted map[string]bool) error {
	for {
		line, err := lines.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		c, err := parseChunk(line, s.Limits.ChunkBytes)
		if err != nil {
			return err
		}
		if deleted[string(c.id)] {
			if len(c.data) > 0 {
				return invalid("content %.80q belongs to a delete and has data", c.id)
			}
			continue
		}
		if err := w.Write(string(c.id), c.data, c.last); err != nil {
			return err
		}
	}
}

type commitPackBody struct {
	Commit *commitPackCommit `json:"commit"`
	Result resultBody        `json:"result"`
}

type commitPackCommit struct {
	CommitSHA    string `json:"commit_sha"`
	TreeSHA      string `json:"tree_sha"`
	TargetBranch string `json:"target_branch"`
	PackBytes    int64  `json:"pack_bytes"`
	BlobCount    int    `json:"blob_count"`
}

// A resultBody tells what became of the ref of a write.
type resultBody struct {
	Branch       string      `json:"branch"`
	TargetBranch string      `json:"target_branch"`
	OldSHA       string      `json:"old_sha"`
	NewSHA       string      `json:"new_sha"`
	Success      bool        `json:"success"`
	Status       string      `json:"status"`
	Message      string      `json:"message"`
	LastWriter   *writerBody `json:"last_writer,omitempty"`
}

// A writerBody says who moved a branch last.
type writerBody struct {
	Subject string `json:"sub"`
	At      string `json:"at"`
}

func committed(c gitstore.CommitResult, target string) commitPackBody {
	id := c.Commit.String()
	return commitPackBody{
		Commit: &commitPackCommit{
			CommitSHA: id, TreeSHA: c.Tree.String(), TargetBranch: target,
			PackBytes: c.PackBytes, BlobCount: c.BlobCount,
		},
		Result: resultBody{
			Branch: target, TargetBranch: target, OldSHA: c.Old.String(), NewSHA: id,
			Success: true, Status: "ok",
		},
	}
}

// A resultError is a failure of a write that is told in an envelope.
type resultError struct {
	err    error
	target string
	head   string // the branch's present value, where it is known
	last   *writerBody
}

func (e *resultError) Error() string { return e.err.Error() }

// Unwrap gives the failure itself.
func (e *resultError) Unwrap() error { return e.err }

func resultErrorOf(err error, target string) *resultError {
	e := &resultError{err: err, target: target}
	var moved *gitstore.RefMovedError
	if !errors.As(err, &moved) {
		return e
	}
	e.head = moved.Present.String()
	if moved.Present != refpolicy.ZeroOID {
		e.last = &writerBody{Subject: moved.Writer, At: wireTime(moved.At.UTC())}
	}
	return e
}

// An envelopeBody is the one JSON shape of errors with the two members that
// clients of a write look for.
type envelopeBody struct {
	Commit *commitPackCommit `json:"commit"` // null
	Result resultBody        `json:"result"`
	problemBody
}

func (x *exchange) envelope(p problem, more moreBody, e *resultError) {
	x.problemHeaders(p)
	told := p.body()
	told.moreBody = more
	_ = x.json(p.status, envelopeBody{
		problemBody: told,
		Result: resultBody{
			Branch: e.target, TargetBranch: e.target, OldSHA: e.head, NewSHA: e.head,
			Status: p.label(), Message: p.text, LastWriter: e.last,
		},
	})
}
