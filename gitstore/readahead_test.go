package gitstore

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// closeCounter counts how often a source is closed.
type closeCounter struct {
	io.Reader
	closed int
}

func (c *closeCounter) Close() error { c.closed++; return nil }

func TestReadAheadGivesTheSource(t *testing.T) {
	for _, size := range []int{0, 1, aheadPiece - 1, aheadPiece, aheadPiece + 1, 9*aheadPiece + 5} {
		data := randomBytes(uint64(size), size)
		for _, wrap := range []func(io.Reader) io.Reader{func(r io.Reader) io.Reader { return r }, iotest.HalfReader, iotest.DataErrReader} {
			src := &closeCounter{Reader: wrap(bytes.NewReader(data))}
			a := readAhead(src)
			got, err := io.ReadAll(a)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("read %d of %d bytes, %v", len(got), size, err)
			}
			if n, err := a.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("after the end Read gives %d, %v", n, err)
			}
			if err := a.Close(); err != nil || src.closed != 1 {
				t.Errorf("Close: %v, source closed %d times", err, src.closed)
			}
		}
	}
}

func TestReadAheadKeepsTheSourcesError(t *testing.T) {
	broken := errors.New("pack is broken")
	src := &closeCounter{Reader: io.MultiReader(bytes.NewReader(randomBytes(1, 2*aheadPiece+7)), iotest.ErrReader(broken))}
	a := readAhead(src)
	got, err := io.ReadAll(a)
	if !errors.Is(err, broken) || len(got) != 2*aheadPiece+7 {
		t.Errorf("read %d bytes, %v; want all before %v", len(got), err, broken)
	}
	a.Close()
}

// A client that goes away must not leave a goroutine or an open pack behind,
// whether the source is at work, waiting for room or at its end.
func TestReadAheadClosedEarly(t *testing.T) {
	for _, read := range []int{0, 1, aheadPiece, 3 * aheadPiece} {
		src := &closeCounter{Reader: bytes.NewReader(randomBytes(2, 20*aheadPiece))}
		a := readAhead(src)
		if _, err := io.ReadFull(a, make([]byte, read)); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil || src.closed != 1 {
			t.Errorf("Close after %d bytes: %v, source closed %d times", read, err, src.closed)
		}
		if _, open := <-a.full; open {
			t.Errorf("Close after %d bytes left the goroutine at work", read)
		}
	}
}
