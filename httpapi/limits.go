package httpapi

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// Limits bound what one request may send and how long it may stand still. Zero
// fields take the default.
type Limits struct {
	HeaderBytes   int           // request line and headers; 128 KiB
	BodyBytes     int64         // a JSON body; 1 MiB
	LineBytes     int           // one line of an NDJSON body; 16 MiB
	ChunkBytes    int           // one decoded blob_chunk; 4 MiB
	CommitFiles   int           // entries of one commit-pack; 100,000
	FetchBytes    int64         // a git-upload-pack request, inflated; 64 MiB
	PushBytes     int64         // a git-receive-pack request, inflated; 17 GiB
	DrainBytes    int64         // read and thrown away behind an early answer; 256 MiB
	HeaderTimeout time.Duration // for the headers of a request; 10 s
	IdleTimeout   time.Duration // a body that makes no progress, either way; 30 s
	KeepAlive     time.Duration // a connection between two requests; 120 s
}

func (l Limits) withDefaults() Limits {
	orDefault(&l.HeaderBytes, 128<<10)
	orDefault(&l.BodyBytes, 1<<20)
	orDefault(&l.LineBytes, 16<<20)
	orDefault(&l.ChunkBytes, 4<<20)
	orDefault(&l.CommitFiles, 100_000)
	orDefault(&l.FetchBytes, 64<<20)
	orDefault(&l.PushBytes, 17<<30)
	orDefault(&l.DrainBytes, 256<<20)
	orDefault(&l.HeaderTimeout, 10*time.Second)
	orDefault(&l.IdleTimeout, 30*time.Second)
	orDefault(&l.KeepAlive, 120*time.Second)
	return l
}

func orDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// minProgress is how many bytes must come within an idle timeout. A body that
// drips a byte at a time holds a connection as well as one that stands still.
const minProgress = 256

// An idleBody is a request body that must keep coming: it fails with
// os.ErrDeadlineExceeded when a reader has waited for window without minProgress
// bytes. Time in which nobody reads does not count, and there is no limit on the
// whole.
type idleBody struct {
	io.ReadCloser
	conn    *http.ResponseController
	window  time.Duration
	left    time.Duration // of window, since the last progress
	got     int           // bytes since then
	streams bool          // HTTP/2: a deadline that passes ends the stream, read or not
	ended   bool          // the body gave an error or io.EOF
}

func (b *idleBody) Read(p []byte) (int, error) {
	begun := time.Now()
	_ = b.conn.SetReadDeadline(begun.Add(b.left)) // a writer without deadlines (in tests) has no timeouts
	n, err := b.ReadCloser.Read(p)
	if b.got += n; b.got >= minProgress {
		b.got, b.left = 0, b.window
	} else {
		b.left -= time.Since(begun)
	}
	// After the body the server listens for the client going away; a deadline left
	// behind would end this request's context while it is still at work.
	if b.streams || err != nil && !b.ended {
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	b.ended = b.ended || err != nil
	return n, err
}

// A cappedReader fails with a payload error once more than left bytes were read.
type cappedReader struct {
	r    io.Reader
	left int64
	what string // names the limit in the error
	max  int64
}

func capReader(r io.Reader, limit int64, what string) *cappedReader {
	return &cappedReader{r: r, left: limit, what: what, max: limit}
}

func (c *cappedReader) Read(p []byte) (int, error) {
	if c.left < 0 {
		return 0, tooLarge("%s is over %d bytes", c.what, c.max)
	}
	if int64(len(p)) > c.left+1 {
		p = p[:c.left+1]
	}
	n, err := c.r.Read(p)
	c.left -= int64(n)
	if c.left < 0 {
		return n - 1, tooLarge("%s is over %d bytes", c.what, c.max)
	}
	return n, bodyError(err)
}

// bodyError turns what reading a request body can end with into an error of ours;
// io.EOF stays itself.
func bodyError(err error) error {
	switch {
	case err == nil || err == io.EOF:
		return err
	case isTimeout(err):
		return fmt.Errorf("read body: %w", os.ErrDeadlineExceeded)
	}
	return &requestError{kind: kindBodyCut, text: "request body ended early: " + err.Error()}
}

func isTimeout(err error) bool {
	t, ok := err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}
