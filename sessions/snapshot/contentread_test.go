package snapshot

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// readContent reads a content stream to its end.
func readContent(in io.Reader, most int) (chunks []Chunk, texts []byte, err error) {
	r := &contentReader{in: in, most: most}
	for {
		run, err := r.next()
		if err == io.EOF {
			return chunks, texts, nil
		}
		if err != nil {
			return chunks, texts, err
		}
		chunks = append(chunks, run.chunks...)
		for _, text := range run.texts {
			texts = append(texts, text...)
		}
		contentSlabs.Put(run.slab)
	}
}

// However a content stream comes in, its chunks are whole; one that is cut within a chunk
// is an error, wherever it is.
func TestContentStream(t *testing.T) {
	const most = 300 << 10 // slabs end within a chunk
	var stream, want []byte
	ends := map[int]bool{0: true}
	for n, size := range []int{1, most, 5, most, most - 1, 4096} {
		content := make([]byte, size)
		if n != 2 {
			for i := range content {
				content[i] = byte(i*7 + n + 1)
			}
			want = append(want, content...)
		}
		stream = AppendContent(stream, content)
		ends[len(stream)] = true
	}
	for name, in := range map[string]io.Reader{
		"at once": bytes.NewReader(stream), "half": iotest.HalfReader(bytes.NewReader(stream)),
		"byte by byte": iotest.OneByteReader(bytes.NewReader(stream)), "with its end": iotest.DataErrReader(bytes.NewReader(stream)),
	} {
		chunks, texts, err := readContent(in, most)
		if err != nil || len(chunks) != 6 || chunks[2].Length != 5 || !bytes.Equal(texts, want) {
			t.Errorf("%s: %d chunks with %d bytes, %v", name, len(chunks), len(texts), err)
		}
	}
	for _, cut := range []int{0, 1, 3, 4, 5, 6, 10, 5 + 4 + most - 1, 5 + 4 + most, contentSlab, len(stream) - 1} {
		_, _, err := readContent(bytes.NewReader(stream[:cut]), most)
		if whole := ends[cut]; whole != (err == nil) || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	broken := errors.New("broken")
	if _, _, err := readContent(io.MultiReader(bytes.NewReader(stream), iotest.ErrReader(broken)), most); !errors.Is(err, broken) {
		t.Errorf("a body that breaks: %v", err)
	}
	for _, bad := range [][]byte{{0, 0, 0, 0}, {0x80, 0, 0, 0}, {0, 0xff, 0, 0}} {
		if _, _, err := readContent(bytes.NewReader(bad), most); !errors.Is(err, ErrInvalid) {
			t.Errorf("a chunk of length %x: %v", bad, err)
		}
	}
}
