package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func TestParseChunk(t *testing.T) {
	for _, tc := range []struct {
		line string
		id   string
		data string
		last bool
	}{
		{`{"blob_chunk":{"content_id":"a","data":"aGk=","eof":true}}`, "a", "hi", true},
		{` { "blob_chunk" : { "eof" : false , "data" : "" , "content_id" : "a" } } `, "a", "", false},
		{`{"blob_chunk":{"content_id":"a","data":"aGk=","eof":true,"more":[1,{"x":"}"}]},"also":null}`, "a", "hi", true},
		{`{"also":1,"blob_chunk":{"content_id":"\u0061","data":"aGk=","eof":true}}`, "a", "hi", true},
		{`{"blob_chunk":{"content_id":"a","data":"\/\u002b\u002F+","eof":true}}`, "a", "\xff\xef\xfe", true},
		{`{"blob_chunk":{"content_id":"é","data":"aGk="}}`, "é", "hi", false},
		{`{"blob_chunk":{"content_id":"a","data":null,"eof":true}}`, "a", "", true},
		{`{"blob_chunk":{"content_id":"a","eof":true}}`, "a", "", true},
	} {
		c, err := parseChunk([]byte(tc.line), 4<<20)
		if err != nil || string(c.id) != tc.id || string(c.data) != tc.data || c.last != tc.last {
			t.Errorf("parseChunk(%s) = %q %q %v, %v; want %q %q %v", tc.line, c.id, c.data, c.last, err, tc.id, tc.data, tc.last)
		}
	}
}

func TestParseChunkRefuses(t *testing.T) {
	for _, line := range []string{
		``, `null`, `[]`, `"x"`, `{`, `{}`, `{"metadata":{}}`, `{"diff_chunk":{"data":"","eof":true}}`,
		`{"blob_chunk":null}`, `{"blob_chunk":[]}`, `{"blob_chunk":{"content_id":"a","data":"aGk","eof":true}}`,
		`{"blob_chunk":{"content_id":"a","data":"aG-_","eof":true}}`,
		`{"blob_chunk":{"content_id":"a","data":"aGk=aGk=","eof":true}}`,
		`{"blob_chunk":{"content_id":"a","data":17,"eof":true}}`,
		`{"blob_chunk":{"content_id":"a","data":{"x":1},"eof":true}}`,
		`{"blob_chunk":{"content_id":"a","data":"aGk=","eof":"true"}}`,
		`{"blob_chunk":{"content_id":1,"data":"aGk=","eof":true}}`,
		`{"blob_chunk":{"content_id":"a","data":"\n","eof":true}}`,
		`{"blob_chunk":{"content_id":"a","data":"\u1234","eof":true}}`,
		`{"blob_chunk":{"content_id":"a","data":"aGk=","eof":true}`,
		`{"blob_chunk":{"content_id":"a","data":"aGk=","eof":true}}}`,
		`{"blob_chunk":{"content_id":"a","data":"aGk=","eof":true,}}`,
		strings.Repeat(`{"a":`, 100_000), // case 12.3
		`{"blob_chunk":{"x":` + strings.Repeat(`[`, 100_000) + strings.Repeat(`]`, 100_000) + `}}`,
	} {
		if c, err := parseChunk([]byte(line), 4<<20); problemOf(err).status != 400 {
			t.Errorf("parseChunk(%.100s) = %+v, %v; want a 400", line, c, err)
		}
	}
}

// the limit is on decoded bytes.
func TestA07_ChunkLimit(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 0, 9: 0, 10: 0, 11: 413, 12: 413, 13: 413} {
		line := fmt.Sprintf(`{"blob_chunk":{"content_id":"a","data":"%s","eof":true}}`, base64.StdEncoding.EncodeToString(make([]byte, n)))
		c, err := parseChunk([]byte(line), 10)
		if want == 0 && (err != nil || len(c.data) != n) || want != 0 && problemOf(err).status != want {
			t.Errorf("chunk of %d bytes under a limit of 10 = %d bytes, %v; want status %d", n, len(c.data), err, want)
		}
	}
}

// What the quick scanner takes, encoding/json takes and reads alike.
func TestPlainChunkAgreesWithJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[a-z0-9-]{0,12}`).Draw(t, "id")
		data := rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "data")
		last := rapid.Bool().Draw(t, "eof")
		line, err := json.Marshal(map[string]any{"blob_chunk": map[string]any{"content_id": id, "data": data, "eof": last}})
		if err != nil {
			t.Fatal(err)
		}
		for _, odd := range []bool{false, true} {
			if odd {
				line = append([]byte(`{"x":"\u0041",`), line[1:]...)
			}
			if _, ok := plainChunk(line); ok == odd {
				t.Fatalf("plainChunk(%s) = %v, want %v", line, ok, !odd)
			}
			c, err := parseChunk(bytes.Clone(line), 4<<20)
			if err != nil || string(c.id) != id || !bytes.Equal(c.data, data) || c.last != last {
				t.Fatalf("parseChunk(%s) = %q %q %v, %v", line, c.id, c.data, c.last, err)
			}
		}
	})
}

func FuzzParseChunk(f *testing.F) {
	f.Add([]byte(`{"blob_chunk":{"content_id":"a","data":"aGk=","eof":true}}`))
	f.Add([]byte(`{"x":"\"","blob_chunk":{"content_id":"\u0061","data":"\/\u002b==","eof":false}}`))
	f.Add([]byte(`{"blob_chunk":{"data":"\u00`))
	f.Fuzz(func(t *testing.T, line []byte) {
		whole := bytes.Clone(line)
		c, err := parseChunk(line, 100)
		if err != nil {
			if s := problemOf(err).status; s != 400 && s != 413 {
				t.Fatalf("parseChunk(%q) = %v, status %d", whole, err, s)
			}
			return
		}
		if len(c.data) > 100 {
			t.Fatalf("parseChunk(%q) gave %d bytes over a limit of 100", whole, len(c.data))
		}
		if !json.Valid(whole) && !bytes.ContainsFunc(whole, func(r rune) bool { return r < ' ' || r == 0xfffd }) {
			t.Fatalf("parseChunk(%q) took what is not JSON", whole)
		}
	})
}

func readLines(t *testing.T, r io.Reader, limit int) ([]string, error) {
	t.Helper()
	l := newLineReader(r, limit)
	defer l.release()
	var lines []string
	for {
		line, err := l.next()
		if err != nil {
			return lines, err
		}
		lines = append(lines, string(line))
	}
}

func TestLines(t *testing.T) {
	big := strings.Repeat("x", smallLine+10)
	bigger := strings.Repeat("y", midLine*2)
	for _, tc := range []struct {
		in   string
		want []string
	}{
		{"", nil},
		{"\n\r\n  \n", nil},
		{"a", []string{"a"}},
		{"a\n\nb\r\nc", []string{"a", "b", "c"}},
		{"a\n" + big + "\nb\n" + bigger + "\n" + big + "\nc\n", []string{"a", big, "b", bigger, big, "c"}},
	} {
		for name, r := range map[string]io.Reader{
			"whole": strings.NewReader(tc.in), "halves": iotest.HalfReader(strings.NewReader(tc.in)),
			"with error": iotest.DataErrReader(strings.NewReader(tc.in)),
		} {
			got, err := readLines(t, r, 16<<20)
			if err != io.EOF || fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("lines of %.40q (%s) = %.60q, %v; want %.60q", tc.in, name, got, err, tc.want)
			}
		}
	}
}

// Case 12.3: a line of 16 MiB works, one byte more does not, and the buffer stays
// within what a stream may use.
func TestCase12_3_LineLimit(t *testing.T) {
	const limit = 16 << 20
	l := newLineReader(io.MultiReader(bytes.NewReader(bytes.Repeat([]byte("x"), limit)), strings.NewReader("\nend\n")), limit)
	line, err := l.next()
	if err != nil || len(line) != limit {
		t.Fatalf("line of 16 MiB = %d bytes, %v", len(line), err)
	}
	if len(l.buf)+chunkLine > 24<<20 {
		t.Errorf("buffer of %d bytes grown from %d is over 24 MiB", len(l.buf), chunkLine)
	}
	if line, err = l.next(); err != nil || string(line) != "end" {
		t.Errorf("line after = %q, %v, want end", line, err)
	}
	l.release()
	for _, n := range []int{limit + 1, 200 << 20} {
		_, err = readLines(t, io.LimitReader(ones{}, int64(n)), limit)
		if p := problemOf(err); p.status != 413 || !strings.Contains(p.text, "16777216") {
			t.Errorf("line of %d bytes = %d %s, want a 413 that names the limit", n, p.status, p.text)
		}
	}
	_, err = readLines(t, strings.NewReader(strings.Repeat("\n", 10<<20)), limit)
	if p := problemOf(err); p.status != 400 {
		t.Errorf("10 MiB of blank lines = %d %s, want 400", p.status, p.text)
	}
}

type ones struct{}

func (ones) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '1'
	}
	return len(p), nil
}

func TestLinesEndWithTheBodysError(t *testing.T) {
	r := io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(io.ErrUnexpectedEOF))
	lines, err := readLines(t, r, 100)
	var cut *requestError
	if len(lines) != 1 || !errors.As(err, &cut) || cut.kind != kindBodyCut {
		t.Errorf("lines of a cut body = %q, %v; want one line and a cut body", lines, err)
	}
}
