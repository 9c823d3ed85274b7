package integration

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/tokens"
)

// metric is the value of one metric without labels.
func (g *gate) metric(name string) string {
	g.t.Helper()
	for line := range strings.Lines(string(g.do(harness.Ask{Path: "/metrics"}).Body)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// idle waits until nothing runs but the request that asks: no request, no git process.
func (g *gate) idle(what string) {
	g.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if g.metric("headgate_requests_running") == "1" && g.metric("headgate_git_processes") == "0" {
			return
		}
	}
	g.t.Errorf("%s: %s requests and %s git processes still run after a minute", what, g.metric("headgate_requests_running"), g.metric("headgate_git_processes"))
}

// dial opens a connection that takes little without being read, and sends text.
func (g *gate) dialRaw(text string) net.Conn {
	g.t.Helper()
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 16<<10) })
	}}
	c, err := d.Dial("tcp", g.Addr())
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { c.Close() })
	_, _ = io.WriteString(c, text)
	return c
}

func requestHead(method, path, auth, media string, length int) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: gate\r\nAuthorization: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", method, path, auth, media, length)
}

// wantClosed reads until the server ends the connection.
func wantClosed(t testing.TB, what string, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(60 * time.Second))
	_, err := io.Copy(io.Discard, c)
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		t.Errorf("%s: the connection is still open after a minute", what)
	}
}

// A slowBody is a request whose body a client holds back.
type slowBody struct {
	path, auth, media, body string
	want                    string // in the answer to the whole
}

// Case 12.1 for every body that a client can hold back: after the idle limit the
// connection ends, with it what worked for it, and nothing is left. One that moves
// slowly is taken.
func TestCase12_1_SlowBodies(t *testing.T) {
	g := start(t, withConfig(shortTimes))
	g.failures = true
	r, head := g.seeded()
	basic := "Basic " + basicOf(r.write)
	push := func(size int, branch string) slowBody {
		next, pack, _ := r.bigPush(head, size)
		return slowBody{r.gitPath(false, "git-receive-pack"), basic, "application/x-git-receive-pack-request",
			pushBody("report-status", pack, pushCommand{zeros, next, "refs/heads/" + branch}), "ok refs/heads/" + branch}
	}
	bodies := map[string]slowBody{
		"small push":  push(300<<10, "small"),
		"large push":  push(2<<20, "large"),
		"commit":      {r.path("/commit-pack"), "Bearer " + r.write, "application/x-ndjson", harness.Commit{Branch: "main", Files: []harness.File{{Path: "slow", Content: strings.Repeat("slow", 50_000)}}}.Lines(), "201 Created"},
		"fetch":       {r.gitPath(false, "git-upload-pack"), basic, "application/x-git-upload-pack-request", pkt("want "+head+" side-band-64k\n") + "0000" + strings.Repeat(pkt("have "+strings.Repeat("1", 40)+"\n"), 100) + pkt("done\n"), "PACK"},
		"JSON":        {r.path("/branches/create"), "Bearer " + r.write, "application/json", `{"target_branch":"json","base_ref":"main"` + strings.Repeat(" ", 4000) + "}", "200 OK"},
		"git refusal": {r.gitPath(false, "git-receive-pack"), basic, "application/x-git-receive-pack-request", pushBody("report-status", strings.Repeat("no pack ", 1000), pushCommand{zeros, head, "refs/heads/no"}), "unpack "},
	}
	var still []net.Conn
	for _, b := range bodies {
		for _, n := range []int{0, 50, len(b.body) / 2, len(b.body) - 1} {
			still = append(still, g.dialRaw(requestHead("POST", b.path, b.auth, b.media, len(b.body))+b.body[:n]))
		}
	}
	for i, c := range still {
		wantClosed(t, fmt.Sprint("body ", i), c)
	}
	g.idle("bodies that stand still")
	(&cluster{nodes: []*gate{g}}).wantNoQuarantine(t, "after bodies that stood still")
	if got := r.head("main", false); got != head {
		t.Errorf("main = %s after bodies that stood still, want %s", got, head)
	}
	answers := make(chan error)
	for name, b := range bodies {
		go func() { answers <- b.sendSlowly(g, name) }()
	}
	for range bodies {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	g.idle("slow bodies")
}

// sendSlowly sends a body over longer than the idle limit, never standing still for so
// long, and reads what comes.
func (b slowBody) sendSlowly(g *gate, name string) error {
	c, err := net.Dial("tcp", g.Addr())
	if err != nil {
		return err
	}
	defer c.Close()
	_, _ = io.WriteString(c, requestHead("POST", b.path, b.auth, b.media, len(b.body)))
	for i := range 10 {
		time.Sleep(300 * time.Millisecond) // a slow client is what this is
		if _, err := io.WriteString(c, b.body[len(b.body)*i/10:len(b.body)*(i+1)/10]); err != nil {
			return fmt.Errorf("%s: sending slowly: %w", name, err)
		}
	}
	answer, err := io.ReadAll(c)
	if !bytes.Contains(answer, []byte(b.want)) {
		return fmt.Errorf("%s that came over 3 s with an idle limit of 1.5 s = %.300q, %v; want %q", name, answer, err, b.want)
	}
	return nil
}

// A client that does not read its answer is cut after the idle limit, whatever it asked
// for, and no git process is left working for it; one that reads slowly gets it whole.
func TestCase12_1_SlowReaders(t *testing.T) {
	g := startPlain(t, withConfig(shortTimes))
	g.failures = true
	const size = 12 << 20
	r, head := g.seeded()
	next, pack, _ := r.bigPush(head, size)
	wantHas(t, "the push", r.rawPush(false, pack, pushCommand{head, next, "refs/heads/main"}), "ok refs/heads/main")
	var files []harness.File
	for i := range 30 {
		files = append(files, harness.File{Path: fmt.Sprintf("text/%d", i), Content: textOf(i, 300<<10)})
	}
	last := r.commit(harness.Commit{Branch: "main", Expected: next, Files: files})
	get := func(path string) string {
		return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: gate\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", path, r.read)
	}
	fetch := pkt("want "+last+" side-band-64k ofs-delta\n") + "0000" + pkt("done\n")
	for name, ask := range map[string]string{
		"clone": requestHead("POST", r.gitPath(false, "git-upload-pack"), "Basic "+basicOf(r.read), "application/x-git-upload-pack-request", len(fetch)) + fetch,
		"file":  get(r.path("/file?path=big&ref=" + last)),
		"diff":  get(r.path("/branches/diff?branch=main&base=" + head)),
	} {
		t.Run(name, func(t *testing.T) {
			whole, err := io.ReadAll(g.dialRaw(ask))
			if err != nil || !bytes.HasPrefix(whole, []byte("HTTP/1.1 200")) {
				t.Fatalf("%s = %.200q, %v; want 200", name, whole, err)
			}
			if len(whole) < 8<<20 {
				t.Fatalf("%s has %d bytes: they fit into the buffers on the way, and prove nothing", name, len(whole))
			}
			c := g.dialRaw(ask)
			if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			g.idle("a " + name + " that is not read")
			rest, err := io.Copy(io.Discard, c)
			if int(rest)+1000 >= len(whole) {
				t.Errorf("a %s that was not read came whole (%v)", name, err)
			}
			c = g.dialRaw(ask)
			got, err := readSlowly(c, len(whole))
			if err != nil || got < len(whole)*99/100 {
				t.Errorf("a %s read slowly: %d of %d bytes, %v", name, got, len(whole), err)
			}
			g.idle("a " + name + " that was read slowly")
		})
	}
}

// readSlowly reads to the end over about three seconds.
func readSlowly(c net.Conn, size int) (n int, err error) {
	piece := make([]byte, size/30)
	for err == nil {
		time.Sleep(100 * time.Millisecond) // a slow client is what this is
		var m int
		m, err = io.ReadFull(c, piece)
		n += m
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return n, err
}

// textOf is text with lines of its own.
func textOf(i, size int) string {
	var b strings.Builder
	for n := 0; b.Len() < size; n++ {
		fmt.Fprintf(&b, "file %d line %d %x\n", i, n, n*i*7919)
	}
	return b.String()
}

// A request that began before its token's end is finished after it, on both roads of a
// push and for a fetch; what begins after it is 401 before anything of its body is asked
// for.
func TestA12_BegunBeforeExpiryCompletes(t *testing.T) {
	onEachCluster(t, func(t *testing.T, c *cluster) {
		g := c.nodes[0]
		r, head := g.seeded()
		type half struct{ service, body, want string }
		var halves []half
		for _, road := range roads {
			next, pack, _ := r.bigPush(head, road.bytes)
			body := pushBody("report-status", pack, pushCommand{zeros, next, "refs/heads/" + road.name})
			halves = append(halves, half{"git-receive-pack", body, "ok refs/heads/" + road.name})
		}
		halves = append(halves, half{"git-upload-pack", pkt("want "+head+" side-band-64k\n") + "0000" + pkt("done\n"), "PACK"})
		end := time.Now().Add(4 * time.Second)
		dying := g.sign(tokens.Claims{Repo: r.name, Scopes: []tokens.Scope{tokens.GitWrite, tokens.GitRead}, IssuedAt: end.Add(-time.Hour), ExpiresAt: end.Add(-time.Minute)}) // the leeway
		basic := "Basic " + basicOf(dying)
		var begun []func()
		for _, h := range halves {
			begun = append(begun, r.straddle(requestHead("POST", r.gitPath(false, h.service), basic, "application/x-"+h.service+"-request", len(h.body)), h.body, h.want))
		}
		if !time.Now().Before(end) {
			t.Fatalf("the token ended before three requests had begun: the machine is too slow for this")
		}
		for a := (harness.Answer{}); a.Status != 401; time.Sleep(50 * time.Millisecond) {
			if a = g.do(harness.Ask{Path: r.path("/branches"), Token: dying}); time.Now().After(end.Add(30 * time.Second)) {
				t.Fatalf("the token after its end = %s, want 401", a)
			}
		}
		for _, finish := range begun {
			finish()
		}
		for _, service := range []string{"git-receive-pack", "git-upload-pack"} {
			conn := g.dialRaw(requestHead("POST", r.gitPath(false, service), basic, "application/x-"+service+"-request", 10<<20))
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			first := make([]byte, 12)
			if _, err := io.ReadFull(conn, first); err != nil || string(first) != "HTTP/1.1 401" {
				t.Errorf("%s with a token that has ended, without a body = %q, %v; want 401 at once", service, first, err)
			}
		}
	})
}

// straddle sends a request but for the end of its body; finish sends that and wants a
// text in the answer.
func (r *repo) straddle(head, body, want string) (finish func()) {
	r.g.t.Helper()
	before := r.g.metric("headgate_requests_running")
	c := r.g.dialRaw(head + body[:len(body)-10])
	for deadline := time.Now().Add(20 * time.Second); r.g.metric("headgate_requests_running") == before; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.g.t.Fatal("the request does not run")
		}
	}
	return func() {
		r.g.t.Helper()
		_, _ = io.WriteString(c, body[len(body)-10:])
		answer, err := io.ReadAll(c)
		if !bytes.Contains(answer, []byte(want)) {
			r.g.t.Errorf("a request over the end of its token = %.300q, %v; want %q", answer, err, want)
		}
	}
}
