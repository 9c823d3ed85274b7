package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/tokens"
)

// org is whose tokens the measured server believes, beside greedyOrg's.
const org = "bench"

// A workshop is the folder, the programs and the keys of a run, and what must be
// stopped when a group is done.
type workshop struct {
	options
	dir     string // on the disk that holds temporary files: servers keep their data in it
	scratch string // for what clients write; in memory where there is such a place
	key     *ecdsa.PrivateKey
	stops   []func()
}

func openWorkshop(ctx context.Context, o options) (*workshop, error) {
	w := &workshop{options: o}
	if err := w.open(ctx); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *workshop) open(ctx context.Context) (err error) {
	if w.dir, err = os.MkdirTemp("", "headgate-bench-run-"); err != nil {
		return err
	}
	memory := "/dev/shm"
	if info, serr := os.Stat(memory); serr != nil || !info.IsDir() {
		memory = ""
	}
	if w.scratch, err = os.MkdirTemp(memory, "headgate-bench-"); err != nil {
		return err
	}
	if err := w.makeKey(); err != nil {
		return err
	}
	for _, program := range []string{"cmd/headgate", "integration/bench", "integration/bench/floor"} {
		build := exec.CommandContext(ctx, "go", "build", "-o", w.dir, "github.com/headgate/headgate/"+program)
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", program, err, out)
		}
	}
	return nil
}

func (w *workshop) close() {
	w.stopAll()
	if w.dir != "" {
		os.RemoveAll(w.dir)
	}
	if w.scratch != "" {
		os.RemoveAll(w.scratch)
	}
}

// onStop has f called at the end of the group, last things first.
func (w *workshop) onStop(f func()) { w.stops = append(w.stops, f) }

func (w *workshop) stopAll() {
	for _, stop := range slices.Backward(w.stops) {
		stop()
	}
	w.stops = nil
}

func (w *workshop) publicKey() string { return filepath.Join(w.dir, "bench.pub.pem") }

func (w *workshop) makeKey() (err error) {
	if w.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	der, err := x509.MarshalPKIXPublicKey(&w.key.PublicKey)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	return os.WriteFile(w.publicKey(), text, 0o600)
}

// token is one that may do everything with a repo for longer than any run.
func (w *workshop) token(repo string) (string, error) { return w.tokenOf(org, repo) }

func (w *workshop) tokenOf(org, repo string) (string, error) {
	return tokens.Sign(w.key, tokens.Claims{
		Org: org, Subject: "bench", Repo: repo,
		Scopes:    []tokens.Scope{tokens.GitRead, tokens.GitWrite, tokens.RepoWrite},
		ExpiresAt: time.Now().Add(24 * time.Hour),
	})
}

// start runs a program of ours that tells on its first line where it listens, and
// stops it with the group.
func (w *workshop) start(name string, args ...string) (*process, error) {
	return w.launch(name, exec.Command(filepath.Join(w.dir, name), args...))
}

func (w *workshop) launch(name string, cmd *exec.Cmd) (*process, error) {
	said, err := os.OpenFile(filepath.Join(w.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer said.Close()
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd}
	w.onStop(p.stop)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		log, _ := os.ReadFile(said.Name())
		return nil, fmt.Errorf("%s ended before it listened: %s", name, log)
	}
	_, p.address, _ = strings.Cut(strings.TrimSpace(line), "http://")
	go io.Copy(io.Discard, out) // ends with the process
	return p, nil
}

// A process is a running server.
type process struct {
	cmd     *exec.Cmd
	address string
	stopped bool
}

// stop asks it to end and waits until it has.
func (p *process) stop() {
	if p.stopped {
		return
	}
	p.stopped = true
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
}

// settings are those of the servers that are measured: one token makes all requests
// of a row, more in a second than it may by default.
const settings = "[limits]\ntoken_rate = 1_000_000\ntoken_burst = 1_000_000\n"

// headgate starts the server over data; more are further flags.
func (w *workshop) headgate(data string, more ...string) (*process, error) {
	config := filepath.Join(w.dir, "headgate.toml")
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		return nil, err
	}
	return w.start("headgate", append([]string{"serve", "--listen", "127.0.0.1:0", "--data", data, "--config", config,
		"--trust", org + "=" + w.publicKey(), "--trust", greedyOrg + "=" + w.publicKey()}, more...)...)
}

// rate lets clients work side by side for a repetition's time and tells how many
// steps they did in a second. The first error ends it.
func (w *workshop) rate(ctx context.Context, clients int, step func(client int) error) (float64, error) {
	return rateFor(ctx, clients, w.span, step)
}

func rateFor(ctx context.Context, clients int, d time.Duration, step func(client int) error) (float64, error) {
	var steps atomic.Int64
	work, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for client := range clients {
		work.Go(func() error {
			n := 0
			defer func() { steps.Add(int64(n)) }()
			for time.Since(start) < d {
				if err := errors.Join(ctx.Err(), step(client)); err != nil {
					return err
				}
				n++
			}
			return nil
		})
	}
	err := work.Wait()
	return float64(steps.Load()) / time.Since(start).Seconds(), err
}

// timed is the rate of n steps, one after another.
func timed(n int, step func(i int) error) (float64, error) {
	start := time.Now()
	for i := range n {
		if err := step(i); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(start).Seconds(), nil
}
