package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// receiveLarge streams a pack, of which head has been read, into git index-pack in
// a folder of its own, looks at its objects, and gives it as a pack that nobody
// knows yet. Nothing is left of one that is refused.
func (r *Repo) receiveLarge(ctx context.Context, c Caller, head []byte, rest io.Reader, taken func()) (in incoming, err error) {
	folder, err := r.dir.Incoming()
	if err != nil {
		return in, err
	}
	defer func() {
		if rerr := r.dir.RemoveIncoming(folder); rerr != nil {
			r.store.log.Warn("remove quarantine", "repo", r.id, "err", rerr)
		}
	}()
	src := &packSource{r: io.MultiReader(bytes.NewReader(head), rest), limit: r.store.limits.PackBytes}
	scan := newPackScan(src, func() int64 { return src.n }, r.store.limits.FileBytes, r.store.limits.PushLimits)
	name, err := r.indexPack(ctx, c, folder, src, scan, taken)
	if err != nil {
		return r.indexFailed(c, err)
	}
	got, err := r.adoptIndexed(ctx, folder, name, scan)
	if err != nil {
		return in, fmt.Errorf("take over pushed pack: %w", err)
	}
	in, err = r.examine(ctx, c, got)
	if err == nil && in.pack != nil {
		// Packs build on packs alone: what is hot is no file that git sees for good.
		err = r.Settle(ctx)
	}
	if err != nil || in.pack == nil {
		r.removeIncoming(got.info.Name)
	}
	return in, err
}

// packSource reads a pack from its client up to the limit and passes it on, each
// piece only when the next has come: the last one waits, so that nobody works on a
// pack before all of it was looked at.
type packSource struct {
	r     io.Reader
	n     int64
	limit int64
	to    io.Writer
	held  []byte
}

// errGitEnded says that index-pack took no more; it tells itself why.
var errGitEnded = errors.New("index-pack has ended")

func (s *packSource) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if n > 0 {
		if err := s.pass(); err != nil {
			return 0, err
		}
		s.n += int64(n)
		s.held = append(s.held, b[:n]...)
	}
	switch {
	case s.n > s.limit:
		return 0, &unpackError{fmt.Sprintf("pack is over the limit of %d bytes", s.limit)}
	case err != nil && err != io.EOF:
		return n, &lostError{err}
	}
	return n, err
}

func (s *packSource) pass() error {
	if len(s.held) == 0 {
		return nil
	}
	if _, err := s.to.Write(s.held); err != nil {
		return errGitEnded
	}
	s.held = s.held[:0]
	return nil
}

// indexPack runs git index-pack and gives the name of the pack in the folder.
func (r *Repo) indexPack(ctx context.Context, c Caller, folder string, src *packSource, scan *packScan, taken func()) (string, error) {
	dir, alternates, release, err := r.gitObjects(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	var out bytes.Buffer
	p, err := r.store.git.Start(ctx, gitcmd.Cmd{
		Args:   []string{"index-pack", "--stdin", "--fix-thin"},
		GitDir: r.dir.Root(), ObjectDir: folder, Alternates: append([]string{dir}, alternates...),
		Stdout: &out, Timeout: transferTimeout,
	})
	if err != nil {
		return "", err
	}
	stdin := p.StdinPipe()
	src.to = stdin
	if err = scan.run(); err == nil {
		taken()
		if err = r.checkBases(ctx, c, scan, src.n); err == nil {
			err = src.pass()
		}
	}
	if err != nil && !errors.Is(err, errGitEnded) {
		p.Kill()
		_ = p.Wait() // it was killed
		return "", err
	}
	_ = stdin.Close()
	if err := p.Wait(); err != nil {
		return "", err
	}
	// Behind the line git repeats what it read behind the pack.
	line, _, _ := strings.Cut(out.String(), "\n")
	hex, ok := strings.CutPrefix(line, "pack\t")
	if _, err := refpolicy.ParseOID(hex); !ok || err != nil {
		return "", fmt.Errorf("index pack: git named no pack")
	}
	return "pack-" + hex, nil
}

// errUnproved says that a pack builds on what does not exist for the caller.
var errUnproved = errors.New("a base of the pack is not readable")

// checkBases refuses stored bases that are too large to be held in memory, and those
// that together make too large a pack: git appends them to what was sent.
func (r *Repo) checkBases(ctx context.Context, c Caller, scan *packScan, sent int64) error {
	for oid := range scan.bases {
		_, size, err := r.header(ctx, oid)
		if errors.Is(err, ErrObjectNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		sent += size
		if size > maxDelta {
			return r.refuseBases(ctx, c, map[refpolicy.OID]bool{oid: true}, errLargeDelta)
		}
		if limit := r.store.limits.PackBytes; sent > limit {
			return r.refuseBases(ctx, c, scan.bases, &unpackError{fmt.Sprintf("pack and the bases of its deltas are over the limit of %d bytes", limit)})
		}
	}
	return nil
}

// refuseBases tells what is wrong with bases to whoever may read them.
func (r *Repo) refuseBases(ctx context.Context, c Caller, bases map[refpolicy.OID]bool, fault error) error {
	ok, err := r.allReadable(ctx, c, bases)
	if err == nil && !ok {
		err = errUnproved
	}
	if err == nil {
		err = fault
	}
	return err
}

// indexFailed is the answer when no pack was taken. What git says of bases is not
// passed on: to a caller who may not read all, an unresolved delta and one against
// what it may not read are the same. All that can be wrong before git looks at a
// base was found by the scan, but for the checksum.
func (r *Repo) indexFailed(c Caller, err error) (incoming, error) {
	switch {
	case errors.Is(err, errUnproved):
		return unproved(), nil
	case errors.Is(err, ErrBadObject):
		return incoming{}, &unpackError{err.Error()}
	}
	var exit *gitcmd.ExitError
	if !errors.As(err, &exit) || exit.Signal != 0 {
		return incoming{}, err
	}
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return incoming{}, err
	case strings.Contains(exit.Stderr, "pack is corrupted (SHA1 mismatch)"):
		return incoming{}, &unpackError{packFault("checksum does not match").Error()}
	case c.Policy.RestrictsReads(), strings.Contains(exit.Stderr, "unresolved delta"):
		return unproved(), nil
	}
	r.store.log.Info("pushed pack refused", "repo", r.id, "err", exit)
	return incoming{}, &unpackError{packFault("cannot be indexed").Error()}
}

// examine looks at an adopted pack. One that cannot be taken leaves pack nil.
func (r *Repo) examine(ctx context.Context, c Caller, got indexedPack) (incoming, error) {
	if got.backward && c.Policy.RestrictsReads() {
		return unproved(), nil
	}
	p, err := r.dir.Pack(got.info.Name)
	if err != nil {
		return incoming{}, fmt.Errorf("open pushed pack: %w", err)
	}
	defer p.Release()
	err = got.deep
	if err == nil {
		err = checkPacked(ctx, p, got.sent, r.specialsFor(ctx, c))
	}
	if errors.Is(err, ErrBadObject) {
		return r.badPack(ctx, c, err, oidSet(got.appended))
	}
	if err != nil {
		return incoming{}, err
	}
	return incoming{pack: &IncomingPack{Info: got.info, Kind: "pushed", Appended: got.appended}}, nil
}

// checkPacked holds the objects of a pack to git's format; of blobs only those that
// git itself would read.
func checkPacked(ctx context.Context, p *packs.Pack, sent []placed, from specialSource) error {
	specials := map[refpolicy.OID]specialFile{}
	for _, e := range sent {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		t, _, err := p.Header(e.oid)
		if err != nil {
			return fmt.Errorf("read pushed object: %w", err)
		}
		if t == packs.Blob {
			continue
		}
		_, data, err := p.Object(e.oid, maxWhole)
		if errors.Is(err, packs.ErrTooLarge) {
			err = badObject(ObjectType(t), "over the limit of %d bytes", maxWhole)
		} else if err == nil {
			err = checkObject(ObjectType(t), data, specials)
		}
		if err != nil {
			return fmt.Errorf("object %s: %w", e.oid, err)
		}
	}
	from.pushed = func(oid refpolicy.OID) ([]byte, error) {
		if !p.Has(oid) {
			return nil, ErrObjectNotFound
		}
		_, data, err := p.Object(oid, maxSpecial)
		if errors.Is(err, packs.ErrTooLarge) {
			err = fmt.Errorf("%w: %w", ErrTooLarge, err)
		}
		return data, err
	}
	return checkSpecials(specials, from)
}
