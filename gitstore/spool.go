package gitstore

import (
	"bytes"
	"fmt"
	"io"
	"os"
)

// spool keeps the contents of one commit's files while they arrive: in memory as
// long as all of them together stay small, then in files.
type spool struct {
	folder   string // for the files
	inMemory int64  // bytes in memory now
	limit    int64  // how many of them there may be
	total    int64
	contents map[string]*content
}

type content struct {
	data  []byte   // while in memory
	file  *os.File // else
	size  int64
	ended bool
}

func newSpool(folder string, limit int64) *spool {
	return &spool{folder: folder, limit: limit, contents: map[string]*content{}}
}

// add takes up a content of that name; false if it is there already.
func (s *spool) add(id string) bool {
	if _, ok := s.contents[id]; ok {
		return false
	}
	s.contents[id] = &content{}
	return true
}

func (s *spool) write(c *content, data []byte) error {
	c.size += int64(len(data))
	s.total += int64(len(data))
	if c.file == nil && s.inMemory+int64(len(data)) <= s.limit {
		c.data = append(c.data, data...)
		s.inMemory += int64(len(data))
		return nil
	}
	if c.file == nil {
		if err := s.moveOut(c); err != nil {
			return fmt.Errorf("spool content: %w", err)
		}
	}
	if _, err := c.file.Write(data); err != nil {
		return fmt.Errorf("spool content: %w", err)
	}
	return nil
}

// moveOut moves a content from memory into a file without a name, which is gone
// when it is closed or the process ends.
func (s *spool) moveOut(c *content) error {
	f, err := os.CreateTemp(s.folder, "content-")
	if err != nil {
		return err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return err
	}
	if _, err := f.Write(c.data); err != nil {
		f.Close()
		return err
	}
	s.inMemory -= int64(len(c.data))
	c.file, c.data = f, nil
	return nil
}

func (s *spool) close() {
	for _, c := range s.contents {
		if c.file != nil {
			c.file.Close()
		}
	}
	s.contents = nil
}

// reader reads a content from its start.
func (c *content) reader() io.Reader {
	if c.file == nil {
		return bytes.NewReader(c.data)
	}
	return io.NewSectionReader(c.file, 0, c.size)
}

// whole reads a content that is small.
func (c *content) whole() ([]byte, error) {
	if c.file == nil {
		return c.data, nil
	}
	return io.ReadAll(c.reader())
}
