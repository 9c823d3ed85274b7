package gitstore

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A client that goes away in the middle of a push leaves no ref moved and nothing behind.
func TestF03_PushCutAtRandomOffsets(t *testing.T) {
	for road, l := range map[string]Limits{"small": {}, "large": {HotPackBytes: 4 << 10}} {
		t.Run(road, func(t *testing.T) {
			p := newPushTarget(t, l)
			p.w.git("push", "-q", "origin", "main")
			first := p.w.git("rev-parse", "HEAD")
			random := rand.New(rand.NewPCG(5, 6))
			content := make([]byte, 150<<10)
			for i := range content {
				content[i] = byte(random.Uint32())
			}
			if err := os.WriteFile(filepath.Join(p.w.dir, "data"), content, 0o644); err != nil {
				t.Fatal(err)
			}
			second := p.w.commit("README", "second\n")
			body := pkts(first+" "+second+" refs/heads/main\x00report-status side-band-64k", zeros40+" "+second+" refs/heads/new", "") +
				p.w.packOf(second+"\n^"+first+"\n", "--revs", "--thin")
			for len(p.s.ended) > 0 {
				<-p.s.ended
			}
			address, err := url.Parse(p.s.url(someone, MainRemote))
			if err != nil {
				t.Fatal(err)
			}
			for n := range 50 {
				cut := random.IntN(len(body))
				if n == 0 {
					cut = len(body) - 1
				}
				sendCut(t, address, body, cut, n%2 == 0)
				<-p.s.ended
				p.at("refs/heads/main", first)
				p.at("refs/heads/new", "")
				nothingLeft(t, p.r)
			}
			p.s.mu.Lock()
			if len(p.s.errs) != 50 {
				t.Errorf("%d of 50 exchanges ended with an error", len(p.s.errs))
			}
			p.s.errs = nil
			p.s.mu.Unlock()
			if got := p.s.post(t, someone, MainRemote, "git-receive-pack", "", body); !strings.Contains(got, "ok refs/heads/new") {
				t.Errorf("the whole push was answered with %q", got)
			}
			p.at("refs/heads/main", second)
			cloneOf(t, p.url).fsck()
		})
	}
}

// sendCut sends the first cut bytes of a push and hangs up.
func sendCut(t *testing.T, to *url.URL, body string, cut int, chunked bool) {
	t.Helper()
	conn, err := net.Dial("tcp", to.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	length, part := fmt.Sprintf("Content-Length: %d", len(body)), body[:cut]
	if chunked {
		length = "Transfer-Encoding: chunked"
		part = fmt.Sprintf("%x\r\n%s", len(body), part)
	}
	_, err = io.WriteString(conn, fmt.Sprintf("POST %s/git-receive-pack HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n%s", to.Path, to.Host, length, part))
	if err != nil {
		t.Fatal(err)
	}
}
