package httpapi

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"runtime"
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

	FairLimits
}

// FairLimits bound what one token, one org and all together may use at once. Over
// them a request waits for LimitWait at most, is given what is free before those
// who use more than it does, and is then refused with 429.
type FairLimits struct {
	TokenRate  int // requests a second of one token; 20,000
	TokenBurst int // requests of one token that may come at once after a pause; 20,000

	TokenRequests, OrgRequests, Requests int   // running at once; 256, 512, 1,024
	TokenGit, OrgGit, Git                int   // of those that may need a git process: fetches, large pushes, diffs; 64, 128, 256
	TokenStreams, OrgStreams, Streams    int   // event streams and long polls that are open, which do not count above; 1,024, 4,096, 16,384
	TokenUpload, OrgUpload, Upload       int64 // bytes that bodies over 1 MiB have brought; 20 GiB, 40 GiB, 80 GiB

	Turns     int           // requests that work at once rather than wait for their clients; 32 for each processor, at least 64
	LimitWait time.Duration // 5 s
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
	l.FairLimits = l.FairLimits.withDefaults()
	return l
}

func (l FairLimits) withDefaults() FairLimits {
	orDefault(&l.TokenRate, 20_000)
	orDefault(&l.TokenBurst, 20_000)
	orDefault(&l.TokenRequests, 256)
	orDefault(&l.OrgRequests, 512)
	orDefault(&l.Requests, 1024)
	orDefault(&l.TokenGit, 64)
	orDefault(&l.OrgGit, 128)
	orDefault(&l.Git, 256)
	orDefault(&l.TokenStreams, 1024)
	orDefault(&l.OrgStreams, 4096)
	orDefault(&l.Streams, 16384)
	orDefault(&l.TokenUpload, 20<<30)
	orDefault(&l.OrgUpload, 40<<30)
	orDefault(&l.Upload, 80<<30)
	orDefault(&l.Turns, DefaultTurns())
	orDefault(&l.LimitWait, 5*time.Second)
	return l
}

// DefaultTurns is FairLimits.Turns on this machine: enough that writes share their
// syncs, few enough that one more request is soon done.
func DefaultTurns() int { return max(64, 32*runtime.GOMAXPROCS(0)) }

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
	end     error         // what the body ended with, io.EOF or an error; nil before
	brought int64         // bytes so far
	paid    int64         // of brought that pass knows of, or that are too few to count
	pass    *pass         // of the request; nil until it is let in
	held    []byte        // read ahead
	asked   bool          // something was read, or tried to be
}

// broken reports whether the body ended otherwise than at its end.
func (b *idleBody) broken() bool { return b != nil && b.end != nil && b.end != io.EOF }

// smallBody is the size up to which a body is read ahead, before its request takes
// a turn; countedBody the size from which on a body counts as an upload.
const (
	smallBody   = 32 << 10
	countedBody = 1 << 20
	uploadStep  = 8 << 20 // by which a body of unknown size counts
)

// hold reads n bytes ahead.
func (b *idleBody) hold(n int64) {
	held := make([]byte, n)
	got, _ := io.ReadFull(readerFunc(b.read), held) // an error is kept as the body's end
	b.held = held[:got]
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func (b *idleBody) Read(p []byte) (int, error) {
	if len(b.held) > 0 {
		n := copy(p, b.held)
		b.held = b.held[n:]
		return n, nil
	}
	if b.end != nil || b.pass == nil {
		return b.read(p)
	}
	b.pass.rest()
	defer b.pass.work()
	n, err := b.read(p)
	if b.brought += int64(n); b.brought > b.paid {
		if uerr := b.pass.upload(uploadStep); uerr != nil {
			b.paid = math.MaxInt64 // what is still read of it is thrown away
			return 0, uerr
		}
		b.paid += uploadStep
	}
	return n, err
}

func (b *idleBody) read(p []byte) (int, error) {
	if b.end != nil {
		return 0, b.end
	}
	b.asked = true
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
	if b.streams || err != nil {
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	b.end = err
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
	var limit *limitError
	switch {
	case err == nil || err == io.EOF || errors.As(err, &limit):
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
