package gitstore

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
)

// keyOf is the key of a job. It holds everything that git is told. What git reads
// besides are objects, which their ids in the job determine with all they lead to:
// that those are there, and may be read, is asked for each request before its key.
// The agent of a client and the order of its wants are not in a canonical request.
func (r *Repo) keyOf(job uploadJob) fetchKey {
	h := sha256.New()
	for _, part := range [][]byte{[]byte(r.id), []byte(job.protocol), job.packedRefs, job.body} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write(part)
	}
	return fetchKey(h.Sum(nil))
}

// shareAnswer is answerFetch for requests of which equal ones are answered by
// one process, or by what one has said.
func (r *Repo) shareAnswer(ctx context.Context, job uploadJob, q GitRequest) error {
	s := r.store
	a, reader, begun := s.fetches.join(ctx, r.keyOf(job))
	defer a.leave(reader)
	freed := q.Freed
	if begun {
		// Begun beside a request that Close waits for, so it waits for this too.
		s.works.Go(func() {
			defer context.AfterFunc(s.life, func() { a.cancel(ErrClosed) })()
			a.finish(r.answerFetch(a.ctx, job, a.spool))
		})
	} else if freed != nil {
		freed()
		freed = nil
	}
	return reader.copyTo(ctx, q.Out, freed)
}
