package ledger

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

// LoadDump loads a space from what WriteDump has written.
func LoadDump(ctx context.Context, to Bulk, r io.Reader) (Space, error) {
	d, err := NewDumpReader(r)
	if err != nil {
		return "", err
	}
	for {
		c, err := d.Next()
		if err == io.EOF {
			return d.Space, nil
		}
		if err == nil {
			err = to.Load(ctx, d.Space, c)
		}
		if err != nil {
			return d.Space, fmt.Errorf("load space %s: %w", d.Space, err)
		}
	}
}

// Copy loads every space of one ledger into another, which was opened to be loaded,
// reads it back and compares: keys, values, log numbers, times. Nobody writes to
// either meanwhile. Each copied space is told. The caller calls FinishLoad.
func Copy(ctx context.Context, from, to Bulk, tell func(Space)) error {
	return from.Spaces(ctx, func(s Space) error {
		if err := copySpace(ctx, from, to, s); err != nil {
			return fmt.Errorf("copy space %s: %w", s, err)
		}
		tell(s)
		return nil
	})
}

func copySpace(ctx context.Context, from, to Bulk, s Space) error {
	r, w := io.Pipe()
	read := sha256.New()
	done := make(chan error, 1)
	go func() {
		err := dumpTo(ctx, io.MultiWriter(w, read), from, s)
		w.CloseWithError(err)
		done <- err
	}()
	_, err := LoadDump(ctx, to, r)
	r.CloseWithError(err) // ends the dump, if it still runs
	if derr := <-done; derr != nil && !errors.Is(err, derr) {
		err = errors.Join(derr, err)
	}
	if err != nil {
		return err
	}
	back := sha256.New()
	if err := dumpTo(ctx, back, to, s); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if string(back.Sum(nil)) != string(read.Sum(nil)) {
		return fmt.Errorf("%w: what was written does not read back the same", ErrBadDump)
	}
	return nil
}

func dumpTo(ctx context.Context, w io.Writer, from Bulk, s Space) (err error) {
	d, err := from.Dump(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return WriteDump(ctx, w, s, d, nil)
}
