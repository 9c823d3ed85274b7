package client

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/sessions/snapshot"
)

// saving is a save under way.
type saving struct {
	s       *Snapshots
	o       SaveOptions
	up      Upload
	coder   *snapshot.Coder
	workers int

	mu   sync.Mutex // guards told, and is held while Progress runs
	told SaveProgress

	memo   []MemoPart   // of the parts that were sent
	leaves int64        // of the parts that were sent
	untold atomic.Int64 // leaves that the server was not told of, since it has them
}

func (v *saving) tell(add SaveProgress) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.told.Read += add.Read
	v.told.Sent += add.Sent
	v.told.Saved += add.Saved
	if v.o.Progress != nil {
		v.o.Progress(v.told)
	}
}

const (
	sendJobBytes = 8 << 20   // content that is asked about, and sent, together
	heldBytes    = 128 << 20 // of leaves that are worked on at once
	slabBytes    = 1 << 20
)

// sendPart is a part of a save while it is sent.
type sendPart struct {
	v       *saving
	spec    PartSpec
	workers int
	slabs   sync.Pool
	direct  bool // contents are sent, and the server hashes them
	untold  *atomic.Int64

	mu     sync.Mutex // guards what follows
	leaves []snapshot.Hash
	size   int64
	memo   MemoPart // of a paged part, if there is a memo
}

// sendJob is some leaves that follow each other, with their contents.
type sendJob struct {
	leaves []sendLeaf
	bytes  int64
	slabs  []*[]byte
}

type sendLeaf struct {
	snapshot.Leaf               // its chunks; of a paged part they are made by who sends
	contents      [][]byte      // of the chunks, in order, as they were read
	sealed        [][]byte      // of a sealed save, as far as they were sealed
	prints        []Fingerprint // of a paged part, if there is a memo
	known         bool          // all chunks are as the memo has them
	looked        bool          // contents are the file's own, and may change
}

func newSendPart(v *saving, spec PartSpec) *sendPart {
	p := &sendPart{v: v, spec: spec, untold: &v.untold}
	p.slabs.New = func() any { b := make([]byte, max(slabBytes, p.roomy())); return &b }
	p.workers = max(1, min(v.workers, heldBytes/(snapshot.LeafChunks*max(1, spec.ChunkBytes))))
	return p
}

// roomy is as much as a chunk has, or nearly always has.
func (p *sendPart) roomy() int {
	if p.spec.Layout == snapshot.Pages {
		return p.spec.ChunkBytes
	}
	return 4 * p.spec.ChunkBytes
}

// read cuts the image into jobs. Whoever takes a job gives its memory back.
func (p *sendPart) read(ctx context.Context, body io.Reader, jobs chan<- *sendJob) error {
	cutter := snapshot.NewCutter(body, snapshot.PartSpec{
		Name: p.spec.Name, Kind: p.spec.Kind, Layout: p.spec.Layout, ChunkBytes: p.spec.ChunkBytes, Size: p.spec.Size, Regions: p.spec.Regions,
	})
	job, free := &sendJob{}, []byte(nil)
	index, leaf := 0, sendLeaf{}
	hand := func() error {
		select {
		case jobs <- job:
			job, free = &sendJob{}, nil
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for {
		if len(free) < p.roomy() {
			slab := p.slabs.Get().(*[]byte)
			job.slabs, free = append(job.slabs, slab), *slab
		}
		content, err := cutter.Next(free[:0:len(free)])
		if err != nil && err != io.EOF {
			return fmt.Errorf("read %s: %w", p.spec.Name, err)
		}
		if err == nil {
			if len(content) <= len(free) && len(content) > 0 && &content[0] == &free[0] {
				free = free[len(content):]
			}
			job.bytes += int64(len(content))
			p.add(&leaf, content)
		}
		if len(leaf.contents) > 0 && (err == io.EOF || p.ends(&leaf)) {
			leaf.Index = index
			job.leaves = append(job.leaves, leaf)
			leaf, index = sendLeaf{}, index+1
			if job.bytes >= sendJobBytes {
				if herr := hand(); herr != nil {
					return herr
				}
			}
		}
		if err == io.EOF {
			if len(job.leaves) == 0 {
				return nil
			}
			return hand()
		}
	}
}

// add takes a chunk into a leaf. Where a streamed leaf ends is told by its chunks.
func (p *sendPart) add(leaf *sendLeaf, content []byte) {
	leaf.contents = append(leaf.contents, content)
	if p.spec.Layout == snapshot.Stream {
		p.finish(leaf, len(leaf.contents)-1)
	}
}

// finish makes the chunk of a content, unless the memo knows it.
func (p *sendPart) finish(leaf *sendLeaf, i int) {
	f, ok := p.recall(leaf, i)
	if ok {
		return
	}
	if p.v.o.Memo != nil && p.spec.Layout == snapshot.Pages {
		leaf.prints = append(leaf.prints, f)
	}
	leaf.known = false
	c := snapshot.ChunkOf(leaf.contents[i])
	if p.v.o.Seal != nil && !c.Hash.IsZero() {
		c = snapshot.ChunkOf(p.shown(leaf, i))
	}
	leaf.Chunks = append(leaf.Chunks, c)
}

// recall makes the chunk of a content if the memo has it at its place.
func (p *sendPart) recall(leaf *sendLeaf, i int) (f Fingerprint, ok bool) {
	m := p.v.o.Memo
	if m == nil || p.spec.Layout != snapshot.Pages {
		return f, false
	}
	f = m.Fingerprint(leaf.contents[i])
	c, ok := m.Chunk(p.spec.Name, p.spec.ChunkBytes, leaf.Index*snapshot.LeafChunks+i, f)
	if ok {
		leaf.Chunks, leaf.prints = append(leaf.Chunks, c), append(leaf.prints, f)
	}
	return f, ok
}

// shown is a chunk's content as the server may see it.
func (p *sendPart) shown(leaf *sendLeaf, i int) []byte {
	if p.v.o.Seal == nil {
		return leaf.contents[i]
	}
	if leaf.sealed == nil {
		leaf.sealed = make([][]byte, snapshot.LeafChunks)
	}
	if leaf.sealed[i] == nil {
		leaf.sealed[i] = p.v.o.Seal(nil, leaf.contents[i])
	}
	return leaf.sealed[i]
}

func (p *sendPart) ends(leaf *sendLeaf) bool {
	if p.spec.Layout == snapshot.Pages {
		return len(leaf.contents) == snapshot.LeafChunks
	}
	return snapshot.LeafEnds(p.spec.Layout, leaf.Chunks)
}

// send tells the hashes of a job, and sends what is missing.
func (p *sendPart) send(ctx context.Context, job *sendJob) error {
	defer p.release(job)
	for i := range job.leaves {
		leaf := &job.leaves[i]
		for n := len(leaf.Chunks); n < len(leaf.contents); n++ {
			p.finish(leaf, n)
		}
	}
	kept := job.bytes
	told := p.told(job)
	missing, err := p.missing(ctx, told)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		body, content, err := p.records(told, missing)
		if err != nil {
			return err
		}
		if err := p.post(ctx, "chunks", sparseMedia, body, nil); err != nil {
			return err
		}
		p.v.tell(SaveProgress{Sent: int64(len(body))})
		kept = max(0, kept-content)
	}
	p.note(job)
	p.v.tell(SaveProgress{Read: job.bytes, Saved: kept})
	return nil
}

func (p *sendPart) release(job *sendJob) {
	for _, slab := range job.slabs {
		p.slabs.Put(slab)
	}
}

// note keeps the hashes of leaves that are through.
func (p *sendPart) note(job *sendJob) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, leaf := range job.leaves {
		for len(p.leaves) <= leaf.Index {
			p.leaves = append(p.leaves, snapshot.Hash{})
		}
		p.leaves[leaf.Index] = leaf.Hash(p.spec.Layout)
		if p.spec.Layout == snapshot.Stream { // of a sealed one these are the lengths that the server sees
			p.size += leaf.Size()
		}
	}
	if p.spec.Layout == snapshot.Pages {
		p.size += job.bytes
		p.remember(job)
	}
}

// reserve makes room for what is kept of a part with so many leaves.
func (p *sendPart) reserve(leaves int) {
	p.leaves = make([]snapshot.Hash, 0, leaves)
	if p.v.o.Memo != nil {
		p.memo.Chunks = make([]snapshot.Chunk, 0, leaves*snapshot.LeafChunks)
		p.memo.Prints = make([]Fingerprint, 0, leaves*snapshot.LeafChunks)
	}
}

// remember keeps what a memo is told when all is saved.
func (p *sendPart) remember(job *sendJob) {
	if p.v.o.Memo == nil {
		return
	}
	for _, leaf := range job.leaves {
		at := leaf.Index * snapshot.LeafChunks
		if more := at + len(leaf.Chunks) - len(p.memo.Chunks); more > 0 {
			p.memo.Chunks = append(p.memo.Chunks, make([]snapshot.Chunk, more)...)
			p.memo.Prints = append(p.memo.Prints, make([]Fingerprint, more)...)
		}
		copy(p.memo.Chunks[at:], leaf.Chunks)
		copy(p.memo.Prints[at:], leaf.prints)
	}
}

// result is the part with its hash. All was sent.
func (p *sendPart) result() snapshot.Part {
	part := snapshot.Part{
		Name: p.spec.Name, Kind: p.spec.Kind, Layout: p.spec.Layout, ChunkBytes: p.spec.ChunkBytes,
		Size: p.size, Leaves: len(p.leaves), Regions: p.spec.Regions,
	}
	part.Root = snapshot.ImageRoot(part, p.leaves).String()
	return part
}

const (
	octetMedia  = "application/octet-stream"
	sparseMedia = "application/x-headgate-sparse"
)

// missing tells the lists of leaves, and gives the hashes that are missing.
func (p *sendPart) missing(ctx context.Context, leaves []sendLeaf) (map[snapshot.Hash]bool, error) {
	if len(leaves) == 0 {
		return nil, nil
	}
	var body []byte
	for _, leaf := range leaves {
		body = binary.BigEndian.AppendUint32(body, uint32(leaf.Index))
		body = binary.BigEndian.AppendUint16(body, uint16(len(leaf.Chunks)))
		body = snapshot.AppendList(body, leaf.Chunks)
	}
	var answer []byte
	if err := p.post(ctx, "missing", octetMedia, body, &answer); err != nil {
		return nil, err
	}
	if len(answer)%len(snapshot.Hash{}) != 0 {
		return nil, ErrBadAnswer
	}
	missing := make(map[snapshot.Hash]bool, len(answer)/len(snapshot.Hash{}))
	for h := (snapshot.Hash{}); len(answer) > 0; answer = answer[len(h):] {
		copy(h[:], answer)
		missing[h] = true
	}
	return missing, nil
}

// records are the missing chunks of leaves as they travel, each once, and how much
// content they are.
func (p *sendPart) records(leaves []sendLeaf, missing map[snapshot.Hash]bool) (body []byte, content int64, err error) {
	var out bytes.Buffer
	var blob []byte
	w := snapshot.NewSparseWriter(&out)
	for n := range leaves {
		leaf := &leaves[n]
		for i, c := range leaf.Chunks {
			if !missing[c.Hash] {
				continue
			}
			delete(missing, c.Hash)
			content += int64(len(leaf.contents[i]))
			if leaf.looked {
				leaf.contents[i] = bytes.Clone(leaf.contents[i])
			}
			shown := p.shown(leaf, i)
			got := p.v.coder.Encode(shown, blob[:0])
			if err := w.Write(snapshot.Record{Length: int64(c.Length), Hash: c.Hash, Blob: got}); err != nil {
				return nil, 0, err
			}
			if len(got) < len(shown) {
				blob = got
			}
		}
	}
	err = errors.Join(w.End(snapshot.Hash{}), asked(missing))
	return out.Bytes(), content, err
}

// asked is nil if a server asked for nothing that it was not told of.
func asked(left map[snapshot.Hash]bool) error {
	if len(left) > 0 {
		return fmt.Errorf("%w: it asks for chunks that it was not told of", ErrBadAnswer)
	}
	return nil
}

// post sends a body below the upload, again if that fails on the way. All that is
// sent so may be sent twice. answer takes the answer's body if it is not nil.
func (p *sendPart) post(ctx context.Context, what, media string, body []byte, answer *[]byte) error {
	_, err := p.tried(ctx, what, media, body, answer)
	return err
}

// tried is post, and tells how often it was sent: a body that was sent once is nobody's any more.
func (p *sendPart) tried(ctx context.Context, what, media string, body []byte, answer *[]byte) (tries int, err error) {
	what, query, _ := strings.Cut(what, "?")
	path := withQuery(p.v.s.path("sessions", p.v.o.Session, "snapshots", "uploads", p.v.up.ID, what), "part", p.spec.Name)
	if query != "" {
		path += "&" + query
	}
	err = again(ctx, func() error {
		tries++
		ctx, cancel := context.WithTimeout(ctx, transferLimit)
		defer cancel()
		header := http.Header{"Content-Type": {media}, "Accept": {octetMedia}}
		if answer == nil {
			header.Del("Accept")
		}
		resp, err := p.v.s.send(ctx, http.MethodPost, path, header, bytes.NewReader(body))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
		if answer != nil {
			*answer = text
		}
		return err
	})
	return tries, err
}

const (
	transferLimit = 10 * time.Minute // for one body of some MiB
	transferTries = 6
	firstPause    = 50 * time.Millisecond
)

// again does something until it succeeds, is refused, or has failed too often on the way.
func again(ctx context.Context, do func() error) error {
	pause := firstPause
	for try := 1; ; try++ {
		err := do()
		var refused *ServerError
		switch {
		case err == nil || ctx.Err() != nil || try == transferTries:
			return err
		case errors.As(err, &refused):
			switch refused.Status {
			case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
			default:
				return err
			}
			pause = max(pause, refused.Again)
		case errors.Is(err, ErrBadAnswer), errors.Is(err, errLocal), errors.Is(err, snapshot.ErrDamaged), errors.Is(err, snapshot.ErrInvalid):
			return err
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return err
		}
		pause *= 2
	}
}

// errLocal is wrapped by errors of this side, which trying again does not mend.
var errLocal = errors.New("cannot go on")
