package redistest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const startLimit = 20 * time.Second

// Server is one redis-server process. Its methods end the test where they cannot
// do what they say; they must be called from the test's own goroutine.
type Server struct {
	t    testing.TB
	dir  string
	port int
	args []string

	mu     sync.Mutex    // guards what follows
	cmd    *exec.Cmd     // nil: not running
	exited chan struct{} // closed when cmd has ended
	out    bytes.Buffer
}

// Start starts a server; args follow the usual ones, as "--maxmemory", "10mb".
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	need(t, "redis-server")
	s := &Server{t: t, dir: t.TempDir(), args: args}
	t.Cleanup(s.Kill)
	for try := 0; ; try++ {
		s.port = freePort(t)
		err := s.start()
		if err == nil {
			return s
		}
		if try == 3 { // somebody may have taken the port in between, hardly four times
			t.Fatalf("start redis-server: %v", err)
		}
	}
}

// Addr is the server's host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is the server as redisdb.Open takes it.
func (s *Server) URL() string { return "redis://" + s.Addr() + "/0" }

// Kill ends the process as kill -9 does. It does nothing if it does not run.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Stop lets the process end in order.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

// Pause stops the process where it is, connections open, until Resume.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

// Restart starts the server again on the same port and data, after killing it if
// it runs, and waits until it answers.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.start(); err != nil {
		s.t.Fatalf("restart redis-server: %v", err)
	}
}

// Wipe removes the data of a server that does not run.
func (s *Server) Wipe() {
	s.t.Helper()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		s.t.Fatalf("read data of redis-server: %v", err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(s.dir + "/" + e.Name()); err != nil {
			s.t.Fatalf("remove data of redis-server: %v", err)
		}
	}
}

// Do runs redis-cli with args against the server and returns what it prints.
func (s *Server) Do(args ...string) string {
	s.t.Helper()
	out, err := s.cli(args...)
	if err != nil {
		s.t.Fatalf("redis-cli %s: %v", strings.Join(args, " "), err)
	}
	return out
}

func (s *Server) cli(args ...string) (string, error) {
	need(s.t, "redis-cli")
	cmd := exec.Command("redis-cli", append([]string{"-h", "127.0.0.1", "-p", strconv.Itoa(s.port)}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.Reset()
	cmd := exec.Command("redis-server", append([]string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(s.port), "--dir", s.dir,
		"--appendonly", "yes", "--appendfsync", "always", "--save", "",
	}, s.args...)...)
	cmd.Stdout, cmd.Stderr = &s.out, &s.out
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	for deadline := time.Now().Add(startLimit); ; {
		if alive(exited) && answers(s.Addr()) {
			s.cmd, s.exited = cmd, exited
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("it ended: %s", s.out.String())
		case <-time.After(10 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			<-exited
			return fmt.Errorf("no answer within %s: %s", startLimit, s.out.String())
		}
	}
}

func alive(exited chan struct{}) bool {
	select {
	case <-exited:
		return false
	default:
		return true
	}
}

// answers reports whether a server at addr has loaded its data.
func answers(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	var b [7]byte
	n, _ := c.Read(b[:])
	return string(b[:n]) == "+PONG\r\n"
}

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		s.t.Fatalf("signal %v: redis-server does not run", sig)
	}
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("signal redis-server: %v", err)
	}
}

func (s *Server) end(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(sig)
	_ = s.cmd.Process.Signal(syscall.SIGCONT) // a paused process does not end by itself
	<-s.exited
	s.cmd = nil
}

// freePort finds a port that is free now, as is the one 10,000 above, where a
// cluster's nodes talk to each other.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatalf("find a free port: %v", err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		if port+10_000 > 65_535 {
			continue
		}
		bus, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+10_000)))
		if err != nil {
			continue
		}
		_ = bus.Close()
		return port
	}
	t.Fatal("find a free port: none among 100")
	return 0
}

func need(t testing.TB, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		pkg := map[string]string{"redis-server": "redis-server", "redis-cli": "redis-tools"}[program]
		t.Fatalf("%s is not installed: apt-get install %s", program, pkg)
	}
}

// Keep copies the data of a server that does not run; the function it returns puts
// the copy in place of what is there then.
func (s *Server) Keep() (restore func()) {
	s.t.Helper()
	kept := s.t.TempDir()
	if err := os.CopyFS(kept, os.DirFS(s.dir)); err != nil {
		s.t.Fatalf("copy data of redis-server: %v", err)
	}
	return func() {
		s.t.Helper()
		s.Wipe()
		if err := os.CopyFS(s.dir, os.DirFS(kept)); err != nil {
			s.t.Fatalf("put data of redis-server back: %v", err)
		}
	}
}
