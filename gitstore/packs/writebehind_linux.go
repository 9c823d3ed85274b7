package packs

import (
	"os"
	"syscall"
)

// syncFileRangeWrite is SYNC_FILE_RANGE_WRITE: begin, and do not wait.
const syncFileRangeWrite = 2

// beginWriting lets the disk begin with a part of a file. It is a hint: errors are of
// no account.
func beginWriting(path string, from, to int64) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	_ = syscall.SyncFileRange(int(f.Fd()), from, to-from, syncFileRangeWrite)
}

// beginWritingFile is beginWriting for an open file.
func beginWritingFile(f File, from, to int64) {
	c, ok := f.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = syscall.SyncFileRange(int(fd), from, to-from, syncFileRangeWrite) })
}
