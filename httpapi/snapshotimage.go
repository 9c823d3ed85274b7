package httpapi

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"unicode/utf16"

	"github.com/google/uuid"

	"github.com/headgate/headgate/sessions/snapshot"
)

// A restore is an answer that gives an image or a range of it.
type restore struct {
	q      *request
	im     *snapshot.Image
	status int
	start  int64
	length int64
	sparse bool
	hot    bool
	// located is set where the range was named by a guest address.
	located bool
}

// getImage answers GET and HEAD of a snapshot's image: its bytes, or with the sparse
// media type its chunks.
func (s *Server) getImage(q *request) error {
	id, err := q.snapshotID()
	if err != nil {
		return err
	}
	v := q.query()
	part, hot := v.text("part"), v.flag("hot")
	address, located := v.address("address")
	length := v.size("length")
	if v.err != nil {
		return v.err
	}
	if located && has(q.r.Header, "Range") {
		return invalid("a range is given by an address or by Range, not by both")
	}
	im, err := s.Snapshots.Open(q.ctx(), q.snapshots(), id, part)
	if err != nil {
		return err
	}
	r := &restore{q: q, im: im, hot: hot, located: located, sparse: accepts(q.r.Header, sparseMedia)}
	if im.Snapshot.Sealed && !r.sparse {
		return snapshot.ErrSealed
	}
	if located {
		return r.at(address, length)
	}
	return r.conditional()
}

// at answers with what lies at a guest address.
func (r *restore) at(address uint64, length int64) error {
	if length < 1 {
		return invalid("length is missing: how many bytes from the address on")
	}
	off, err := r.im.Offset(address, length)
	if err != nil {
		return err
	}
	r.status, r.start, r.length = http.StatusOK, off, length
	return r.send()
}

// conditional answers with the image, or what Range names of it, under the request's
// conditions.
func (r *restore) conditional() error {
	e := &entity{etag: r.etag(), modified: r.im.Snapshot.CreatedAt, size: r.im.Part.Size}
	a := e.answer(r.q.r)
	switch a.status {
	case http.StatusNotModified:
		r.q.x.Header()["Etag"] = []string{e.etag}
		r.q.x.WriteHeader(a.status)
		return nil
	case http.StatusPreconditionFailed:
		return &requestError{kind: kindPrecondition, text: "a condition of the request does not hold"}
	case http.StatusRequestedRangeNotSatisfiable:
		r.q.x.Header().Set("Content-Range", "bytes */"+strconv.FormatInt(e.size, 10))
		return snapshot.ErrRange
	}
	r.status, r.start, r.length = a.status, a.start, a.length
	return r.send()
}

// etag is the image's hash; the sparse form is another one of the same image.
func (r *restore) etag() string {
	if r.sparse {
		return `"` + r.im.Part.Root + `-sparse"`
	}
	return `"` + r.im.Part.Root + `"`
}

// errorTrailer tells of what ended a sparse stream before its end.
const errorTrailer = "X-Headgate-Error"

// send gives the range. Until its first bytes are checked nothing goes out, so that what
// fails by then has a status; afterwards the answer is cut. A sparse stream without its
// end is cut too, and says why in a trailer.
func (r *restore) send() error {
	x, ctx := r.q.x, r.q.ctx()
	if r.q.r.Method == http.MethodHead || r.length == 0 && !r.sparse {
		return r.begin()
	}
	w := &heldWriter{x: x, begin: r.begin}
	defer w.release()
	var err error
	if r.sparse {
		err = r.im.WriteSparse(ctx, w, r.start, r.length, r.hot)
	} else {
		err = r.im.WriteRange(ctx, w, r.start, r.length)
	}
	if err == nil {
		err = w.flush()
	}
	switch {
	case err == nil:
		return nil
	case r.sparse && x.started() && ctx.Err() == nil && !w.broken:
		x.failure = err
		x.Header().Set(errorTrailer, trailerOf(err))
		return nil
	}
	return err
}

// trailerOf is an error on one line.
func trailerOf(err error) string {
	p := problemOf(err)
	text, _ := json.Marshal(struct {
		Error string `json:"error"`
		Code  string `json:"code"`
	}{p.text, p.code})
	return asciiJSON(text, len(text)*6)
}

// begin sends status and headers. Each restore has an id and a seed of its own.
func (r *restore) begin() error {
	x, im := r.q.x, r.im
	h := x.Header()
	h["Accept-Ranges"] = bytesUnit
	h["Etag"] = []string{r.etag()}
	h["Cache-Control"] = noStore
	h.Set("X-Content-Sha256", im.Part.Root)
	h.Set("X-Headgate-Snapshot", im.Snapshot.Commit.String())
	h.Set("X-Headgate-Offset", strconv.FormatInt(r.start, 10))
	h.Set("X-Restore-Id", uuid.NewString())
	h.Set("X-Restore-Seed", newSeed())
	h.Set("Vary", "Accept")
	tellExcluded(h, im.Manifest.Excluded)
	if r.status == http.StatusPartialContent {
		h.Set("Content-Range", fileAnswer{start: r.start, length: r.length}.contentRange(im.Part.Size))
	}
	if r.sparse {
		h.Set("Content-Type", sparseMedia)
		h.Set("Trailer", errorTrailer)
	} else {
		h["Content-Type"] = octetType
		h["Content-Length"] = []string{strconv.FormatInt(r.length, 10)}
		x.joined(r.q.r, r.length)
	}
	x.WriteHeader(r.status)
	return nil
}

func newSeed() string {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // never fails
	return hex.EncodeToString(seed[:])
}

const (
	excludedHeader = "X-Headgate-Excluded"
	excludedBytes  = 4 << 10 // of the header; the manifest names all
)

// tellExcluded names what was left out of the save, as much of it as a header may hold.
func tellExcluded(h http.Header, all []snapshot.Excluded) {
	if len(all) == 0 {
		return
	}
	h.Set(excludedHeader+"-Count", strconv.Itoa(len(all)))
	for n := len(all); n > 0; n /= 2 {
		text, err := json.Marshal(all[:n])
		if told := asciiJSON(text, excludedBytes); err == nil && told != "" {
			h.Set(excludedHeader, told)
			return
		}
	}
}

// asciiJSON is JSON text whose strings are escaped to ASCII, as a header needs it; empty
// if it is longer than most.
func asciiJSON(text []byte, most int) string {
	var out []byte
	for _, r := range string(text) {
		switch {
		case r < 0x80:
			out = append(out, byte(r))
		case r < 0x10000:
			out = append(out, escaped(uint16(r))...)
		default:
			high, low := utf16.EncodeRune(r)
			out = append(append(out, escaped(uint16(high))...), escaped(uint16(low))...)
		}
		if len(out) > most {
			return ""
		}
	}
	return string(out)
}

func escaped(unit uint16) string {
	text := strconv.FormatUint(uint64(unit)|0x10000, 16)
	return `\u` + text[1:]
}

// address is a parameter that is a guest address: decimal, or hex with 0x.
func (q *query) address(name string) (address uint64, given bool) {
	text := q.text(name)
	if text == "" {
		return 0, false
	}
	address, err := strconv.ParseUint(text, 0, 64)
	if err != nil && q.err == nil {
		q.err = invalid("query parameter %s is no address", name)
	}
	return address, true
}

// size is a parameter that is a number of bytes; 0 without one.
func (q *query) size(name string) int64 {
	text := q.text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if (err != nil || n < 0) && q.err == nil {
		q.err = invalid("query parameter %s is not a number of bytes", name)
	}
	return n
}

// octets answers with bytes.
func (x *exchange) octets(text []byte) {
	h := x.Header()
	h["Content-Type"] = octetType
	h["Content-Length"] = []string{strconv.Itoa(len(text))}
	x.WriteHeader(http.StatusOK)
	_, _ = x.Write(text)
}
