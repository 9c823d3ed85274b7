package httpapi

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Only waiting for the client counts as standing still: a handler that is busy
// between two reads, or between two writes, for longer than the timeout loses
// neither body nor answer. Over HTTP/2 a deadline fires by itself, so it is tried
// there too.
func TestBusyHandlerIsNotIdle(t *testing.T) {
	const window = 400 * time.Millisecond // long enough that a busy machine does not miss it
	s := New(Config{Logger: slog.New(slog.DiscardHandler), Limits: Limits{IdleTimeout: window}})
	big := strings.Repeat("x", 2*quietBytes)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, r := s.newExchange(w, r)
		defer s.end(x, r)
		s.Metrics.begin()
		x.streamBoth()
		var first [10]byte
		_, err := io.ReadFull(r.Body, first[:])
		<-time.After(3 * window)
		rest, err2 := io.ReadAll(r.Body)
		if err != nil || err2 != nil || len(rest) != len(big) {
			t.Errorf("%s: body = %v, %d bytes, %v", r.Proto, err, len(rest), err2)
		}
		_, _ = io.WriteString(x, big)
		<-time.After(3 * window)
		_, _ = io.WriteString(x, big)
		<-time.After(3 * window)
	})
	var both sync.WaitGroup
	for _, h2 := range []bool{false, true} {
		both.Go(func() {
			srv := httptest.NewUnstartedServer(handler)
			srv.EnableHTTP2 = h2
			srv.StartTLS()
			defer srv.Close()
			resp, err := srv.Client().Post(srv.URL, "text/plain", strings.NewReader("0123456789"+big))
			if err != nil {
				t.Errorf("HTTP/2 %v: %v", h2, err)
				return
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || len(body) != 2*len(big) {
				t.Errorf("HTTP/2 %v: answer of %d bytes, %v; want %d", h2, len(body), err, 2*len(big))
			}
		})
	}
	both.Wait()
}

// A handler that works on after the whole body was read, and that looks for more of
// it, is not taken for one whose client sends nothing.
func TestBodyReadToItsEndIsNotIdle(t *testing.T) {
	const window = 300 * time.Millisecond
	s := New(Config{Logger: slog.New(slog.DiscardHandler), Limits: Limits{IdleTimeout: window}})
	for _, held := range []bool{false, true} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			x, r := s.newExchange(w, r)
			defer s.end(x, r)
			s.Metrics.begin()
			x.streamBoth()
			if held {
				x.body.hold(r.ContentLength)
			}
			for range 3 {
				if rest, err := io.ReadAll(r.Body); err != nil || len(rest) > 1000 {
					t.Errorf("held %v: body = %d bytes, %v", held, len(rest), err)
				}
			}
			select {
			case <-r.Context().Done():
				t.Errorf("held %v: the request's context ended while it was at work: %v", held, r.Context().Err())
			case <-time.After(4 * window):
			}
			_, _ = io.WriteString(x, "done")
		}))
		resp, err := http.Post(srv.URL, "text/plain", strings.NewReader(strings.Repeat("x", 1000)))
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "done" {
			t.Errorf("held %v: answer = %q, %v", held, body, err)
		}
		resp.Body.Close()
		srv.Close()
	}
}

func TestCappedReader(t *testing.T) {
	for n, want := range map[int]int{0: 0, 9: 0, 10: 0, 11: 413, 100: 413} {
		got, err := io.ReadAll(capReader(strings.NewReader(strings.Repeat("x", n)), 10, "thing"))
		if want == 0 && (err != nil || len(got) != n) {
			t.Errorf("%d bytes under a cap of 10 = %d bytes, %v", n, len(got), err)
		}
		if p := problemOf(err); want != 0 && (p.status != want || len(got) != 10 || p.text != "thing is over 10 bytes") {
			t.Errorf("%d bytes under a cap of 10 = %d bytes, %v; want 10 and a 413", n, len(got), err)
		}
	}
}
