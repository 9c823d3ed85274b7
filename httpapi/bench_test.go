package httpapi

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// fire sends the same kind of request from many clients, without the checks that
// tests do.
func (g *gate) fire(b *testing.B, client *http.Client, method, path, token string, body []byte, want int) {
	req, err := http.NewRequest(method, g.http.URL+path, bodyOf(b, body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.StatusCode != want {
		b.Fatalf("%s %s = %d, want %d", method, path, resp.StatusCode, want)
	}
}

func manyClients() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
}

// BenchmarkCommitPack: one file of 1 KiB, 32 clients on 32 branches.
func BenchmarkCommitPack(b *testing.B) {
	g := newGate(b)
	r := g.newRepo("r")
	r.commit(nil, file{path: "f", data: "0"})
	const clients = 32
	for i := range clients {
		r.commit(meta{"target_branch": fmt.Sprintf("s/%d", i), "base_branch": "main", "ephemeral": true}, file{path: "f", data: fmt.Sprint("start ", i)})
	}
	client, serial := manyClients(), atomic.Int64{}
	b.SetParallelism(clients / 2)
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		branch := fmt.Sprintf("s/%d", serial.Add(1)%clients)
		for p.Next() {
			body := pack(b, meta{"target_branch": branch, "ephemeral": true}, file{path: "f", data: fmt.Sprint(serial.Add(1)) + strings.Repeat("x", 1024)})
			g.fire(b, client, "POST", r.path("/commit-pack"), r.write, body, 201)
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
}

// BenchmarkFile: 4 KiB by pointer beside whoami-less health, the least this server
// does for a request.
func BenchmarkFile(b *testing.B) {
	g := newGate(b, func(c *Config) { c.Logger = nil })
	r := g.newRepo("r")
	c := r.commit(nil, file{path: "f", data: strings.Repeat("x", 4096)})
	client := manyClients()
	for name, path := range map[string]string{"file": r.path("/file", "ref", c, "path", "f"), "empty": "/healthz"} {
		b.Run(name, func(b *testing.B) {
			b.SetParallelism(8)
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					g.fire(b, client, "GET", path, r.read, nil, 200)
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}
