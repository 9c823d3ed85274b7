package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func frame(seq int, kind string) string {
	return fmt.Sprintf("id: %d\nevent: %s\ndata: {\"seq\":%d,\"type\":%q,\"actor\":{\"sub\":\"a\"},\"changes\":[{\"ref\":\"refs/heads/m\",\"kind\":\"rewind\"}]}\n\n", seq, kind, seq, kind)
}

// following serves one answer after another, and then refuses; it gives a client and
// the Last-Event-ID of each request.
func following(t testing.TB, answers ...string) (*API, *[]string) {
	t.Helper()
	var lasts []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lasts = append(lasts, r.Header.Get("Last-Event-ID"))
		if r.URL.EscapedPath() != "/api/repos/a%2Fb/events" || r.URL.Query().Get("session") != "s" || r.Header.Get("Accept") != "text/event-stream" || r.Header.Get("Authorization") != "Bearer tok" {
			t.Errorf("request %s %v", r.URL, r.Header)
		}
		if len(answers) == 0 {
			w.WriteHeader(401)
			fmt.Fprint(w, `{"error":"expired","code":"unauthorized"}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, answers[0])
		answers = answers[1:]
	}))
	t.Cleanup(srv.Close)
	a, err := NewAPI(srv.URL, "tok")
	if err != nil {
		t.Fatal(err)
	}
	return a, &lasts
}

// A stream that ends is opened again where it was; half an event is none; a refusal ends it.
func TestFollow(t *testing.T) {
	whole := "retry: 1000\n: hello\n\n" + frame(4, "ref.updated") + ":\n\n" + frame(6, "session.ended")
	half := frame(7, "ref.updated")
	a, lasts := following(t, whole+half[:len(half)-1])
	var seqs []uint64
	err := a.Follow(t.Context(), "a/b", "s", 3, func(e Event) error {
		if e.Actor.Subject != "a" || len(e.Changes) != 1 || e.Changes[0].Kind != "rewind" {
			t.Errorf("event = %+v", e)
		}
		seqs = append(seqs, e.Seq)
		return nil
	})
	var refused *ServerError
	if !errors.As(err, &refused) || refused.Status != 401 {
		t.Errorf("Follow = %v, want the server's refusal", err)
	}
	if !slices.Equal(seqs, []uint64{4, 6}) || !slices.Equal(*lasts, []string{"3", "6"}) {
		t.Errorf("events %v, asked after %v; want 4 and 6, asked after 3 and 6", seqs, *lasts)
	}
}

func TestFollowEnds(t *testing.T) {
	enough := errors.New("enough")
	a, _ := following(t, frame(1, "ref.updated")+frame(2, "ref.updated"))
	if err := a.Follow(t.Context(), "a/b", "s", 0, func(Event) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("Follow = %v, want what see gave", err)
	}
	a, _ = following(t, frame(5, "resync")+frame(5, "ref.updated"))
	if err := a.Follow(t.Context(), "a/b", "s", 9, func(Event) error { return nil }); !errors.Is(err, ErrBadAnswer) {
		t.Errorf("Follow of what does not count up = %v, want ErrBadAnswer", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	a, _ = following(t, frame(1, "ref.updated"))
	if err := a.Follow(ctx, "a/b", "s", 0, func(Event) error { cancel(); return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("Follow of a canceled context = %v", err)
	}
}

func FuzzFollow(f *testing.F) {
	f.Add([]byte(frame(1, "ref.updated") + frame(2, "resync")))
	f.Add([]byte("data: {}\n\n"))
	f.Add([]byte("data: x\n\n"))
	f.Add([]byte(":\r\n\r\nid: 9\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		last := uint64(0)
		fo := follower{see: func(e Event) error {
			if e.Seq <= last && e.Type != resync {
				t.Fatalf("event %d after %d", e.Seq, last)
			}
			last = e.Seq
			return nil
		}}
		if err := fo.read(bufio.NewReader(bytes.NewReader(stream))); err == nil {
			t.Fatalf("a stream %.80q has no end", strings.ToValidUTF8(string(stream), "?"))
		}
	})
}
