package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/tokens"
)

// A frame is one event of a stream.
type frame struct {
	id, event string
	data      map[string]any
}

// news are the commits that a frame's changes lead to, kinds how they lead there.
func (f frame) news() (shas, kinds []string) {
	changes, _ := f.data["changes"].([]any)
	for _, c := range changes {
		change := c.(map[string]any)
		shas = append(shas, fmt.Sprint(change["new_sha"]))
		kinds = append(kinds, fmt.Sprint(change["kind"]))
	}
	return shas, kinds
}

// readFrames reads a stream until it ends, or until take wants no more. Comments are
// given to comment.
func readFrames(body io.Reader, take func(frame) bool, comment func(string)) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	var f frame
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case strings.HasPrefix(lines.Text(), ":"):
			comment(lines.Text())
		case name == "id":
			f.id = value
		case name == "event":
			f.event = value
		case name == "data":
			if err := json.Unmarshal([]byte(value), &f.data); err != nil {
				return fmt.Errorf("event %s: %w", f.id, err)
			}
		case lines.Text() == "" && f.data != nil:
			if !take(f) {
				return nil
			}
			f = frame{}
		}
	}
	return lines.Err()
}

// A follower reads a repo's events over connections that it, or the server, ends; it
// comes back with the last id it has seen.
type follower struct {
	r    *repo
	t    testing.TB
	path string // with the server's address, which a restart keeps

	mu     sync.Mutex // guards what follows
	frames []frame
	opened int
}

// follow follows until the test ends. Each connection is left after so many events.
func (r *repo) follow(t *testing.T, each int) *follower {
	t.Helper()
	f := &follower{r: r, t: t, path: r.g.URL + r.path("/events")}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil {
			if err := f.connect(ctx, each); err != nil && ctx.Err() == nil {
				time.Sleep(5 * time.Millisecond) // the server is away
			}
		}
	})
	t.Cleanup(func() { cancel(); all.Wait() })
	return f
}

func (f *follower) last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.frames) == 0 {
		return ""
	}
	return f.frames[len(f.frames)-1].id
}

func (f *follower) connect(ctx context.Context, each int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+f.r.read)
	req.Header.Set("Accept", "text/event-stream")
	if last := f.last(); last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := f.r.g.Client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("stream: %s", resp.Status)
	}
	f.mu.Lock()
	f.opened++
	f.mu.Unlock()
	n := 0
	return readFrames(resp.Body, func(got frame) bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.frames = append(f.frames, got)
		n++
		return n < each
	}, func(string) {})
}

// until waits for the event with a number and gives all events so far.
func (f *follower) until(seq int64) (frames []frame, opened int) {
	f.t.Helper()
	until(f.t, fmt.Sprint("event ", seq), func() bool { return f.last() == fmt.Sprint(seq) })
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.frames), f.opened
}

// A reviewer follows a session of 100 commits by API and by git, over connections that
// end again and again, and over a kill -9 of the server: each step once, in order,
// from where the one before led (E-01, and E-02 but for its time).
func TestE01_E02_ReviewerMissesNothing(t *testing.T) {
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, main := g.seeded()
		r.begin(map[string]any{"id": "s"})
		reviewer := r.follow(t, 23)
		var want []string
		clone := r.clone(r.ephemeral(r.write), "-b", "sessions/s")
		const commits = 100
		for n := range commits {
			if n%25 == 24 {
				g.run(clone, "pull", "-q", "--ff-only")
				want = append(want, r.work(clone, "pushed", fmt.Sprint(n)))
				g.run(clone, "push", "-q")
			} else {
				want = append(want, r.commit(state("s", fmt.Sprint(n))))
			}
			if n == commits/2 {
				g.restarted()
			}
		}
		frames, opened := reviewer.until(number(r.get("/events", "limit", "1000"), "last_seq"))
		var got []string
		head := main
		for i, f := range frames {
			if f.id != fmt.Sprint(i+1) || f.data["seq"] != float64(i+1) || f.event != f.data["type"] {
				t.Fatalf("event %d has id %s and says %v: a gap, or one told twice", i+1, f.id, f.data)
			}
			if f.event != "ref.updated" {
				continue
			}
			for _, c := range f.data["changes"].([]any) {
				change := c.(map[string]any)
				if change["branch"] == "sessions/s" {
					if change["old_sha"] != head || change["kind"] != "update" {
						t.Errorf("step %s = %v, want it from %s", f.id, change, head)
					}
					head = change["new_sha"].(string)
					got = append(got, head)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("the reviewer saw %d steps, want the %d that were made, in order", len(got), len(want))
		}
		if opened < 5 {
			t.Errorf("the reviewer connected %d times, want often", opened)
		}
	})
}

// What a stream says, on a quiet server and as it is on the wire. One stream waits
// through all of it for a sign of life.
func TestCase15_StreamsOnTheWire(t *testing.T) {
	t.Parallel() // with the others that mostly wait
	g := start(t)
	quiet, _ := g.seeded()
	idle := quiet.listen(quiet.read)
	idle.await("ref.updated") // it has begun
	g.part(t, "Case15_1", comingBack)
	g.part(t, "Case15_2", headersAtOnce)
	g.part(t, "Case15_3", slowReader)
	g.part(t, "Case15_6", whoIsTold)
	g.part(t, "E06", rewindIsAnEvent)
	before := len(idle.text())
	until(t, "a sign of life on an idle stream", func() bool { return len(idle.text()) > before })
	for line := range strings.Lines(idle.text()[before:]) {
		if line != "\n" && !strings.HasPrefix(line, ":") {
			t.Errorf("an idle stream said %q, want comments alone", line)
		}
	}
}

// comingBack: who comes back gets just what it has missed; an id that says nothing, or
// is of another repo, is as none.
func comingBack(t *testing.T, r *repo) {
	var want []string
	last := fmt.Sprint(number(r.get("/events", "limit", "1000"), "last_seq"))
	for n := range 3 {
		want = append(want, r.commit(harness.Commit{Branch: "main", Files: []harness.File{{Path: "n", Content: fmt.Sprint(n)}}}))
	}
	all := len(want) + int(number(r.get("/events", "limit", "1000"), "last_seq")) - 3
	for _, tc := range []struct {
		id, event string
		n         int
	}{
		{last, "ref.updated", 3}, {"0", "ref.updated", all}, {"garbage", "ref.updated", all}, {"-7", "ref.updated", all},
		{"", "ref.updated", all}, {"99999999999999999999999", "ref.updated", all}, {"4711", "resync", 1},
	} {
		var got []frame
		resp := r.openStream(t, map[string]string{"Last-Event-ID": tc.id})
		if err := readFrames(resp.Body, func(f frame) bool { got = append(got, f); return len(got) < tc.n }, func(string) {}); err != nil {
			t.Fatalf("Last-Event-ID %q: %v after %v", tc.id, err, got)
		}
		if end := got[len(got)-1]; len(got) != tc.n || end.event != tc.event {
			t.Errorf("Last-Event-ID %q gives %v, want %d events of %s", tc.id, got, tc.n, tc.event)
		}
		if tc.event == "resync" {
			continue
		}
		for i, f := range got[len(got)-3:] {
			if shas, _ := f.news(); len(shas) != 1 || shas[0] != want[i] {
				t.Errorf("Last-Event-ID %q: event %s leads to %v, want %s", tc.id, f.id, shas, want[i])
			}
		}
	}
}

// openStream opens a stream by hand: what comes is as it is on the wire.
func (r *repo) openStream(t *testing.T, header map[string]string) *http.Response {
	t.Helper()
	head := map[string]string{"Accept": "text/event-stream", "Accept-Encoding": "gzip"}
	for name, value := range header {
		head[name] = value
	}
	req, err := r.g.Request(harness.Ask{Path: r.path("/events"), Token: r.read, Header: head})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", r.g.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(stateLimit)); err != nil {
		t.Fatal(err)
	}
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("stream = %v, %v, want 200", resp, err)
	}
	return resp
}

// headersAtOnce: the headers come before any event, and nothing is gzipped or held back.
func headersAtOnce(t *testing.T, r *repo) {
	last := number(r.get("/events", "limit", "1000"), "last_seq")
	resp := r.openStream(t, map[string]string{"Last-Event-ID": fmt.Sprint(last)}) // there is no event yet
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no", "Content-Encoding": "",
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	for n := range 3 { // each comes before the next is made
		sha := r.commit(harness.Commit{Branch: "main", Files: []harness.File{{Path: "n", Content: fmt.Sprint(n)}}})
		var got frame
		if err := readFrames(resp.Body, func(f frame) bool { got = f; return false }, func(string) {}); err != nil {
			t.Fatal(err)
		}
		if shas, kinds := got.news(); !slices.Equal(shas, []string{sha}) || !slices.Equal(kinds, []string{"update"}) {
			t.Errorf("event = %v, want the commit %s", got, sha)
		}
	}
}

// slowReader: one that never reads keeps neither the commits nor another reader waiting.
func slowReader(t *testing.T, r *repo) {
	r.openStream(t, nil) // never read
	reading := r.listen(r.read)
	content := strings.Repeat("x", 100<<10)
	for n := range 100 {
		sha := r.commit(harness.Commit{Branch: "main", Files: []harness.File{{Path: "large", Content: fmt.Sprint(n) + content}}})
		if n%20 == 19 {
			reading.await(sha)
		}
	}
}

// whoIsTold: a stream asks who it is for, and ends with its repo.
func whoIsTold(t *testing.T, r *repo) {
	g := r.g
	other, _ := g.seeded()
	events := func(token string) harness.Answer {
		return g.do(harness.Ask{Path: r.path("/events"), Token: token, Header: map[string]string{"Accept": "text/event-stream"}})
	}
	wantCode(t, "stream without a token", events(""), 401, "unauthorized")
	wantCode(t, "stream with another repo's token", events(other.read), 404, "repository_not_found")
	wantCode(t, "stream with a token that may not read", events(r.token([]tokens.Scope{tokens.RepoWrite})), 403, "forbidden")
	watching := other.listen(other.read)
	watching.await("ref.updated")
	g.want(200, harness.Ask{Method: "DELETE", Path: other.path(""), Token: other.token([]tokens.Scope{tokens.RepoWrite})})
	if said := watching.ended(); !strings.HasSuffix(said, ": end: the repository is gone\n\n") {
		t.Errorf("a deleted repo's stream said %q", said[max(0, len(said)-200):])
	}
}

// rewindIsAnEvent: going back is told as what it is, by git and by the API (E-06).
func rewindIsAnEvent(t *testing.T, r *repo) {
	g := r.g
	r.begin(map[string]any{"id": "s"})
	first, second := r.commit(state("s", "1")), r.commit(state("s", "2"))
	r.session("kept", second) // what a rewind leaves is gone else
	last := number(r.get("/events", "limit", "1000"), "last_seq")
	resp := r.openStream(t, map[string]string{"Last-Event-ID": fmt.Sprint(last)})
	clone := r.clone(r.ephemeral(r.write), "-b", "sessions/s")
	g.run(clone, "push", "-q", "--force", "origin", first+":refs/heads/sessions/s")
	g.want(200, harness.Ask{Method: "POST", Path: r.path("/branches/create"), Token: r.write,
		JSON: map[string]any{"target_branch": "sessions/s", "target_is_ephemeral": true, "base_ref": second, "force": true}})
	g.want(200, harness.Ask{Method: "POST", Path: r.path("/branches/create"), Token: r.write,
		JSON: map[string]any{"target_branch": "sessions/s", "target_is_ephemeral": true, "base_ref": first, "force": true}})
	var shas, kinds []string
	if err := readFrames(resp.Body, func(f frame) bool {
		sha, kind := f.news()
		shas, kinds = append(shas, sha...), append(kinds, kind...)
		return len(shas) < 3
	}, func(string) {}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(shas, []string{first, second, first}) || !slices.Equal(kinds, []string{"rewind", "update", "rewind"}) {
		t.Errorf("events lead to %v by %v, want back, forward and back", shas, kinds)
	}
}
