package gitstore

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// pkts frames lines as pkt-lines; "" is a flush-pkt.
func pkts(lines ...string) string {
	var b strings.Builder
	for _, l := range lines {
		if l == "" {
			b.WriteString("0000")
			continue
		}
		fmt.Fprintf(&b, "%04x%s", len(l)+4, l)
	}
	return b.String()
}

// emptyPack is a pack without objects, as git sends it when it only moves refs.
var emptyPack = sealed("PACK\x00\x00\x00\x02\x00\x00\x00\x00")

// sealed is a pack with its trailer.
func sealed(pack string) string {
	sum := sha1.Sum([]byte(pack))
	return pack + string(sum[:])
}

func (s *gitServer) get(t testing.TB, c Caller, remote Remote, service, protocol string) string {
	t.Helper()
	return s.do(t, http.MethodGet, s.url(c, remote)+"/info/refs?service="+service, protocol, nil)
}

// post sends a raw request and gives the raw answer.
func (s *gitServer) post(t testing.TB, c Caller, remote Remote, service, protocol, body string) string {
	t.Helper()
	return s.do(t, http.MethodPost, s.url(c, remote)+"/"+service, protocol, strings.NewReader(body))
}

func (s *gitServer) do(t testing.TB, method, url, protocol string, body io.Reader) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if protocol != "" {
		req.Header.Set("Git-Protocol", protocol)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: read answer: %v", method, url, err)
	}
	return string(got)
}

// packOf is the pack that git makes of what in names, one oid or ^oid a line.
func (w *workTree) packOf(in string, args ...string) string {
	w.t.Helper()
	cmd := w.command(append([]string{"pack-objects", "-q", "--stdout"}, args...)...)
	cmd.Stdin = strings.NewReader(in)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("git pack-objects: %v: %s", err, errOut.String())
	}
	return string(out)
}
