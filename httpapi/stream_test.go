package httpapi

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// a chunk over 4 MiB is 413, and a client that sends on sees it.
func TestA07_LargeChunkIsRefused(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	limit := strings.Repeat("x", 4<<20)
	c := r.commit(nil, file{path: "big", data: limit})
	if got := r.content(c, "big"); got != limit {
		t.Errorf("a chunk of 4 MiB came back as %d bytes", len(got))
	}
	body := pack(t, nil, file{path: "big", data: limit + "x"})
	a := r.want(413, ask{method: "POST", path: r.path("/commit-pack"), token: r.write, body: body})
	if v := a.json(t); at(v, "result", "status") != "payload_too_large" || v["code"] != "payload_too_large" || !strings.Contains(v["error"].(string), "4194304") {
		t.Errorf("chunk over the limit = %s, want payload_too_large and the limit", a.body)
	}
	// The refusal comes in the first line; the rest is sent all the same.
	bad := pack(t, meta{"author": nil}, file{path: "big", data: limit}, file{path: "big2", data: limit}, file{path: "big3", data: limit})
	a = r.want(400, ask{method: "POST", path: r.path("/commit-pack"), token: r.write, body: io.MultiReader(bytes.NewReader(bad))})
	if at(a.json(t), "result", "status") != "invalid" {
		t.Errorf("early refusal = %s", a.body)
	}
	if got := r.head("main", false); got != c {
		t.Errorf("main is at %s, want %s", got, c)
	}
}

// a connection cut in mid-stream leaves no commit.
func TestA07_CutConnection(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	head := r.commit(nil, file{path: "a", data: "1"})
	body := pack(t, nil, file{path: "a", data: strings.Repeat("2", 100_000)})
	for _, n := range []int{0, 10, len(body) / 2, len(body) - 1, len(body)} {
		conn, err := net.Dial("tcp", g.http.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\n", r.path("/commit-pack"), r.write)
		if n > 0 {
			fmt.Fprintf(conn, "%x\r\n%s\r\n", n, body[:n]) // and no last chunk
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil && n < len(body) {
			t.Logf("after %d bytes: %v", n, err)
		}
		conn.Close()
		if got := r.head("main", false); got != head {
			t.Errorf("a body cut after %d of %d bytes moved main to %s", n, len(body), got)
		}
	}
}

// Bounded memory: a large file in full chunks passes through two buffers, not
// through the heap.
func TestCommitPackMemory(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	const chunks = 24
	data := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("0123456789abcdef"), 4<<20/16))
	pr, pw := io.Pipe()
	go func() {
		_, _ = pw.Write(lineOf(t, meta{"metadata": meta{"target_branch": "main", "commit_message": "m", "author": meta{"name": "a", "email": "e"}, "files": []meta{{"path": "big", "content_id": "c"}}}}))
		for i := range chunks {
			_, _ = fmt.Fprintf(pw, `{"blob_chunk":{"content_id":"c","data":"%s","eof":%v}}`+"\n", data, i == chunks-1)
		}
		_ = pw.Close()
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	a := r.want(201, ask{method: "POST", path: r.path("/commit-pack"), token: r.write, body: pr})
	runtime.ReadMemStats(&after)
	if grown := after.HeapSys - before.HeapSys; int64(grown) > 64<<20 {
		t.Errorf("heap grew by %d MiB for a file of %d MiB", grown>>20, chunks*4)
	}
	c := at(a.json(t), "commit", "commit_sha").(string)
	h := r.want(200, ask{method: "HEAD", path: r.path("/file", "ref", c, "path", "big"), token: r.read}).header
	if got := h.Get("Content-Length"); got != fmt.Sprint(chunks*4<<20) {
		t.Errorf("length = %s, want %d", got, chunks*4<<20)
	}
}

// Case 1.8: a client that waits for 100 gets it when its body is wanted, and the
// refusal alone when it is not.
func TestCase1_8_ExpectContinue(t *testing.T) {
	g := newGate(t)
	r := g.newRepo("r")
	body := pack(t, nil, file{path: "a", data: "1"})
	for auth, want := range map[string]string{"Bearer " + r.write: "HTTP/1.1 100 Continue", "Bearer x": "HTTP/1.1 401 Unauthorized"} {
		conn, err := net.Dial("tcp", g.http.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", r.path("/commit-pack"), auth, len(body))
		line := make([]byte, len(want))
		if _, err := io.ReadFull(conn, line); err != nil || string(line) != want {
			t.Errorf("first line for %.9s = %q, %v; want %q", auth, line, err, want)
		}
	}
}

// Case 12.1: a body that drips is cut by the idle timeout; one that moves is not.
func TestCase12_1_SlowBodies(t *testing.T) {
	g := newGate(t, func(c *Config) { c.Limits.IdleTimeout = time.Second })
	r := g.newRepo("r")
	body := pack(t, nil, file{path: "a", data: strings.Repeat("1", 3000)})
	pr, pw := io.Pipe()
	go func() { // 400 bytes every 200 ms take longer than the timeout
		for len(body) > 0 {
			n := min(400, len(body))
			_, _ = pw.Write(body[:n])
			body = body[n:]
			<-time.After(200 * time.Millisecond)
		}
		_ = pw.Close()
	}()
	r.want(201, ask{method: "POST", path: r.path("/commit-pack"), token: r.write, body: pr})

	conn, err := net.Dial("tcp", g.http.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 1000000\r\n\r\n", r.path("/commit-pack"), r.write)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				_, _ = conn.Write([]byte("x"))
			}
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != 408 {
		t.Errorf("a dripping body got %v, %v; want 408", resp, err)
	}
}
