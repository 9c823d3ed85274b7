package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/sessions/snapshot"
)

// RestoreOptions say what is restored and where to. One of At and To is set.
type RestoreOptions struct {
	Part string // empty: the first
	// At takes contents where they belong, several at once; zeros are not written, so
	// it must be empty, or a file without a block there.
	At io.WriterAt
	// To takes all bytes in order.
	To io.Writer
	// Offset and Length are a range of the image; a Length of 0 goes to its end. Of a
	// range the chunks are verified, of the whole image its hash too.
	Offset, Length int64
	Hot            bool // those first that were touched first the last time; with At alone
	// Open gives the content of a sealed chunk, in buf if it fits; nil: it is no sealed save.
	Open     func(buf, chunk []byte) ([]byte, error)
	Workers  int                   // connections; 0: two for each processor, at most 8
	Progress func(RestoreProgress) // told now and then, by one goroutine at a time
}

// A RestoreProgress tells how far a restore is, in bytes.
type RestoreProgress struct {
	Total int64
	Done  int64
	Zero  int64 // of Done
	Wire  int64 // that were sent
}

// A Restored is a snapshot that was restored. Of ID and Seed each restore has its own.
type Restored struct {
	Snapshot Snapshot
	Manifest snapshot.Manifest
	Part     snapshot.Part
	ID       string // UUID
	Seed     string // 32 random bytes, hex
	Bytes    int64
}

var (
	errNoTarget  = errors.New("nowhere to restore to")
	errNoSuch    = errors.New("the snapshot has no such part")
	errNotSealed = errors.New("the snapshot is sealed, and no key is given")
)

// Restore restores one part of a snapshot, by several connections, and verifies every
// chunk by its strong hash before it is written, and the whole by the snapshot's hash.
// With an error what was written is of no use.
// Errors: *ServerError, ErrBadAnswer, ErrCut, snapshot.ErrDamaged, those of the target.
func (s *Snapshots) Restore(ctx context.Context, sha string, o RestoreOptions) (Restored, error) {
	if (o.At == nil) == (o.To == nil) {
		return Restored{}, errNoTarget
	}
	got, err := s.Get(ctx, sha)
	if err != nil {
		return Restored{}, err
	}
	out := Restored{Snapshot: got}
	if out.Manifest, err = snapshot.DecodeManifest(got.Manifest); err != nil {
		return out, fmt.Errorf("%w: manifest: %w", ErrBadAnswer, err)
	}
	if out.Part, err = partOf(out.Manifest, o.Part); err != nil {
		return out, err
	}
	if got.Sealed && o.Open == nil {
		return out, errNotSealed
	}
	r := &restoring{s: s, o: o, sha: sha, part: out.Part, sealed: got.Sealed, coder: snapshot.NewCoder()}
	if err := r.plan(); err != nil {
		return out, err
	}
	if err := r.run(ctx); err != nil {
		return out, err
	}
	out.ID, out.Seed, out.Bytes = r.id, r.seed, r.length
	return out, nil
}

func partOf(m snapshot.Manifest, name string) (snapshot.Part, error) {
	if root := snapshot.SnapshotRoot(m.Parts); root.String() != m.Root {
		return snapshot.Part{}, fmt.Errorf("%w: the parts do not have the snapshot's hash", ErrBadAnswer)
	}
	for _, p := range m.Parts {
		if name == "" || p.Name == name {
			return p, nil
		}
	}
	return snapshot.Part{}, errNoSuch
}

// restoring is a restore under way.
type restoring struct {
	s      *Snapshots
	o      RestoreOptions
	sha    string
	part   snapshot.Part
	sealed bool
	coder  *snapshot.Coder

	offset, length int64 // of the range
	step           int64 // bytes of it that are asked for at once
	workers        int
	whole          bool // all of the image: its hash is checked

	mu       sync.Mutex // guards what follows; told is shown under it
	leaves   []snapshot.Hash
	id, seed string
	told     RestoreProgress
}

// pagedStep is how much of a paged image is asked for at once; a whole number of leaves.
const pagedStep = 16 << 20

func (r *restoring) plan() error {
	size := r.part.Size
	r.offset, r.length = r.o.Offset, r.o.Length
	if r.offset < 0 || r.offset > size || r.length < 0 || r.length > size-r.offset {
		return snapshot.ErrRange
	}
	if r.length == 0 {
		r.length = size - r.offset
	}
	r.whole = r.length == size
	r.workers, r.step = 1, max(1, r.length)
	if r.part.Layout == snapshot.Pages && (r.o.At == nil || !r.o.Hot) {
		if r.workers = r.o.Workers; r.workers < 1 {
			r.workers = min(8, 2*runtime.GOMAXPROCS(0))
		}
		leaf := int64(r.part.ChunkBytes) * snapshot.LeafChunks
		r.step = max(leaf, pagedStep/leaf*leaf)
		if r.offset%leaf != 0 { // so that no chunk is asked for twice
			r.step += leaf - r.offset%leaf
		}
	}
	r.told.Total = r.length
	if r.part.Layout == snapshot.Pages {
		r.leaves = make([]snapshot.Hash, snapshot.PageLeaves(size, r.part.ChunkBytes))
	}
	return nil
}

// run restores range after range and checks the hash of it all.
func (r *restoring) run(ctx context.Context) error {
	var err error
	switch {
	case r.length == 0:
		err = r.empty(ctx)
	case r.o.At != nil:
		err = r.atOnce(ctx)
	default:
		err = r.inOrder(ctx)
	}
	if err != nil || !r.whole {
		return err
	}
	if root := snapshot.ImageRoot(r.part, r.leaves); root.String() != r.part.Root {
		return fmt.Errorf("%w: the image has the hash %s, not %s", snapshot.ErrDamaged, root, r.part.Root)
	}
	return nil
}

// empty asks for an image without bytes: it has a restore id all the same.
func (r *restoring) empty(ctx context.Context) error {
	return r.fetch(ctx, piece{}, func(int64, []byte) error { return nil })
}

// A piece is a range of the image that is asked for by one request.
type piece struct{ offset, length int64 }

// pieces gives the range's pieces in order, until taken says no.
func (r *restoring) pieces(take func(piece) error) error {
	for at, end := r.offset, r.offset+r.length; at < end; {
		p := piece{at, min(r.step, end-at)}
		if leaf := int64(r.part.ChunkBytes) * snapshot.LeafChunks; r.part.Layout == snapshot.Pages && r.workers > 1 {
			p.length = min(p.length, max(leaf, (at+p.length)/leaf*leaf-at)) // ends with a leaf
		}
		if err := take(p); err != nil {
			return err
		}
		at += p.length
	}
	return nil
}

// atOnce writes contents where they belong.
func (r *restoring) atOnce(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(r.workers)
	err := r.pieces(func(p piece) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		group.Go(func() error {
			return r.fetch(ctx, p, func(off int64, content []byte) error {
				if _, err := r.o.At.WriteAt(content, off-r.offset); err != nil {
					return fmt.Errorf("%w: %w", errLocal, err)
				}
				return nil
			})
		})
		return nil
	})
	return errors.Join(group.Wait(), skipCanceled(err))
}

// skipCanceled leaves out what another error has led to.
func skipCanceled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// inOrder writes all bytes in order. Pieces are fetched ahead; each is held whole,
// since what comes before it may still be on its way.
func (r *restoring) inOrder(ctx context.Context) error {
	if r.part.Layout != snapshot.Pages {
		return r.streamed(ctx)
	}
	group, ctx := errgroup.WithContext(ctx)
	type held struct {
		text []byte
		done chan struct{}
	}
	queue := make(chan *held, r.workers)
	slots := make(chan struct{}, r.workers)
	group.Go(func() error {
		defer close(queue)
		return r.pieces(func(p piece) error {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			h := &held{done: make(chan struct{})}
			queue <- h // has room: no more are in it than there are slots
			group.Go(func() error {
				h.text = make([]byte, p.length)
				err := r.fetch(ctx, p, func(off int64, content []byte) error {
					copy(h.text[off-p.offset:], content)
					return nil
				})
				if err == nil {
					close(h.done)
				}
				return err
			})
			return nil
		})
	})
	group.Go(func() error {
		for h := range queue {
			select {
			case <-h.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			if _, err := r.o.To.Write(h.text); err != nil {
				return fmt.Errorf("%w: %w", errLocal, err)
			}
			<-slots
		}
		return nil
	})
	return group.Wait()
}

// streamed writes a streamed image, whose chunks come in order by one connection. What
// was written cannot be taken back, so it is not tried again once something was.
func (r *restoring) streamed(ctx context.Context) error {
	at := r.offset
	return r.fetch(ctx, piece{r.offset, r.length}, func(off int64, content []byte) error {
		for off > at {
			n, err := r.o.To.Write(zeros[:min(int64(len(zeros)), off-at)])
			if at += int64(n); err != nil {
				return fmt.Errorf("%w: %w", errLocal, err)
			}
		}
		if off < at {
			return fmt.Errorf("%w: it was cut after some of it was written", errLocal)
		}
		n, err := r.o.To.Write(content)
		if at += int64(n); err != nil {
			return fmt.Errorf("%w: %w", errLocal, err)
		}
		return nil
	}, func(end int64) error {
		for end > at {
			n, err := r.o.To.Write(zeros[:min(int64(len(zeros)), end-at)])
			if at += int64(n); err != nil {
				return fmt.Errorf("%w: %w", errLocal, err)
			}
		}
		return nil
	})
}

var zeros = make([]byte, 64<<10)

// fetch asks for a piece, again if that fails on the way, and gives its contents,
// verified, to write; zeros are not given. atEnd is called when all has come.
func (r *restoring) fetch(ctx context.Context, p piece, write func(off int64, content []byte) error, atEnd ...func(int64) error) error {
	return again(ctx, func() error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		err := r.fetchOnce(ctx, cancel, p, write)
		for _, f := range atEnd {
			if err == nil {
				err = f(p.offset + p.length)
			}
		}
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		return err
	})
}

func (r *restoring) fetchOnce(ctx context.Context, cancel context.CancelCauseFunc, p piece, write func(int64, []byte) error) error {
	header := http.Header{"Accept": {sparseMedia}}
	if p.length > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", p.offset, p.offset+p.length-1))
	}
	path := withQuery(r.s.path("snapshots", r.sha, "image"), "part", r.part.Name, "hot", map[bool]string{true: "true"}[r.o.Hot && r.o.At != nil])
	resp, err := r.s.send(ctx, http.MethodGet, path, header, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	r.begun(resp.Header)
	body, stop := watch(resp.Body, cancel)
	defer stop()
	got := &pieceReader{r: r, p: p, write: write, wire: body.counted}
	if err := got.read(snapshot.NewSparseReader(body)); err != nil {
		if word := resp.Trailer.Get("X-Headgate-Error"); word != "" {
			return toldInTrailer(word)
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("%w: %w", ErrCut, err)
		}
		return err
	}
	return nil
}

// toldInTrailer is what a server says that could not go on.
func toldInTrailer(word string) error {
	var said struct{ Error, Code string }
	if json.Unmarshal([]byte(word), &said) != nil {
		return fmt.Errorf("%w: %s", ErrCut, Printable(word))
	}
	return &ServerError{Code: Printable(said.Code), Text: Printable(said.Error), Body: []byte(word)}
}

// begun keeps the first restore id that was given.
func (r *restoring) begun(h http.Header) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.id == "" {
		r.id, r.seed = h.Get("X-Restore-Id"), h.Get("X-Restore-Seed")
	}
}

func (r *restoring) tell(done, zero, wire int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told.Done += done
	r.told.Zero += zero
	r.told.Wire += wire
	if r.o.Progress != nil {
		r.o.Progress(r.told)
	}
}
