package gitstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/refpolicy"
)

const (
	bundleHead = "# v2 git bundle"
	// maxBundleLine bounds a line before the pack of a bundle.
	maxBundleLine = 4 << 10
)

// WriteSnapshotBundle writes a git bundle with one ref, at tip, and all that leads to.
// It is not asked who may read it.
func (r *Repo) WriteSnapshotBundle(ctx context.Context, w io.Writer, tip refpolicy.OID, ref refpolicy.RefName) error {
	ctx, end, err := r.store.work(ctx)
	if err != nil {
		return err
	}
	defer end()
	view, err := r.store.writeView([]byte(packedRefsHead + tip.String() + " " + string(ref) + "\n"))
	if err != nil {
		return err
	}
	defer view.remove()
	objects, alternates, release, err := r.gitObjects(ctx)
	if err != nil {
		return r.orGone(err)
	}
	defer release()
	err = r.store.git.Run(ctx, gitcmd.Cmd{
		Args: []string{"bundle", "create", "-q", "--version=2", "-", "--all"},
		// Chunks are copied as they stand: no deltas are looked for.
		Config: [][2]string{{"pack.window", "0"}},
		GitDir: view.dir, ObjectDir: objects, Alternates: alternates,
		Stdout: w, Timeout: transferTimeout, Low: true,
	})
	if err != nil {
		return r.orGone(fmt.Errorf("write bundle of %s: %w", tip, err))
	}
	return nil
}

// ReadBundle takes a git bundle of one ref, which must hold all that leads to, into a
// pack that nobody knows of, checked as a push is. Errors: ErrBadObject with what is
// wrong with it, those of a push; the caller ends the pack by Abort.
func (r *Repo) ReadBundle(ctx context.Context, c Caller, in io.Reader) (tip refpolicy.OID, pack *SnapshotPack, err error) {
	ctx, end, err := r.store.work(ctx)
	if err != nil {
		return tip, nil, err
	}
	defer end()
	buf := bufio.NewReaderSize(in, maxBundleLine)
	if tip, err = bundleTip(buf); err != nil {
		return tip, nil, err
	}
	limit := r.store.limits.PushTimeout
	working, begin, stop := pushTimer(ctx, limit)
	defer stop()
	got, err := r.receiveLarge(working, c, nil, buf, begin)
	err = timedOut(working, err, limit)
	if err == nil && (got.pack == nil || len(got.pack.Appended) > 0) {
		if got.pack != nil {
			r.removeIncoming(got.pack.Name)
		}
		err = badBundle("it builds on objects that it does not hold")
	}
	if err != nil {
		return tip, nil, r.orGone(bundleError(err))
	}
	got.pack.Kind, got.pack.Kept = kindSnapshot, true
	pack = &SnapshotPack{r: r}
	pack.in.Store(got.pack)
	if pack.read, err = r.dir.Pack(got.pack.Name); err != nil {
		pack.Abort()
		return tip, nil, r.orGone(fmt.Errorf("open bundle's pack: %w", err))
	}
	if !pack.read.Has(tip) {
		pack.Abort()
		return tip, nil, badBundle("it does not hold its tip")
	}
	return tip, pack, nil
}

func badBundle(why string) error { return fmt.Errorf("%w: bundle: %s", ErrBadObject, why) }

// bundleError makes what is wrong with a pack the caller's own fault.
func bundleError(err error) error {
	var bad *unpackError
	if errors.As(err, &bad) {
		return badBundle(bad.text)
	}
	return fmt.Errorf("read bundle: %w", err)
}

// bundleTip reads what precedes the pack of a bundle of one ref:
//
//	"# v2 git bundle" LF oid SP name LF LF
func bundleTip(in *bufio.Reader) (tip refpolicy.OID, err error) {
	line, err := bundleLine(in)
	if err == nil && line != bundleHead {
		err = badBundle("not a version 2 bundle")
	}
	if err != nil {
		return tip, err
	}
	if line, err = bundleLine(in); err != nil {
		return tip, err
	}
	hex, ref, ok := strings.Cut(line, " ")
	if strings.HasPrefix(line, "-") {
		return tip, badBundle("it has prerequisites")
	}
	if tip, err = refpolicy.ParseOID(hex); err != nil || !ok || ref == "" {
		return tip, badBundle("it does not begin with a ref")
	}
	if line, err = bundleLine(in); err == nil && line != "" {
		err = badBundle("it has more than one ref")
	}
	return tip, err
}

func bundleLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", badBundle("a line is too long")
	case err == io.EOF:
		return "", badBundle("it ends before its pack")
	case err != nil:
		return "", fmt.Errorf("read bundle: %w", &lostError{err})
	}
	return string(line[:len(line)-1]), nil
}
