package gitstore

import (
	"bytes"
	"context"
	"encoding/binary"
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
	name, err := r.indexPack(ctx, folder, src, taken)
	if err != nil {
		return r.indexFailed(c, err)
	}
	got, err := r.adoptIndexed(ctx, folder, name, src)
	if err != nil {
		return in, fmt.Errorf("take over pushed pack: %w", err)
	}
	in, err = r.examine(ctx, c, got, src)
	if err == nil && in.pack != nil {
		// Packs build on packs alone: what is hot is no file that git sees for good.
		err = r.Settle(ctx)
	}
	if err != nil || in.pack == nil {
		r.removeIncoming(got.info.Name)
	}
	return in, err
}

// packSource counts what is read of a pack and ends it at the limit.
type packSource struct {
	r     io.Reader
	n     int64
	limit int64
	head  []byte // the pack's first packHeader bytes, once they were read
	err   error  // why reading ended, if not at the end
}

func (s *packSource) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	s.n += int64(n)
	if missing := packHeader - len(s.head); missing > 0 {
		s.head = append(s.head, b[:min(n, missing)]...)
	}
	switch {
	case s.n > s.limit:
		err = &unpackError{fmt.Sprintf("pack is over the limit of %d bytes", s.limit)}
		s.err = err
	case err != nil && err != io.EOF:
		s.err = &lostError{err}
	}
	return n, err
}

// count is the number of entries that the head of the pack names.
func (s *packSource) count() int {
	if len(s.head) < packHeader {
		return 0
	}
	return int(binary.BigEndian.Uint32(s.head[8:]))
}

// indexPack runs git index-pack and gives the name of the pack in the folder.
func (r *Repo) indexPack(ctx context.Context, folder string, src *packSource, taken func()) (string, error) {
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
	// git ending early is told by Wait; what it did not read is left to the connection.
	_, _ = io.CopyBuffer(justWriter{stdin}, justReader{src}, make([]byte, 128<<10))
	if src.err != nil {
		p.Kill()
		_ = p.Wait() // it was killed
		return "", src.err
	}
	_ = stdin.Close()
	taken()
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

// justWriter and justReader keep io.CopyBuffer to the buffer it was given.
type (
	justWriter struct{ io.Writer }
	justReader struct{ io.Reader }
)

// faultsOfStream are what index-pack says of a pack before it looks at any base. All
// else that it says may speak of a base.
var faultsOfStream = []struct{ said, text string }{
	{"pack is corrupted (SHA1 mismatch)", "checksum does not match"},
	{"early EOF", "cut short"},
	{"inflate returned", "entry cannot be inflated"},
	{"pack signature mismatch", "no header"},
	{"pack version", "unsupported version"},
	{"unknown object type", "entry of unknown type"},
	{"offset value overflow", "base of a delta is out of bounds"},
	{"delta base offset is out of bound", "base of a delta is out of bounds"},
}

// indexFailed is the answer when git took no pack. What it says of bases is not
// passed on: to a caller who may not read all, an unresolved delta and one against
// what it may not read are the same.
func (r *Repo) indexFailed(c Caller, err error) (incoming, error) {
	var exit *gitcmd.ExitError
	if !errors.As(err, &exit) || exit.Signal != 0 {
		return incoming{}, err
	}
	for _, f := range faultsOfStream {
		if strings.Contains(exit.Stderr, f.said) {
			return incoming{}, &unpackError{packFault("%s", f.text).Error()}
		}
	}
	switch {
	case strings.Contains(exit.Stderr, "No space left on device"):
		return incoming{}, fmt.Errorf("index pack: %w", syscall.ENOSPC)
	case strings.Contains(exit.Stderr, "ut of memory"):
		return incoming{}, &unpackError{"an object needs more memory than the server gives a push"}
	}
	if c.Policy.RestrictsReads() || strings.Contains(exit.Stderr, "unresolved delta") {
		return unproved(), nil
	}
	r.store.log.Info("pushed pack refused", "repo", r.id, "err", exit)
	return incoming{}, &unpackError{packFault("cannot be indexed").Error()}
}

// examine looks at an adopted pack. One that cannot be taken leaves pack nil.
func (r *Repo) examine(ctx context.Context, c Caller, got indexedPack, src *packSource) (incoming, error) {
	if more := src.n - packTrailer - got.end; more != 0 {
		return incoming{}, &unpackError{packFault("%d bytes after its last object", more).Error()}
	}
	if got.backward && c.Policy.RestrictsReads() {
		return unproved(), nil
	}
	p, err := r.dir.Pack(got.info.Name)
	if err != nil {
		return incoming{}, fmt.Errorf("open pushed pack: %w", err)
	}
	defer p.Release()
	err = checkPacked(ctx, p, got.sent, r.specialsFor(ctx, c))
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
