package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
)

// A chunk is one blob_chunk line. Its data lies in the memory of the line.
type chunk struct {
	id   []byte
	data []byte
	last bool
}

// parseChunk reads a blob_chunk line and decodes its data where it stands. More
// than limit bytes of data are too large.
//
//	line = {"blob_chunk": {"content_id": string, "data": base64, "eof": boolean}}
func parseChunk(line []byte, limit int) (chunk, error) {
	c, ok := plainChunk(line)
	if !ok {
		var err error
		if c, err = oddChunk(line); err != nil {
			return chunk{}, err
		}
	}
	if decodedLen(c.data) > limit {
		return chunk{}, tooLarge("a blob_chunk is over %d bytes decoded", limit)
	}
	// Decoding in place is safe: three bytes are written for four that were read.
	n, err := base64.StdEncoding.Decode(c.data, c.data)
	if err != nil {
		return chunk{}, invalid("data of a blob_chunk is not base64 with padding")
	}
	c.data = c.data[:n]
	return c, nil
}

func decodedLen(b []byte) int {
	n := base64.StdEncoding.DecodedLen(len(b))
	for i := len(b) - 1; i >= 0 && i >= len(b)-2 && b[i] == '='; i-- {
		n--
	}
	return n
}

// plainChunk reads the line as every SDK writes it: known members only, in any
// order, no escapes. It is false for anything else, which may still be right.
func plainChunk(line []byte) (c chunk, ok bool) {
	s := scanner{b: line}
	if !s.token('{') || string(s.str()) != "blob_chunk" || !s.token(':') || !s.token('{') {
		return chunk{}, false
	}
	for {
		key := s.str()
		if !s.token(':') {
			return chunk{}, false
		}
		switch string(key) {
		case "content_id":
			c.id = s.str()
		case "data":
			c.data = s.str()
		case "eof":
			c.last = s.boolean()
		default:
			return chunk{}, false
		}
		if !s.token(',') {
			break
		}
	}
	inner := s.token('}')
	outer := s.token('}')
	return c, inner && outer && s.atEnd() && !s.bad
}

// A scanner walks over plain JSON. After a failure bad is set and every answer is
// empty.
type scanner struct {
	b   []byte
	bad bool
}

func (s *scanner) space() {
	for len(s.b) > 0 && (s.b[0] == ' ' || s.b[0] == '\t' || s.b[0] == '\r' || s.b[0] == '\n') {
		s.b = s.b[1:]
	}
}

// token takes c if it is next.
func (s *scanner) token(c byte) bool {
	s.space()
	if s.bad || len(s.b) == 0 || s.b[0] != c {
		return false
	}
	s.b = s.b[1:]
	return true
}

// str takes a string without escapes; an escape fails, so that it is left to a
// real decoder.
func (s *scanner) str() []byte {
	if !s.token('"') {
		s.bad = true
		return nil
	}
	end := bytes.IndexByte(s.b, '"')
	if end < 0 || bytes.IndexByte(s.b[:end], '\\') >= 0 {
		s.bad = true
		return nil
	}
	text := s.b[:end:end]
	s.b = s.b[end+1:]
	return text
}

func (s *scanner) boolean() bool {
	s.space()
	for _, word := range []string{"true", "false"} {
		if bytes.HasPrefix(s.b, []byte(word)) {
			s.b = s.b[len(word):]
			return word == "true"
		}
	}
	s.bad = true
	return false
}

func (s *scanner) atEnd() bool { s.space(); return len(s.b) == 0 }

// oddChunk reads any legal JSON, slower: other members, escapes.
func oddChunk(line []byte) (chunk, error) {
	var body struct {
		Chunk *struct {
			ContentID string  `json:"content_id"`
			Data      rawText `json:"data"`
			EOF       bool    `json:"eof"`
		} `json:"blob_chunk"`
	}
	if err := unmarshal(line, &body); err != nil {
		return chunk{}, err
	}
	if body.Chunk == nil {
		return chunk{}, invalid("line is not a blob_chunk")
	}
	data, ok := unescape(body.Chunk.Data)
	if !ok {
		return chunk{}, invalid("data of a blob_chunk is not base64 with padding")
	}
	return chunk{id: []byte(body.Chunk.ContentID), data: data, last: body.Chunk.EOF}, nil
}

// A rawText is a JSON string with its quotes, in the memory of the text that is
// being decoded: a copy of a chunk would double what a stream needs.
type rawText []byte

// UnmarshalJSON keeps b itself, which lives as long as the line does.
func (t *rawText) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	if b[0] != '"' {
		return invalid("data of a blob_chunk is not a string")
	}
	*t = b
	return nil
}

var _ json.Unmarshaler = (*rawText)(nil)

// unescape resolves, in place, the escapes that base64 can be written with: \/
// and \u00XX. Any other character than ASCII fails.
func unescape(quoted []byte) ([]byte, bool) {
	if len(quoted) == 0 {
		return nil, true
	}
	b := quoted[1 : len(quoted)-1]
	n := 0
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c == '\\' {
			i++
			if c = b[i]; c == 'u' {
				var code [2]byte
				if _, err := hex.Decode(code[:], b[i+1:i+5]); err != nil || code[0] != 0 {
					return nil, false
				}
				c, i = code[1], i+4
			} else if c != '/' {
				return nil, false
			}
		}
		b[n] = c
		n++
	}
	return b[:n], true
}
