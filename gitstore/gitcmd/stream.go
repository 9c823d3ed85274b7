package gitcmd

import (
	"io"
	"os"
)

// input hands the caller's reader to git. A reader that breaks ends the
// process: git would take the cut for the end of what it was told.
func (p *Process) input(r io.Reader) io.Reader {
	if f, ok := r.(*os.File); ok {
		return f
	}
	return &brokenInput{r: r, p: p}
}

// output hands git's output to the caller's writer. Without it a writer that
// fails would be reported as git's death by SIGPIPE.
func (p *Process) output(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok {
		return f
	}
	return &brokenOutput{w: w, p: p}
}

func (p *Process) broke(err error) {
	p.ioErr.CompareAndSwap(nil, &err)
	p.cancel(err)
}

type brokenInput struct {
	r io.Reader
	p *Process
}

func (b *brokenInput) Read(buf []byte) (int, error) {
	n, err := b.r.Read(buf)
	if err != nil && err != io.EOF {
		b.p.broke(err)
	}
	return n, err
}

type brokenOutput struct {
	w io.Writer
	p *Process
}

func (b *brokenOutput) Write(buf []byte) (int, error) {
	n, err := b.w.Write(buf)
	if err != nil {
		b.p.broke(err)
	}
	return n, err
}
