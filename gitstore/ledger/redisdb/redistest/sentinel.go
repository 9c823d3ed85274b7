package redistest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// masterName is what the Sentinel calls its master.
const masterName = "headgate"

// Watched is a master with one replica, watched over by a Sentinel that makes the
// replica the master when the master does not answer for half a second.
type Watched struct {
	Master, Replica *Server

	t        testing.TB
	sentinel string // its host:port
}

// StartWatched starts the three and waits until the Sentinel knows both servers and the
// replica has what the master has. args are as for Start.
func StartWatched(t testing.TB, args ...string) *Watched {
	t.Helper()
	need(t, "redis-cli")
	w := &Watched{t: t, Master: Start(t, args...)}
	w.Replica = Start(t, append(args, "--replicaof", "127.0.0.1 "+strconv.Itoa(w.Master.port))...)
	w.startSentinel()
	w.wait("the replica follows", func() bool {
		return strings.Contains(w.Replica.Do("info", "replication"), "master_link_status:up")
	})
	w.wait("the sentinel knows the replica", func() bool { return strings.Contains(w.ask("replicas"), "\nrunid\n") })
	return w
}

func (w *Watched) startSentinel() {
	w.t.Helper()
	dir := w.t.TempDir()
	port := freePort(w.t)
	w.sentinel = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	conf := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("bind 127.0.0.1\nport %d\ndir %s\nsentinel monitor %s 127.0.0.1 %d 1\n"+
		"sentinel down-after-milliseconds %[3]s 500\nsentinel failover-timeout %[3]s 3000\n", port, dir, masterName, w.Master.port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.Command("redis-server", conf, "--sentinel")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		w.t.Fatalf("start sentinel: %v", err)
	}
	w.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	w.wait("the sentinel answers", func() bool { return answers(w.sentinel) })
}

// URL is the pair as redisdb.Open takes it.
func (w *Watched) URL() string { return "redis+sentinel://" + w.sentinel + "/" + masterName }

// CutReplica parts the replica from its master: what is written from now on does not
// reach it. The Sentinel would join them again after some seconds.
func (w *Watched) CutReplica() {
	w.t.Helper()
	w.wait("the replica has everything", func() bool {
		return w.offset(w.Master, "master_repl_offset") == w.offset(w.Replica, "slave_repl_offset")
	})
	w.Replica.Do("replicaof", "127.0.0.1", "1")
}

func (w *Watched) offset(s *Server, name string) string {
	w.t.Helper()
	_, rest, _ := strings.Cut(s.Do("info", "replication"), name+":")
	n, _, _ := strings.Cut(rest, "\r")
	return n
}

// FailOver kills the master and waits until the Sentinel has made the replica the
// master.
func (w *Watched) FailOver() {
	w.t.Helper()
	w.Master.Kill()
	w.wait("the replica takes over", func() bool { return strings.Contains(w.Replica.Do("info", "replication"), "role:master") })
}

func (w *Watched) ask(what string) string {
	host, port, _ := net.SplitHostPort(w.sentinel)
	out, err := exec.Command("redis-cli", "-h", host, "-p", port, "sentinel", what, masterName).CombinedOutput()
	if err != nil {
		w.t.Fatalf("redis-cli sentinel %s: %v: %s", what, err, out)
	}
	return string(out)
}

func (w *Watched) wait(what string, done func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(2 * startLimit); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("redis with a sentinel: not after %s: %s", 2*startLimit, what)
		}
	}
}
