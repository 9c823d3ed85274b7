package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// A Builder builds the program into a folder of its own, each kind once.
type Builder struct {
	dir         string
	plain, race func() (string, error)
}

// NewBuilder makes the folder; Remove removes it.
func NewBuilder() (*Builder, error) {
	dir, err := os.MkdirTemp("", "headgate-build-")
	if err != nil {
		return nil, fmt.Errorf("make build folder: %w", err)
	}
	b := &Builder{dir: dir}
	b.plain = sync.OnceValues(func() (string, error) { return b.build("headgate") })
	b.race = sync.OnceValues(func() (string, error) { return b.build("headgate-race", "-race") })
	return b, nil
}

// Plain is the path of the program as it is shipped: for speed and memory.
func (b *Builder) Plain() (string, error) { return b.plain() }

// Race is the path of the program with the race detector in it.
func (b *Builder) Race() (string, error) { return b.race() }

// Dir is the folder of what was built; what a test builds for itself may go there.
func (b *Builder) Dir() string { return b.dir }

// Remove removes what was built.
func (b *Builder) Remove() error { return os.RemoveAll(b.dir) }

func (b *Builder) build(name string, flags ...string) (string, error) {
	path := filepath.Join(b.dir, name)
	args := append([]string{"build", "-o", path}, flags...)
	out, err := exec.Command("go", append(args, "github.com/headgate/headgate/cmd/headgate")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return path, nil
}
