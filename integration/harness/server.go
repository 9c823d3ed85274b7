package harness

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const startLimit = 60 * time.Second

// raceOptions spares the second that a program with the race detector waits at its
// end.
const raceOptions = "GORACE=atexit_sleep_ms=0"

// Options say how a server is started.
type Options struct {
	Program string // what Builder built
	Data    string
	Trust   []string // ORG=PUBLIC.pem
	Ledger  string   // empty: the embedded one
	Config  string   // text of a configuration file; empty: none
	Cert    *Cert    // speak TLS
	Args    []string // further flags
	Env     []string // added to the environment
	Client  *http.Client
}

// A Server is one headgate process and, after a restart, its successor on the same
// data and port. Methods may be called by several goroutines, but Kill, Stop and
// Restart by one at a time.
type Server struct {
	Options
	URL string // scheme://host:port

	logs Buffer

	mu     sync.Mutex // guards what follows
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // of Wait, once exited is closed
}

// Start starts a server on a free port and waits until it is ready.
func Start(o Options) (*Server, error) {
	if o.Client == nil {
		o.Client = http.DefaultClient
	}
	s := &Server{Options: o}
	if o.Config != "" {
		if err := os.MkdirAll(o.Data, 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(s.configFile(), []byte(o.Config), 0o600); err != nil {
			return nil, err
		}
	}
	return s, s.start("127.0.0.1:0")
}

func (s *Server) configFile() string { return strings.TrimRight(s.Data, "/") + ".toml" }

func (s *Server) args(listen string) []string {
	args := []string{"serve", "--listen", listen, "--data", s.Data}
	for _, t := range s.Trust {
		args = append(args, "--trust", t)
	}
	if s.Ledger != "" {
		args = append(args, "--ledger", s.Ledger)
	}
	if s.Config != "" {
		args = append(args, "--config", s.configFile())
	}
	if s.Cert != nil {
		args = append(args, "--tls-cert", s.Cert.CertFile, "--tls-key", s.Cert.KeyFile)
	}
	return append(args, s.Args...)
}

func (s *Server) start(listen string) error {
	cmd := exec.Command(s.Program, s.args(listen)...)
	cmd.Env = append(append(os.Environ(), "GOTRACEBACK=all", raceOptions), s.Env...)
	cmd.Stderr = &s.logs
	// A test that is itself killed leaves no server behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start server: %w", err)
	}
	exited, where := make(chan struct{}), make(chan string, 1)
	go func() {
		s.follow(out, where)
		err := cmd.Wait()
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
		close(exited)
	}()
	s.mu.Lock()
	s.cmd, s.exited = cmd, exited
	s.mu.Unlock()
	select {
	case url := <-where:
		if url != s.URL { // one that starts again is where it was, and others are asking
			s.URL = url
		}
	case <-exited:
		return fmt.Errorf("server ended at its start: %w\n%s", s.err, s.logs.String())
	case <-time.After(startLimit):
		s.Kill()
		return fmt.Errorf("server said nothing within %s:\n%s", startLimit, s.logs.String())
	}
	return s.WaitReady(startLimit)
}

// follow copies standard output to the logs and finds the line that says where the
// server listens.
func (s *Server) follow(out io.Reader, where chan<- string) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		fmt.Fprintln(&s.logs, lines.Text())
		if url, ok := strings.CutPrefix(lines.Text(), "headgate listening on "); ok {
			select {
			case where <- url:
			default:
			}
		}
	}
	_, _ = io.Copy(&s.logs, out)
}

// WaitReady waits until /readyz answers 200.
func (s *Server) WaitReady(limit time.Duration) error {
	deadline, last := time.Now().Add(limit), ""
	for time.Now().Before(deadline) {
		resp, err := s.Client.Get(s.URL + "/readyz")
		if err == nil {
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			last = fmt.Sprintf("%d %s", resp.StatusCode, body)
		} else {
			last = err.Error()
		}
		if !s.Running() {
			return fmt.Errorf("server ended before it was ready: %v\n%s", s.Err(), s.logs.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("server not ready within %s: %s\n%s", limit, last, s.logs.String())
}

// Addr is the server's host:port.
func (s *Server) Addr() string {
	_, addr, _ := strings.Cut(s.URL, "://")
	return addr
}

// Running reports whether the process is there.
func (s *Server) Running() bool {
	s.mu.Lock()
	exited := s.exited
	s.mu.Unlock()
	select {
	case <-exited:
		return false
	default:
		return true
	}
}

// Err is what the ended process ended with.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// PID is the process's id.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process.Pid
}

// Logs is everything the server and its predecessors wrote.
func (s *Server) Logs() string { return s.logs.String() }

// Kill ends the process as kill -9 does, if it runs.
func (s *Server) Kill() { s.signal(syscall.SIGKILL); <-s.exited }

// Stop lets the process end in order and gives what it ended with.
func (s *Server) Stop(limit time.Duration) error {
	s.signal(syscall.SIGTERM)
	select {
	case <-s.exited:
		return s.Err()
	case <-time.After(limit):
		s.signal(syscall.SIGQUIT) // tells where its goroutines are
		<-s.exited
		return fmt.Errorf("server did not stop within %s", limit)
	}
}

// Hangup sends SIGHUP.
func (s *Server) Hangup() { s.signal(syscall.SIGHUP) }

// Restart starts the server again on the same data and port; it must have ended.
func (s *Server) Restart() error {
	_, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		return err
	}
	return s.start("127.0.0.1:" + port)
}

func (s *Server) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(sig) // it may have ended by itself
	}
}

// DataFiles calls f with every regular file below the data folder. Files that go
// away meanwhile are left out.
func (s *Server) DataFiles(f func(path string, content []byte) error) error {
	return filepath.WalkDir(s.Data, func(path string, d os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return f(path, content)
	})
}

// A Buffer is a bytes.Buffer for several goroutines.
type Buffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
