package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// An encoder is a buffer with the JSON encoder that writes to it, to be used again.
type encoder struct {
	buf  bytes.Buffer
	json *json.Encoder
}

var encoders = sync.Pool{New: func() any {
	e := &encoder{}
	e.json = json.NewEncoder(&e.buf)
	e.json.SetEscapeHTML(false)
	return e
}}

// keptBuffer is the largest buffer that waits in the pool for its next use.
const keptBuffer = 64 << 10

func (e *encoder) release() {
	if e.buf.Cap() <= keptBuffer {
		e.buf.Reset()
		encoders.Put(e)
	}
}

var (
	jsonType = []string{"application/json"}
	textType = []string{"text/plain; charset=utf-8"}
)

// json answers with v. Its error is one of encoding; what the connection does is
// seen by whoever reads next.
func (x *exchange) json(status int, v any) error {
	e := encoders.Get().(*encoder)
	defer e.release()
	if err := e.json.Encode(v); err != nil {
		return err
	}
	x.jsonText(status, e.buf.Bytes())
	return nil
}

// jsonText answers with what is JSON already.
func (x *exchange) jsonText(status int, text []byte) {
	h := x.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(text))}
	x.WriteHeader(status)
	_, _ = x.Write(text)
}

func (x *exchange) plain(status int, text string) {
	h := x.Header()
	h["Content-Type"] = textType
	h["Content-Length"] = []string{strconv.Itoa(len(text))}
	x.WriteHeader(status)
	_, _ = io.WriteString(x, text)
}

// readJSON decodes the body, whatever its media type says, into v. An empty body
// is {}; unknown members are ignored.
func (s *Server) readJSON(q *request, v any) error {
	if q.r.Body == nil || q.r.Body == http.NoBody {
		return nil
	}
	e := encoders.Get().(*encoder)
	defer e.release()
	if _, err := e.buf.ReadFrom(capReader(q.r.Body, s.Limits.BodyBytes, "JSON body")); err != nil {
		return err
	}
	if len(bytes.TrimSpace(e.buf.Bytes())) == 0 {
		return nil
	}
	return unmarshal(e.buf.Bytes(), v)
}

// unmarshal is json.Unmarshal with an error that may be shown.
func unmarshal(b []byte, v any) error {
	if trimmed := bytes.TrimLeft(b, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' {
		return invalid("body is not a JSON object")
	}
	if err := json.Unmarshal(b, v); err != nil {
		if request, ok := err.(*requestError); ok { //nolint:errorlint // what an UnmarshalJSON of ours gave comes back unwrapped
			return request
		}
		var typ *json.UnmarshalTypeError
		if errors.As(err, &typ) && typ.Field != "" {
			return invalid("%s may not be a %s", typ.Field, typ.Value)
		}
		return invalid("body is not valid JSON for this call: %v", err)
	}
	return nil
}

// first is the first of values that is not empty: the new name goes before the old.
func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// firstBool is the first of values that was given.
func firstBool(values ...*bool) bool {
	for _, v := range values {
		if v != nil {
			return *v
		}
	}
	return false
}

// A query reads a request's query parameters and keeps the first thing wrong with
// them.
type query struct {
	values url.Values
	err    error
}

func (q *request) query() *query {
	values, err := url.ParseQuery(q.r.URL.RawQuery)
	if err != nil {
		return &query{values: values, err: invalid("query is malformed")}
	}
	return &query{values: values}
}

// text is the first of the named parameters that is not empty.
func (q *query) text(names ...string) string {
	for _, name := range names {
		if v := q.values.Get(name); v != "" {
			return v
		}
	}
	return ""
}

// need is text, and an error without one.
func (q *query) need(names ...string) string {
	v := q.text(names...)
	if v == "" && q.err == nil {
		q.err = invalid("query parameter %s is missing", names[0])
	}
	return v
}

// list is every value of a repeatable parameter that is not empty.
func (q *query) list(name string) []string {
	var list []string
	for _, v := range q.values[name] {
		if v != "" {
			list = append(list, v)
		}
	}
	return list
}

func (q *query) flag(names ...string) bool {
	switch v := q.text(names...); v {
	case "", "false":
		return false
	case "true":
		return true
	}
	if q.err == nil {
		q.err = invalid("query parameter %s is neither true nor false", names[0])
	}
	return false
}

// limit is a page's size: def without one or with 0, and most if it is more.
func (q *query) limit(def, most int) int {
	v := q.text("limit")
	if v == "" {
		return def
	}
	n, err := strconv.ParseUint(v, 10, 64)
	// More digits than a number has are still more than the most.
	if err != nil && !isDigits(v) {
		if q.err == nil {
			q.err = invalid("query parameter limit is not a decimal number of 0 or more")
		}
		return def
	}
	switch {
	case err != nil || n > uint64(most):
		return most
	case n == 0:
		return def
	}
	return int(n)
}

func isDigits(s string) bool {
	return strings.Trim(s, "0123456789") == ""
}

// Sizes of pages.
const (
	pageDefault  = 20
	pageMost     = 100
	filesDefault = 1000
	filesMost    = 5000
)

// wireTime is RFC 3339 in whole seconds. A date or zone that it cannot say, as
// some commits have, is told in UTC and within its years.
func wireTime(t time.Time) string {
	if _, offset := t.Zone(); offset%60 != 0 || offset <= -24*3600 || offset >= 24*3600 {
		t = t.UTC()
	}
	switch y := t.Year(); {
	case y < 0:
		t = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	case y > 9999:
		t = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	}
	return t.Format("2006-01-02T15:04:05Z07:00")
}

// branchRef is the stored name of a branch field, in either namespace.
func branchRef(short string, ephemeral bool) (refpolicy.RefName, error) {
	if ephemeral {
		return refpolicy.EphemeralBranch(short)
	}
	return refpolicy.Branch(short)
}

// isHexOID reports whether s names a commit by its whole id.
func isHexOID(s string) bool {
	_, err := refpolicy.ParseOID(s)
	return err == nil
}
