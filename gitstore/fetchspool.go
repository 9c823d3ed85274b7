package gitstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// A fetchSpool is the answer to a fetch while it is made and after: in a file
// without a name, so that nothing is left when the process dies. Its readers each
// read from the start at their own pace, and wait for more while more is to come.
// When the file can take no more, what follows is handed from the one who writes to
// all readers, who then wait for each other.
type fetchSpool struct {
	// Called by who writes, without mu.
	create func() (spoolFile, error)
	room   func(n int64) bool // whether n bytes more may be kept, which then count
	direct func(err error)    // the file takes no more; err is that of the disk, or nil. No reader comes any more

	isOut bool      // direct was called; for who writes
	file  spoolFile // nil until there is something; set before made tells of it

	mu      sync.Mutex // guards all below; who writes alone changes them, but for readers
	changed sync.Cond
	kept    int64  // bytes in the file
	made    int64  // bytes that readers can have
	tail    []byte // the last of them, while they are handed over
	ended   bool
	err     error // how it ended
	readers map[*spoolReader]struct{}
}

// A spoolFile keeps bytes until it is closed.
type spoolFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
}

func newFetchSpool(create func() (spoolFile, error), room func(int64) bool, direct func(error)) *fetchSpool {
	s := &fetchSpool{create: create, room: room, direct: direct, readers: map[*spoolReader]struct{}{}}
	s.changed.L = &s.mu
	return s
}

// Write gives p to the readers of now and later. It fails only when nobody is left to
// read what the file cannot take.
func (s *fetchSpool) Write(p []byte) (int, error) {
	n := 0
	if !s.isOut {
		var err error
		if n, err = s.keep(p); n == len(p) {
			return n, nil
		}
		s.isOut = true
		s.direct(err)
	}
	if err := s.hand(p[n:]); err != nil {
		return n, err
	}
	return len(p), nil
}

// keep writes to the file what it takes of p.
func (s *fetchSpool) keep(p []byte) (n int, err error) {
	if !s.room(int64(len(p))) {
		return 0, nil
	}
	if s.file == nil {
		if s.file, err = s.create(); err != nil {
			return 0, err
		}
	}
	n, err = s.file.WriteAt(p, s.kept)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept += int64(n)
	s.made = s.kept
	s.changed.Broadcast()
	return n, err
}

// nameless makes a file that is gone when it is closed or the process ends.
func nameless(dir string) (spoolFile, error) {
	f, err := os.CreateTemp(dir, "fetch-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// errNoReaders: nobody is left who would read.
var errNoReaders = errors.New("nobody reads the answer")

// hand gives p to all readers and waits until they have it.
func (s *fetchSpool) hand(p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tail = p
	s.made += int64(len(p))
	s.changed.Broadcast()
	for s.behind() {
		s.changed.Wait()
	}
	s.tail = nil
	if len(s.readers) == 0 {
		return errNoReaders
	}
	return nil
}

// behind reports whether a reader has not taken all there is. Called with mu held.
func (s *fetchSpool) behind() bool {
	for r := range s.readers {
		if r.at < s.made {
			return true
		}
	}
	return false
}

// end tells readers that there will be no more.
func (s *fetchSpool) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.err = true, err
	s.changed.Broadcast()
}

// close removes what is in the file. Nobody may write or read any more.
func (s *fetchSpool) close() {
	if s.file != nil {
		s.file.Close()
	}
}

// spoolReader is one who reads a fetchSpool from its start.
type spoolReader struct {
	s  *fetchSpool
	at int64 // guarded by s.mu
}

// newReader counts a reader in. leave must be called.
func (s *fetchSpool) newReader() *spoolReader {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &spoolReader{s: s}
	s.readers[r] = struct{}{}
	return r
}

// leave counts the reader out, so that nobody waits for it.
func (r *spoolReader) leave() {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	delete(r.s.readers, r)
	r.s.changed.Broadcast()
}

// spoolBuffers are what readers copy through.
var spoolBuffers = sync.Pool{New: func() any { return new([128 << 10]byte) }}

// copyTo writes all there is and will be to out. Errors: that with which the answer
// ended, the cause of ctx, what out gave. made is called as soon as it is known that
// nothing more will come.
func (r *spoolReader) copyTo(ctx context.Context, out io.Writer, made func()) error {
	defer context.AfterFunc(ctx, func() {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		r.s.changed.Broadcast()
	})()
	buf := spoolBuffers.Get().(*[128 << 10]byte)
	defer spoolBuffers.Put(buf)
	for {
		p, ended, err := r.next(ctx, buf[:])
		if ended && made != nil {
			made()
			made = nil
		}
		if err != nil || len(p) == 0 {
			return err
		}
		if _, err := out.Write(p); err != nil {
			return fmt.Errorf("send pack: %w", err)
		}
		r.s.mu.Lock()
		r.at += int64(len(p))
		if r.s.tail != nil {
			r.s.changed.Broadcast()
		}
		r.s.mu.Unlock()
	}
}

// next waits for more and gives some of it, in buf or in place; nothing at the end.
func (r *spoolReader) next(ctx context.Context, buf []byte) (p []byte, ended bool, err error) {
	s := r.s
	s.mu.Lock()
	for r.at == s.made && !s.ended && ctx.Err() == nil {
		s.changed.Wait()
	}
	ended = s.ended
	inFile := s.kept - r.at
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case r.at == s.made:
		err = s.err
	case inFile > 0:
		p = buf[:min(int64(len(buf)), inFile)]
	default:
		p = s.tail[int64(len(s.tail))-(s.made-r.at):] // stays as it is until this reader has it or leaves
	}
	s.mu.Unlock()
	if len(p) > 0 && inFile > 0 {
		if _, err = s.file.ReadAt(p, r.at); err != nil {
			return nil, ended, fmt.Errorf("read spooled pack: %w", err)
		}
	}
	return p, ended, err
}
