package httpapi

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/tokens"
)

// A client that names its call by an Idempotency-Key may make it again: what it was
// answered is stored in the batch of the change itself and given again for a day.

const (
	keyHeader      = "Idempotency-Key"
	replayedHeader = "Idempotency-Replayed"
	keyMost        = 128 // characters of a key
)

var errMismatch = &requestError{kind: kindMismatch, text: "this Idempotency-Key was used for another request"}

// idempotencyKey is the key of a call; empty without one.
func idempotencyKey(h http.Header) (string, error) {
	keys := h[keyHeader]
	if len(keys) == 0 {
		return "", nil
	}
	key := keys[0]
	odd := func(c byte) bool { return c < ' ' || c > '~' }
	if len(keys) > 1 || key == "" || len(key) > keyMost || slices.ContainsFunc([]byte(key), odd) {
		return "", invalid("%s is not 1 to %d printable ASCII characters", keyHeader, keyMost)
	}
	return key, nil
}

// A namedCall is a call with an Idempotency-Key, while it is made.
type namedCall struct {
	once   ledger.Once[struct{}] // only its key
	sum    hash.Hash             // of what is asked for; the body as far as it was read
	length int64                 // of the body so far
	ended  bool                  // the body was read to its end
}

// newNamedCall names a call among those of its caller to the same route of the same
// repo.
func newNamedCall(rt *route, q *request, ctx echo.Context, key string) *namedCall {
	scope := sha256.New()
	hashTexts(scope, append([]string{q.who.Org, q.who.Repo, rt.name, key}, callerNames(q.who)...)...)
	c := &namedCall{sum: sha256.New()}
	c.once.Key = hex.EncodeToString(scope.Sum(nil))
	asked := []string{rt.name}
	for i, name := range ctx.ParamNames() {
		if name != "repo" {
			asked = append(asked, name, ctx.ParamValues()[i])
		}
	}
	query := q.r.URL.RawQuery
	if v := q.query(); v.err == nil {
		query = v.values.Encode() // the order of parameters does not count
	}
	hashTexts(c.sum, append(asked, query)...)
	return c
}

// callerNames tell callers apart. A stored answer is given before anything else is
// looked at, so one subject with other rules, or bound to another session, is another
// caller: many backends put one subject into all their tokens, those of sandboxes too.
func callerNames(who *tokens.Principal) []string {
	names := []string{"sub", who.Subject, who.Session, who.Policy.Key()}
	if who.Subject == "" {
		names[0], names[1] = "kid", who.KeyID
	}
	if who.Issued { // one session has tokens with more and with less
		for _, scope := range who.Scopes.List() {
			names = append(names, string(scope))
		}
	}
	return names
}

// hashTexts hashes texts so that no other ones give the same.
func hashTexts(h hash.Hash, texts ...string) {
	_ = binary.Write(h, binary.BigEndian, uint64(len(texts)))
	for _, t := range texts {
		_ = binary.Write(h, binary.BigEndian, uint64(len(t)))
		_, _ = io.WriteString(h, t)
	}
}

// A hashedBody hashes a body while it is read.
type hashedBody struct {
	io.ReadCloser
	call *namedCall
}

func (b hashedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.call.sum.Write(p[:n])
	b.call.length += int64(n)
	b.call.ended = b.call.ended || err == io.EOF
	return n, err
}

// call has a route handle a request. What was answered to a call of the same name is
// answered again, before anything else is looked at, and also when this one fails for
// what another of its name has done meanwhile.
func (s *Server) call(rt *route, q *request, ctx echo.Context) error {
	if rt.method == http.MethodGet || rt.method == http.MethodHead || rt.access == operator {
		return rt.handle(s, q)
	}
	key, err := idempotencyKey(q.r.Header)
	if err != nil {
		return err
	}
	if key == "" {
		return rt.handle(s, q)
	}
	if err := s.name(rt, q, ctx, key); err != nil {
		return err
	}
	stored, err := s.storedFor(rt, q)
	if err == nil && stored == nil {
		if err = rt.handle(s, q); err == nil || q.x.started() {
			return err
		}
		stored, err = s.storedSince(rt, q, err)
	}
	if err != nil {
		return err
	}
	return s.replay(q, stored)
}

// name makes a request a named call. The body of a commit or of an image is hashed while
// it is used, any other before.
func (s *Server) name(rt *route, q *request, ctx echo.Context, key string) error {
	q.named = newNamedCall(rt, q, ctx, key)
	if q.r.Body == nil {
		q.r.Body = http.NoBody
	}
	q.r.Body = hashedBody{q.r.Body, q.named}
	if rt.envelope || rt.streams {
		return nil
	}
	text, err := io.ReadAll(capReader(q.r.Body, s.Limits.BodyBytes, "JSON body"))
	if err == nil {
		q.r.Body = io.NopCloser(bytes.NewReader(text))
	}
	return err
}

// storedFor is the answer that is stored for a call, nil if there is none.
func (s *Server) storedFor(rt *route, q *request) ([]byte, error) {
	if rt.access == repoName { // the repo itself comes or goes
		return s.Store.OrgOnce(q.ctx(), q.who.Org, q.named.once.StoreKey())
	}
	return q.repo.Once(q.ctx(), q.named.once.StoreKey())
}

// storedSince is the answer that is stored for a call which has failed with err; that
// is its error if there is none.
func (s *Server) storedSince(rt *route, q *request, err error) ([]byte, error) {
	if stored, ok := ledger.IsRepeated(err); ok {
		return stored, nil
	}
	stored, lerr := s.storedFor(rt, q)
	if lerr != nil || stored == nil {
		return nil, err
	}
	return stored, nil
}

// readOn reads a body to its end, unless it is longer than another one was.
func (c *namedCall) readOn(body io.Reader, length int64) error {
	if c.ended {
		return nil
	}
	_, err := io.Copy(io.Discard, io.LimitReader(body, length-c.length+1))
	if err == nil && c.length > length {
		return errMismatch
	}
	return bodyError(err)
}

// A storedAnswer is what is kept of a call: a line of JSON, then the answer's body.
type storedAnswer struct {
	Sum    []byte `json:"sum"`    // of what was asked for
	Length int64  `json:"length"` // of the request's body
	Status int    `json:"status"`
	// The tokens in the body are not stored: in their places stand marks that nobody
	// could foresee, and the tokens are signed anew.
	Mark   string         `json:"mark,omitempty"`
	Tokens []tokens.Grant `json:"tokens,omitempty"`

	body []byte
}

func (a *storedAnswer) mark(token int) string { return fmt.Sprintf("%s%06d", a.Mark, token) }

func (a *storedAnswer) encode() ([]byte, error) {
	line, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	return append(append(line, '\n'), a.body...), nil
}

func decodeStoredAnswer(b []byte) (a storedAnswer, err error) {
	line, body, ok := bytes.Cut(b, []byte("\n"))
	if err = json.Unmarshal(line, &a); err == nil && !ok {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return a, fmt.Errorf("decode stored answer: %w", err)
	}
	a.body = body
	return a, nil
}

// signedBody is the body with its tokens in the places of their marks. A fork may have
// thousands of both.
func (a *storedAnswer) signedBody(issuer Issuer) ([]byte, error) {
	if len(a.Tokens) == 0 {
		return a.body, nil
	}
	signed := make([]string, 0, 2*len(a.Tokens))
	for i, g := range a.Tokens {
		token, err := issuer.Mint(g)
		if err != nil {
			return nil, err
		}
		signed = append(signed, a.mark(i), token)
	}
	return []byte(strings.NewReplacer(signed...).Replace(string(a.body))), nil
}

// A signer makes the token that says g.
type signer func(g tokens.Grant) (string, error)

// onceOf is what a call of q is to be stored with, if it is named: the status, and the
// body that is made of its result. A nil body is none.
func onceOf[T any](q *request, status int, body func(T) any) *ledger.Once[T] {
	if body == nil {
		return onceSigned[T](q, status, nil)
	}
	return onceSigned(q, status, func(result T, _ signer) (any, error) { return body(result), nil })
}

// onceSigned is onceOf for answers with tokens in them, which the body has to get from
// the signer it is given.
func onceSigned[T any](q *request, status int, body func(T, signer) (any, error)) *ledger.Once[T] {
	if q.named == nil {
		return nil
	}
	return &ledger.Once[T]{Key: q.named.once.Key, Answer: func(result T) ([]byte, error) {
		if !q.named.ended {
			return nil, errors.New("the request's body was not read to its end")
		}
		a := storedAnswer{Sum: q.named.sum.Sum(nil), Length: q.named.length, Status: status}
		if body == nil {
			return a.encode()
		}
		v, err := body(result, a.leaveOut)
		if err != nil {
			return nil, err
		}
		e := encoders.Get().(*encoder)
		defer e.release()
		if err := e.json.Encode(v); err != nil {
			return nil, err
		}
		a.body = e.buf.Bytes()
		return a.encode()
	}}
}

// leaveOut is a signer that leaves a mark in the token's place.
func (a *storedAnswer) leaveOut(g tokens.Grant) (string, error) {
	if a.Mark == "" {
		var b [16]byte
		_, _ = rand.Read(b[:]) // never fails
		a.Mark = hex.EncodeToString(b[:])
	}
	a.Tokens = append(a.Tokens, g)
	return a.mark(len(a.Tokens) - 1), nil
}

// replay gives the stored answer to a call that asks for the same again.
func (s *Server) replay(q *request, stored []byte) error {
	a, err := decodeStoredAnswer(stored)
	if err != nil {
		return err
	}
	if err := q.named.readOn(q.r.Body, a.Length); err != nil {
		return err
	}
	if subtle.ConstantTimeCompare(a.Sum, q.named.sum.Sum(nil)) != 1 {
		return errMismatch
	}
	body, err := a.signedBody(s.Issuer)
	if err != nil {
		return err
	}
	h := q.x.Header()
	h.Set(replayedHeader, "true")
	if len(a.Tokens) > 0 {
		h["Cache-Control"] = noStore
	}
	if len(body) == 0 {
		q.x.WriteHeader(a.Status)
		return nil
	}
	q.x.jsonText(a.Status, body)
	return nil
}
