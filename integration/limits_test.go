package integration

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/integration/harness"
)

// shortTimes makes idle connections end within seconds.
const shortTimes = "[limits]\nheader_timeout = \"1500ms\"\nidle_timeout = \"1500ms\"\n"

// Slow clients hold nobody up and are cut; slow but moving ones are not.
func TestCase12_1_SlowClients(t *testing.T) {
	g := start(t, withConfig(shortTimes))
	r, _ := g.seeded()
	dial := func(text string) net.Conn {
		c, err := net.Dial("tcp", g.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_, _ = io.WriteString(c, text)
		return c
	}
	var headers, bodies []net.Conn
	for range 200 {
		headers = append(headers, dial("GET /healthz HTTP/1.1\r\nHost: gate\r\nX: "))
	}
	for range 50 {
		bodies = append(bodies, dial(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: gate\r\nAuthorization: Bearer %s\r\nContent-Length: 1000000\r\n\r\n{", r.path("/commit-pack"), r.write)))
	}
	var took []time.Duration
	for range 20 {
		from := time.Now()
		g.want(200, harness.Ask{Path: r.path("/branches"), Token: r.read})
		took = append(took, time.Since(from))
	}
	if slices.Sort(took); took[len(took)/2] > time.Second {
		t.Errorf("half of the requests beside 250 slow ones took over %s", took[len(took)/2])
	}
	// A byte now and then is no progress.
	dripped := dial(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: gate\r\nAuthorization: Bearer %s\r\nContent-Length: 1000000\r\n\r\n{", r.path("/commit-pack"), r.write))
	cut := false
	for range 60 {
		time.Sleep(100 * time.Millisecond) // a slow client is what this is
		if _, err := dripped.Write([]byte(" ")); err != nil {
			cut = true
			break
		}
	}
	if !cut {
		t.Error("a body of ten bytes a second is still taken after 6 s, with a limit of 1.5 s")
	}
	for what, conns := range map[string][]net.Conn{"headers": headers, "bodies": bodies} {
		for _, c := range conns {
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
			text, err := io.ReadAll(c)
			if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
				t.Fatalf("a connection with slow %s is still open after 20 s, %q", what, text)
			}
		}
	}
	// Moving: some bytes more often than the limit, for longer than it.
	text := harness.Commit{Branch: "main", Files: []harness.File{{Path: "slow", Content: strings.Repeat("slow", 100_000)}}}.Lines()
	c := dial(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: gate\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", r.path("/commit-pack"), r.write, len(text)))
	for piece := range slices.Chunk([]byte(text), len(text)/12+1) {
		time.Sleep(300 * time.Millisecond) // a slow client is what this is
		if _, err := c.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if answer, _ := io.ReadAll(c); !bytes.HasPrefix(answer, []byte("HTTP/1.1 201")) {
		t.Errorf("a commit over 3.6 s with a limit of 1.5 s of idleness = %.300q, want 201", answer)
	}
}

// A line, a path, a list and a nesting without end are refused with the limit named,
// in bounded memory.
func TestCase12_3_BoundlessInput(t *testing.T) {
	g := startPlain(t)
	r, head := g.seeded()
	send := func(body io.Reader) harness.Answer {
		a, err := g.Do(harness.Ask{Method: "POST", Path: r.path("/commit-pack"), Token: r.write, Body: body})
		if err != nil { // cut while it was still sending
			return harness.Answer{Status: 413}
		}
		return a
	}
	repeat := func(head, text string, n int, tail string) io.Reader {
		return io.MultiReader(strings.NewReader(head), &repeater{text: text, n: n}, strings.NewReader(tail))
	}
	first := lines([]map[string]any{upsert("f", "1")})
	before, err := harness.RSSAnon(g.PID())
	if err != nil {
		t.Fatal(err)
	}
	w := harness.WatchMemory(g.PID(), watchEvery)
	for name, body := range map[string]io.Reader{
		"a first line of 200 MB":   repeat(`{"metadata":{"x":"`, strings.Repeat("x", 1000), 200_000, ""),
		"a second line of 200 MB":  repeat(first+`{"blob_chunk":{"data":"`, strings.Repeat("A", 1000), 200_000, ""),
		"a path of 1 MB":           strings.NewReader(lines([]map[string]any{upsert(strings.Repeat("p/", 500_000)+"p", "1")}, harness.Chunk("1", nil, true))),
		"200,000 files":            repeat(`{"metadata":{"target_branch":"main","commit_message":"m","author":{"name":"a","email":"e"},"files":[{"path":"a","operation":"delete"}`, `,{"path":"a","operation":"delete"}`, 200_000, "]}}\n"),
		"nesting of 100,000":       repeat(`{"metadata":`, "[", 100_000, strings.Repeat("]", 100_000)+"}\n"),
		"blank lines of 10 MB":     repeat("", "\n", 10<<20, first),
		"blank lines after, 10 MB": repeat(first, "\n", 10<<20, ""),
		"a number of 1 MB":         repeat(`{"metadata":`, "9", 1<<20, "}\n"),
	} {
		a := send(body)
		if a.Status != 413 && a.Status != 400 {
			t.Errorf("%s = %s, want 413 or 400", name, a)
		}
	}
	// Eight streams one after another, each with its 24 MiB, some of it not yet collected.
	if own, _ := w.Peak(); own-before > 128<<20 {
		t.Errorf("boundless input made memory grow by %d MiB, want under 128", (own-before)>>20)
	}
	if got := r.head("main", false); got != head {
		t.Errorf("refused input moved main to %s", got)
	}
	// A line of nearly 16 MiB still works: a chunk with blanks around its JSON.
	line := strings.TrimSuffix(harness.Chunk("1", []byte("x"), true), "\n") + strings.Repeat(" ", 15<<20) + "\n"
	if a := send(strings.NewReader(first + line)); a.Status != 201 {
		t.Errorf("a line of 15 MiB = %s, want 201", a)
	}
	deep := strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000)
	if a := g.do(harness.Ask{Method: "POST", Path: r.path("/branches/create"), Token: r.write, Body: strings.NewReader(deep)}); a.Status != 400 {
		t.Errorf("JSON nested 100,000 deep = %.200s, want 400", a.Body)
	}
	if a := g.do(harness.Ask{Method: "POST", Path: r.path("/branches/create"), Token: r.write, Body: strings.NewReader(`{"x":"` + strings.Repeat("x", 2<<20) + `"}`)}); a.Status != 413 {
		t.Errorf("a JSON body of 2 MiB = %.200s, want 413", a.Body)
	}
}

// A repeater gives a text n times.
type repeater struct {
	text string
	n    int
	rest string
}

func (r *repeater) Read(p []byte) (int, error) {
	total := 0
	for total < len(p) {
		if r.rest == "" {
			if r.n == 0 {
				break
			}
			r.n--
			r.rest = r.text
		}
		n := copy(p[total:], r.rest)
		r.rest = r.rest[n:]
		total += n
	}
	if total == 0 {
		return 0, io.EOF
	}
	return total, nil
}

// Malformed git requests are refused in words that git reads, and never with a 5xx.
func TestMalformedGitRequests(t *testing.T) {
	g := start(t)
	r, head := g.seeded()
	for name, body := range map[string]string{
		"empty": "", "not hex": "zzzz", "short": "0005", "length 3": "0003", "cut": "0032want ", "no caps": pkt("want x"), "huge length": "ffff",
		"many flushes": strings.Repeat("0000", 1000), "bad want": pkt("want "+strings.Repeat("g", 40)+"\n") + "0000", "unknown command": pkt("command=destroy\n") + "0000",
		"commands without end": strings.Repeat(pkt(zeros+" "+head+" refs/heads/x\x00report-status"), 3), "bad pack": pushBody("report-status", "PACKxxxx", pushCommand{zeros, head, "refs/heads/x"}),
		"pack of another version": pushBody("report-status", "PACK\x00\x00\x00\x09\x00\x00\x00\x00", pushCommand{zeros, head, "refs/heads/x"}),
		"pack that promises more": pushBody("report-status", "PACK\x00\x00\x00\x02\xff\xff\xff\xff", pushCommand{zeros, head, "refs/heads/x"}),
	} {
		for _, service := range []string{"git-upload-pack", "git-receive-pack"} {
			for _, protocol := range []string{"", "version=2"} {
				a := r.post(false, service, protocol, body)
				if a.Status >= 500 {
					t.Errorf("%s to %s %s = %s", name, service, protocol, a)
				}
			}
		}
		if got := r.head("x", false); got != "" && got != head {
			t.Errorf("%s made x at %s", name, got)
		}
	}
	if names := r.get("/branches").List("branches"); len(names) != 1 {
		t.Errorf("malformed pushes made branches: %v", names)
	}
}

// Many clients of one keep-alive connection each, none starved.
func TestManyConnections(t *testing.T) {
	g := start(t)
	r, _ := g.seeded()
	var all sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration
	for range 50 {
		all.Go(func() {
			c, err := net.Dial("tcp", g.Addr())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			in := bufio.NewReader(c)
			for range 10 {
				from := time.Now()
				fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: gate\r\nAuthorization: Bearer %s\r\n\r\n", r.path("/file?path=README.md"), r.read)
				head, err := in.ReadString('\n')
				if err != nil || !strings.Contains(head, "200") {
					t.Errorf("file = %q, %v", head, err)
					return
				}
				var rest bytes.Buffer
				for !bytes.HasSuffix(rest.Bytes(), []byte("\r\n\r\nhello\n")) {
					b, err := in.ReadByte()
					if err != nil {
						t.Errorf("file: %v", err)
						return
					}
					rest.WriteByte(b)
				}
				mu.Lock()
				took = append(took, time.Since(from))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(took) > 0 {
		t.Logf("%d requests of 50 clients, slowest %s", len(took), slices.Max(took))
	}
}
