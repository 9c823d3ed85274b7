package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// startShell starts a shell that reads commands, and waits until it answers.
func startShell(t *testing.T) (pid int, say func(command string)) {
	t.Helper()
	cmd := exec.Command("/bin/sh")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	say = func(command string) {
		t.Helper()
		if _, err := io.WriteString(in, command+"\necho done\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := lines.ReadString('\n'); err != nil || line != "done\n" {
			t.Fatalf("shell after %q said %q, %v", command, line, err)
		}
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait() // it ends with its input
	})
	say("")
	return cmd.Process.Pid, say
}

// Every start and end of a process in the tree changes its fingerprint, also of one
// that came and went between two looks.
func TestDR8_FingerprintOfAProcessTree(t *testing.T) {
	pid, say := startShell(t)
	tree := newProcessTree(pid)
	look := func() string {
		t.Helper()
		f, err := tree.fingerprint()
		if err != nil {
			t.Fatalf("fingerprint: %v", err)
		}
		return f
	}
	still := look()
	if again := look(); again != still {
		t.Error("the fingerprint of a tree in which nothing happens changed")
	}
	say("sleep 60 >/dev/null 2>&1 & :")
	if one := look(); one == still {
		t.Error("a child started and the fingerprint is the same")
	}
	say("kill $!; wait $! 2>/dev/null; :")
	ended := look()
	if ended == still {
		t.Error("a child came and went, and the fingerprint is that of before it")
	}
	say("/bin/true")
	if look() == ended {
		t.Error("a child came and went between two looks, and the fingerprint is the same")
	}
}

func TestDR8_QuietTreeIsAwaited(t *testing.T) {
	pid, _ := startShell(t)
	tree := newProcessTree(pid)
	begun := time.Now()
	f, err := tree.await(t.Context(), 50*time.Millisecond, time.Minute)
	if err != nil || time.Since(begun) < 50*time.Millisecond {
		t.Fatalf("await of a quiet tree = %v after %s", err, time.Since(begun))
	}
	if now, err := tree.fingerprint(); err != nil || now != f {
		t.Errorf("await gave another fingerprint than there is now, %v", err)
	}
}

func TestDR9_TreeThatIsNeverQuiet(t *testing.T) {
	pid, say := startShell(t)
	say("while :; do /bin/true; done & busy=$!")
	_, err := newProcessTree(pid).await(t.Context(), 10*time.Second, 200*time.Millisecond)
	if !errors.Is(err, errNotQuiescent) {
		t.Errorf("await of a busy tree = %v, want errNotQuiescent", err)
	}
	say("kill $busy; wait $busy 2>/dev/null; :")
}

func TestProcessThatIsNotThere(t *testing.T) {
	if _, err := newProcessTree(1<<30).await(t.Context(), time.Millisecond, time.Second); !errors.Is(err, errNoProcess) {
		t.Errorf("await = %v, want errNoProcess", err)
	}
	if _, err := newProcessTree(os.Getpid()).fingerprint(); err != nil {
		t.Errorf("fingerprint of this process = %v", err)
	}
}
