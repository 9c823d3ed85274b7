package client

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// What a server answers to a call about denials is not trusted: no answer keeps the
// client busy for ever, and one that says nothing is no success.
func TestDenialsOfAnOddServer(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		answer string
		want   error // nil: a *ServerError of the status
	}{
		"pages without end":   {200, `{"denials":[{"id":"deny-jti/a"}],"next_cursor":"deny-jti/a"}`, ErrBadAnswer},
		"pages that go back":  {200, `{"next_cursor":"\u0001"}`, ErrBadAnswer},
		"no JSON":             {200, "hello", ErrBadAnswer},
		"a cut answer":        {200, `{"denials":[`, ErrBadAnswer},
		"another key":         {401, `{}`, ErrUnknownKey},
		"a refusal":           {400, `{"error":"no","code":"invalid_request"}`, nil},
		"a redirect":          {307, `{}`, nil},
		"a failure in HTML":   {502, "<html>", nil},
		"a denial without id": {200, `{"jti":"x"}`, ErrBadAnswer},
	} {
		calls := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls++
			if r.Header.Get("Authorization") != "Bearer key" {
				t.Errorf("%s: Authorization %q", name, r.Header.Get("Authorization"))
			}
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(tc.status)
			_, _ = io.WriteString(w, tc.answer)
		}))
		c, err := New(server.URL, "key")
		if err != nil {
			t.Fatal(err)
		}
		var errs []error
		if name != "a denial without id" {
			errs = append(errs, c.Denials(t.Context(), "acme", func(Denial) {}))
		}
		if _, err := c.Deny(t.Context(), "acme", Denial{TokenID: "x"}); name != "pages without end" && name != "pages that go back" || err == nil {
			errs = append(errs, err)
		}
		for _, err := range errs {
			var said *ServerError
			if tc.want != nil && !errors.Is(err, tc.want) || tc.want == nil && (!errors.As(err, &said) || said.Status != tc.status) {
				t.Errorf("%s: %v, want %v or the status %d", name, err, tc.want, tc.status)
			}
		}
		if calls > 3 {
			t.Errorf("%s: %d calls", name, calls)
		}
		server.Close()
	}
}
