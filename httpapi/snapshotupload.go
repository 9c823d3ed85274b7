package httpapi

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/headgate/headgate/sessions/snapshot"
)

const (
	contentMedia = "application/x-headgate-content"
	sparseMedia  = "application/x-headgate-sparse"
	octetMedia   = "application/octet-stream"

	// leafListBytes bounds one request that tells lists: those of some thousand leaves.
	leafListBytes = 32 << 20
	// leafPrefix is what stands before a leaf's list: its index and number of chunks.
	leafPrefix = 4 + 2
)

// isMedia reports whether a header names a media type.
func isMedia(header, media string) bool {
	got, _, err := mime.ParseMediaType(header)
	return err == nil && got == media
}

// accepts reports whether one of the listed media types is media itself.
func accepts(h http.Header, media string) bool {
	for _, list := range h["Accept"] {
		for one := range strings.SplitSeq(list, ",") {
			if isMedia(one, media) {
				return true
			}
		}
	}
	return false
}

// beginUpload begins a save that is sent in pieces.
func (s *Server) beginUpload(q *request) error {
	text, err := s.jsonBody(q)
	if err != nil {
		return err
	}
	spec, err := saveSpecOf(q.id, text)
	if err == nil {
		err = s.checkEnvelope(spec.Envelope)
	}
	if err != nil {
		return err
	}
	up, err := s.Snapshots.Begin(q.ctx(), q.snapshots(), spec)
	if err != nil {
		return err
	}
	return q.x.json(http.StatusCreated, uploadBodyOf(up))
}

// jsonBody reads a JSON body whole; none is {}.
func (s *Server) jsonBody(q *request) ([]byte, error) {
	if q.r.Body == nil {
		return []byte("{}"), nil
	}
	text, err := io.ReadAll(capReader(q.r.Body, s.Limits.BodyBytes, "JSON body"))
	if err == nil && len(bytes.TrimSpace(text)) == 0 {
		text = []byte("{}")
	}
	return text, err
}

func (s *Server) getUpload(q *request) error {
	up, err := s.Snapshots.Upload(q.ctx(), q.snapshots(), q.id, q.part)
	if err != nil {
		return err
	}
	return q.x.json(http.StatusOK, uploadBodyOf(up))
}

func (s *Server) dropUpload(q *request) error {
	if err := s.Snapshots.Drop(q.ctx(), q.snapshots(), q.id, q.part); err != nil {
		return err
	}
	q.x.WriteHeader(http.StatusNoContent)
	return nil
}

// A chunkBody is an entry of a leaf's list.
type chunkBody struct {
	Length uint32 `json:"length"`
	Hash   string `json:"hash"` // 64 zeros: zeros alone
}

// tellLeaves takes lists of leaves and tells which of their chunks are to be sent. The
// lists come as JSON, or as
//
//	*( index(4) count(2) list )
//
// and are then answered by the missing hashes, 32 bytes each.
func (s *Server) tellLeaves(q *request) error {
	v := q.query()
	part := v.text("part")
	if v.err != nil {
		return v.err
	}
	binary := isMedia(q.r.Header.Get("Content-Type"), octetMedia)
	text, err := io.ReadAll(capReader(requestBody(q), leafListBytes, "list of leaves"))
	if err != nil {
		return err
	}
	var leaves []snapshot.Leaf
	if binary {
		leaves, err = leavesOf(text)
	} else {
		part, leaves, err = jsonLeaves(part, text)
	}
	if err != nil {
		return err
	}
	missing, err := s.Snapshots.Missing(q.ctx(), q.snapshots(), q.id, q.part, part, leaves)
	if err != nil {
		return err
	}
	if binary {
		return q.sendHashes(missing)
	}
	hashes := make([]string, len(missing))
	for i, h := range missing {
		hashes[i] = h.String()
	}
	return q.x.json(http.StatusOK, struct {
		Missing []string `json:"missing"`
	}{hashes})
}

// putContent takes the content of whole leaves, and answers with their lists in the
// binary form of tellLeaves.
func (s *Server) putContent(q *request) error {
	v := q.query()
	part, first := v.text("part"), v.number("first")
	switch {
	case v.err != nil:
		return v.err
	case !isMedia(q.r.Header.Get("Content-Type"), contentMedia):
		return &requestError{kind: kindMediaType, text: "content is sent as " + contentMedia}
	case first >= snapshot.MaxLeaves:
		return invalid("first is not the number of a leaf")
	}
	leaves, err := s.Snapshots.Content(q.ctx(), q.snapshots(), q.id, q.part, part, int(first), wholeBody{requestBody(q)})
	if err != nil {
		return endedEarly(err)
	}
	var text []byte
	for _, leaf := range leaves {
		text = binary.BigEndian.AppendUint32(text, uint32(leaf.Index))
		text = binary.BigEndian.AppendUint16(text, uint16(len(leaf.Chunks)))
		text = snapshot.AppendList(text, leaf.Chunks)
	}
	q.x.octets(text)
	return nil
}

func requestBody(q *request) io.Reader {
	if q.r.Body == nil {
		return http.NoBody
	}
	return q.r.Body
}

func (q *request) sendHashes(hashes []snapshot.Hash) error {
	text := make([]byte, 0, len(hashes)*len(snapshot.Hash{}))
	for i := range hashes {
		text = append(text, hashes[i][:]...)
	}
	q.x.octets(text)
	return nil
}

// leavesOf reads lists of leaves in their binary form.
func leavesOf(text []byte) (leaves []snapshot.Leaf, err error) {
	for len(text) > 0 {
		if len(text) < leafPrefix {
			return nil, invalid("the lists of leaves end within one")
		}
		leaf := snapshot.Leaf{Index: int(binary.BigEndian.Uint32(text))}
		size := int(binary.BigEndian.Uint16(text[4:])) * snapshot.EntryBytes
		if text = text[leafPrefix:]; size > len(text) {
			return nil, invalid("the lists of leaves end within one")
		}
		if leaf.Chunks, err = snapshot.DecodeList(text[:size]); err != nil {
			return nil, err
		}
		leaves, text = append(leaves, leaf), text[size:]
	}
	return leaves, nil
}

func jsonLeaves(part string, text []byte) (string, []snapshot.Leaf, error) {
	var body struct {
		Part   string `json:"part"`
		Leaves []struct {
			Index  int         `json:"index"`
			Chunks []chunkBody `json:"chunks"`
		} `json:"leaves"`
	}
	if err := unmarshal(text, &body); err != nil {
		return "", nil, err
	}
	leaves := make([]snapshot.Leaf, len(body.Leaves))
	for i, l := range body.Leaves {
		leaf := snapshot.Leaf{Index: l.Index, Chunks: make([]snapshot.Chunk, len(l.Chunks))}
		for n, c := range l.Chunks {
			hash, err := snapshot.ParseHash(c.Hash)
			if err != nil {
				return "", nil, err
			}
			leaf.Chunks[n] = snapshot.Chunk{Length: c.Length, Hash: hash}
		}
		leaves[i] = leaf
	}
	return first(body.Part, part), leaves, nil
}

// putChunks takes chunks as the records of a sparse stream.
func (s *Server) putChunks(q *request) error {
	if !isMedia(q.r.Header.Get("Content-Type"), sparseMedia) {
		return &requestError{kind: kindMediaType, text: "chunks are sent as " + sparseMedia}
	}
	stored, err := s.Snapshots.Put(q.ctx(), q.snapshots(), q.id, q.part, snapshot.NewSparseReader(wholeBody{requestBody(q)}))
	if err != nil {
		return endedEarly(err)
	}
	return q.x.json(http.StatusOK, storedBody{stored})
}

// A storedBody tells how many chunks were new.
type storedBody struct {
	Stored int `json:"stored"`
}

// putChunk takes one chunk, whose hash the path names: its content, or one zstd frame of it.
func (s *Server) putChunk(q *request) error {
	hash, err := snapshot.ParseHash(q.hash)
	if err != nil {
		return err
	}
	v := q.query()
	if v.err != nil {
		return v.err
	}
	blob, err := io.ReadAll(capReader(requestBody(q), snapshot.MaxContent, "chunk"))
	if err != nil {
		return err
	}
	length := int64(len(blob))
	switch coding := q.r.Header.Get("Content-Encoding"); coding {
	case "", "identity":
	case "zstd":
		var known bool
		if length, known = frameContent(blob); !known {
			return invalid("the frame does not tell how long its content is")
		}
	default:
		return &requestError{kind: kindMediaType, text: "a chunk is sent as it is or as zstd"}
	}
	rec := snapshot.Record{Length: length, Hash: hash, Blob: blob}
	var record bytes.Buffer
	w := snapshot.NewSparseWriter(&record)
	if err := w.Write(rec); err != nil {
		return err
	}
	if err := w.End(snapshot.Hash{}); err != nil {
		return err
	}
	stored, err := s.Snapshots.Put(q.ctx(), q.snapshots(), q.id, q.part, snapshot.NewSparseReader(&record))
	if err != nil {
		return err
	}
	return q.x.json(http.StatusOK, storedBody{stored})
}

// frameContent is how long the content of a zstd frame is, as its header says (RFC 8878):
//
//	header = magic(4) descriptor(1) [window(1)] [dictionary(0,1,2,4)] [content-size(1,2,4,8)]
func frameContent(frame []byte) (size int64, known bool) {
	if len(frame) < 6 || binary.LittleEndian.Uint32(frame) != 0xFD2FB528 {
		return 0, false
	}
	descriptor := frame[4]
	single := descriptor&0x20 != 0
	at := 5 + [4]int{0, 1, 2, 4}[descriptor&3]
	if !single {
		at++
	}
	field := frame[min(at, len(frame)):]
	var n uint64
	switch width := [4]int{0, 2, 4, 8}[descriptor>>6]; {
	case width == 0 && single && len(field) >= 1:
		n = uint64(field[0])
	case width == 2 && len(field) >= 2:
		n = uint64(binary.LittleEndian.Uint16(field)) + 256
	case width == 4 && len(field) >= 4:
		n = uint64(binary.LittleEndian.Uint32(field))
	case width == 8 && len(field) >= 8:
		n = binary.LittleEndian.Uint64(field)
	default:
		return 0, false
	}
	return int64(min(n, snapshot.MaxImage)), true
}

// sealUpload makes an upload a snapshot.
func (s *Server) sealUpload(q *request) error {
	var body struct {
		Roots    map[string]string   `json:"roots"`
		Sizes    map[string]int64    `json:"sizes"`
		Quiet    *snapshot.Quiet     `json:"quiescence"`
		Excluded []snapshot.Excluded `json:"excluded"`
		Envelope json.RawMessage     `json:"envelope"`
	}
	if err := s.readJSON(q, &body); err != nil {
		return err
	}
	if err := s.checkEnvelope(body.Envelope); err != nil {
		return err
	}
	spec := snapshot.SealSpec{Roots: map[string]snapshot.Hash{}, Sizes: body.Sizes, Quiet: body.Quiet, Excluded: body.Excluded, Envelope: body.Envelope, Once: onceSave(q)}
	for part, text := range body.Roots {
		hash, err := snapshot.ParseHash(text)
		if err != nil {
			return &snapshot.FieldError{Field: "roots." + part, Text: "is not a SHA-256 hash"}
		}
		spec.Roots[part] = hash
	}
	got, err := s.Snapshots.Seal(q.ctx(), q.snapshots(), q.id, q.part, spec)
	if err != nil {
		return err
	}
	status, answer := answerSave(got, got.Commit.IsZero())
	return q.x.json(status, answer)
}
