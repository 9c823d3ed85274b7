//go:build linux || darwin

package client

import (
	"io"
	"os"
	"syscall"
)

// mapFile shows a file's bytes without copying them; nil if that cannot be done. What it
// shows changes when the file does, and a look at what has been cut off is a fault.
func mapFile(file io.ReaderAt, off int64, n int) []byte {
	f, ok := file.(*os.File)
	if !ok || n == 0 || off%int64(os.Getpagesize()) != 0 {
		return nil
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return nil
	}
	var shown []byte
	err = raw.Control(func(fd uintptr) {
		shown, err = syscall.Mmap(int(fd), off, n, syscall.PROT_READ, syscall.MAP_SHARED)
		if err != nil {
			shown = nil
		}
	})
	if err != nil {
		return nil
	}
	return shown
}

func unmapFile(shown []byte) {
	if shown != nil {
		_ = syscall.Munmap(shown) // it is one of ours
	}
}
