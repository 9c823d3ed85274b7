package packs

import "hash"

const (
	sideBlock  = 128 << 10 // bytes handed over at a time
	sideBlocks = 4
	// sideFrom is the size from which an object is hashed beside being inflated.
	sideFrom = 8 << 20
)

// sideHash is a hash that is worked out in a goroutine of its own, from copies of
// what is written. finish or stop must be called in the end.
type sideHash struct {
	hash  hash.Hash
	full  chan sidePiece
	spare chan *[sideBlock]byte
	made  int // blocks, of sideBlocks
	done  chan struct{}
	piece sidePiece
}

type sidePiece struct {
	buf *[sideBlock]byte // nil for none
	n   int
}

func newSideHash(h hash.Hash) *sideHash {
	s := &sideHash{hash: h, full: make(chan sidePiece, sideBlocks), spare: make(chan *[sideBlock]byte, sideBlocks), done: make(chan struct{})}
	go s.run()
	return s
}

func (s *sideHash) run() {
	defer close(s.done)
	for p := range s.full {
		s.hash.Write(p.buf[:p.n])
		s.spare <- p.buf // has room for all there are
	}
}

// Write waits while the hash is far behind. It never fails.
func (s *sideHash) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		if s.piece.buf == nil {
			s.piece.buf = s.block()
		}
		n := copy(s.piece.buf[s.piece.n:], rest)
		s.piece.n += n
		rest = rest[n:]
		if s.piece.n == sideBlock {
			s.hand()
		}
	}
	return len(b), nil
}

// block gives one to fill, when need be waiting for one that was hashed.
func (s *sideHash) block() *[sideBlock]byte {
	if s.made == sideBlocks {
		return <-s.spare
	}
	select {
	case b := <-s.spare:
		return b
	default:
		s.made++
		return new([sideBlock]byte)
	}
}

func (s *sideHash) hand() {
	if s.piece.buf != nil {
		s.full <- s.piece
		s.piece = sidePiece{}
	}
}

// finish waits until the hash is that of all that was written. Nothing may be
// written any more.
func (s *sideHash) finish() {
	s.hand()
	s.stop()
}

// stop ends the goroutine. It may be called twice.
func (s *sideHash) stop() {
	select {
	case <-s.done:
	default:
		close(s.full)
		<-s.done
	}
}
