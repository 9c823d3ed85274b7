package integration

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/integration/harness"
)

// The example script starts two nodes, what it tells to try works as it stands, and
// with it everything it has started ends.
func TestExampleScriptOfTwoNodes(t *testing.T) {
	program, err := programs.Race()
	if err != nil {
		t.Fatal(err)
	}
	ports := freePorts(t, 3)
	cmd := exec.Command("./two-nodes.sh", t.TempDir())
	cmd.Env = append(os.Environ(), "HEADGATE="+program, "GORACE=atexit_sleep_ms=0", "REDIS_PORT="+ports[0], "PORT_A="+ports[1], "PORT_B="+ports[2])
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var said harness.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })

	var try []string
	for lines := bufio.NewScanner(out); len(try) < 5 && lines.Scan(); {
		if command, ok := strings.CutPrefix(lines.Text(), "    "); ok {
			try = append(try, command)
		}
	}
	if len(try) < 5 {
		t.Fatalf("two-nodes.sh told %d commands to try, want 5: %s", len(try), said.String())
	}
	shell := exec.Command("sh", "-ec", strings.Join(try, "\n"))
	shell.Dir = t.TempDir()
	shell.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0")
	if text, err := shell.CombinedOutput(); err != nil || !strings.Contains(string(text), " first") {
		t.Errorf("what two-nodes.sh tells to try = %v\n%s", err, text)
	}

	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("two-nodes.sh ended with %v: %s", err, said.String())
		}
	case <-time.After(stateLimit):
		t.Fatalf("two-nodes.sh did not end within %s of SIGINT", stateLimit)
	}
	for _, port := range ports {
		if c, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			c.Close()
			t.Errorf("something still listens on port %s", port)
		}
	}
}

func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var ports []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		ports = append(ports, port)
	}
	return ports
}
