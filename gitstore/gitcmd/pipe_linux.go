package gitcmd

import (
	"io"
	"os"
	"syscall"
)

const (
	// pipeBytes is how much git can write ahead of who reads. With the 64 KiB that a
	// pipe has by itself the two wait for each other at every turn.
	pipeBytes = 1 << 20

	setPipeSize = 1031 // F_SETPIPE_SZ, which package syscall does not name
)

// widen has a pipe hold pipeBytes. One that cannot stays as it is: the kernel gives
// only so much to the pipes of one user.
func widen(pipe io.Reader) {
	f, ok := pipe.(*os.File)
	if !ok {
		return
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _, _, _ = syscall.Syscall(syscall.SYS_FCNTL, fd, setPipeSize, pipeBytes) })
}
