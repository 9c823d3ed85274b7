package packstest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// A Loss says what a power cut does to names that were changed and not synced.
// Content that was not synced is lost in both.
type Loss int

const (
	// Strict: a folder is as it was when it was last synced.
	Strict Loss = iota
	// Eager: a folder is as it was at the cut, as if the disk had written names
	// ahead of contents: a file that was never synced is there and empty.
	Eager
)

func (l Loss) String() string { return [...]string{"strict", "eager"}[l] }

// replay is the state of all nodes at a point.
type replay struct {
	now, durable map[*node]map[string]*node
	content      map[*node]string
}

// Materialise puts into the empty folder dst what a power cut right after a
// point, from 0 to len(Points()), would have left. Strict: with nothing more.
// Eager: with all names that were made before the next point.
func (c *CrashFS) Materialise(dst string, point int, loss Loss) error {
	c.mu.Lock()
	log := c.log[:len(c.log):len(c.log)]
	n := len(c.points)
	c.mu.Unlock()
	if point < 0 || point > n {
		return fmt.Errorf("packstest: no point %d of %d", point, n)
	}
	s := replay{make(map[*node]map[string]*node), make(map[*node]map[string]*node), make(map[*node]string)}
	for _, e := range log {
		if e.point > point {
			break
		}
		s.play(e)
	}
	names := s.durable
	if loss == Eager {
		names = s.now
	}
	return s.write(c.top, dst, names)
}

func (s replay) play(e event) {
	if e.names == nil {
		s.content[e.node] = e.content
		return
	}
	s.now[e.node] = e.names
	if e.synced {
		s.durable[e.node] = e.names
	}
}

func (s replay) write(n *node, path string, names map[*node]map[string]*node) error {
	for name, child := range names[n] {
		at := filepath.Join(path, name)
		var err error
		if child.dir {
			if err = os.Mkdir(at, 0o755); err == nil {
				err = s.write(child, at, names)
			}
		} else {
			err = s.writeFile(child, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s replay) writeFile(n *node, path string) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	defer out.Close()
	kept, ok := s.content[n]
	if !ok {
		return nil
	}
	in, err := os.Open(kept)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(out, in)
	return err
}
