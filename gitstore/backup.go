package gitstore

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
)

// The kinds of files in a backup.
const (
	BackupSpace = "space" // a space of the ledger, as ledger.WriteDump writes it
	BackupPack  = "pack"  // a pack
	BackupIdx   = "idx"   // its index
	BackupLog   = "log"   // a part of a repo's log that the ledger does not hold any more
)

// A BackupFile says what a file of a backup is.
type BackupFile struct {
	Kind  string
	Space ledger.Space // of a BackupSpace
	Repo  string       // id of the repo that a file is of, unless it is a space
	Pack  string       // name of the pack, or of the part of the log
	Size  int64        // in bytes; of a space -1, since nobody knows yet
}

// A BackupSink takes a backup. Its methods are called by one goroutine; an error of
// one ends the backup and is returned.
type BackupSink interface {
	// HasPack reports whether an earlier backup at the same place has a pack, or a part
	// of a log, whole.
	HasPack(pack string) bool
	// Begin begins a file; Write takes its bytes, and End ends it.
	Begin(f BackupFile) error
	Write(p []byte) (int, error)
	End() error
	// Keep makes a pack that HasPack told of a part of this backup too.
	Keep(repo, pack string) error
	// Drop forgets what came of a space, of a repo's with its packs, a file that has
	// begun included: it comes again, or it is gone.
	Drop(s ledger.Space) error
	// Damaged tells of a repo that cannot be read, when what came of it was dropped. An
	// error (d.Err, if nobody asked for anything else) ends the backup; nil leaves the
	// repo out.
	Damaged(d DamagedRepo) error
}

// A DamagedRepo is a repo with a pack that is lost or cannot be read.
type DamagedRepo struct {
	ID, Org, Name string
	Err           error // names the pack
}

// Limits of trying again what could not be read of one moment.
const (
	spaceTries = 5  // a dump that was interrupted
	repoTries  = 50 // a repo whose packs were replaced while they were copied
	orgTries   = 50 // an org in which repos were made and deleted meanwhile
)

// Backup gives everything that is kept to a sink: every space of the ledger as of one
// moment of its own, and the packs that are registered in it. Whatever was committed
// before the call is in it. What is written meanwhile is in it or not, as a whole in
// each repo; so is a repo that is made or deleted meanwhile. A pack that is lost, or is
// not what its checksum says, ends it unless the sink goes on without the repo.
func (s *Store) Backup(ctx context.Context, to BackupSink) error {
	ctx, end, err := s.work(ctx)
	if err != nil {
		return err
	}
	defer end()
	bulk, ok := s.ledger.(ledger.Bulk)
	if !ok {
		return fmt.Errorf("%w: this ledger cannot be backed up", ErrInvalid)
	}
	b := &backup{store: s, ledger: bulk, to: to}
	err = b.all(ctx)
	if s.life.Err() != nil && errors.Is(err, context.Canceled) {
		err = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	if err != nil {
		return fmt.Errorf("backup: %w", err)
	}
	return nil
}

type backup struct {
	store  *Store
	ledger ledger.Bulk
	to     BackupSink
}

// Prefixes of the names of spaces.
var (
	orgSpaces  = string(ledger.OrgSpace(""))
	repoSpaces = string(ledger.RepoSpace(""))
)

// all takes repos before the orgs that name them, and the server's space with the
// intents last: what is under way between them is then finished from its intent, as
// after a crash.
func (b *backup) all(ctx context.Context) error {
	var orgs, others []ledger.Space
	err := b.ledger.Spaces(ctx, func(s ledger.Space) error {
		switch name := string(s); {
		case strings.HasPrefix(name, orgSpaces):
			orgs = append(orgs, s)
		case s != ledger.ServerSpace && !strings.HasPrefix(name, repoSpaces):
			others = append(others, s)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list spaces: %w", err)
	}
	for _, org := range orgs {
		if err := b.org(ctx, org); err != nil {
			return err
		}
	}
	for _, s := range append(others, ledger.ServerSpace) {
		if err := b.space(ctx, s, nil); err != nil && !errors.Is(err, ledger.ErrNotFound) {
			return err
		}
	}
	return nil
}

// org takes the repos of an org and then its space, so that every repo it names is there.
func (b *backup) org(ctx context.Context, space ledger.Space) error {
	ids, err := b.named(ctx, space)
	if err != nil {
		return err
	}
	taken := map[string]bool{}
	for try := 1; ; try++ {
		for _, id := range ids {
			there, err := b.repo(ctx, id)
			if err != nil {
				return err
			}
			taken[id] = there
		}
		ids = ids[:0]
		names := map[string]bool{}
		err := b.space(ctx, space, func(it ledger.Item) {
			if strings.HasPrefix(it.Key, nameKeys) {
				names[string(it.Value)] = true
			}
		})
		if err != nil {
			if errors.Is(err, ledger.ErrNotFound) {
				err = nil // an org that had nothing
			}
			return err
		}
		for id := range names {
			if !taken[id] {
				ids = append(ids, id) // made meanwhile
			}
		}
		if len(ids) == 0 {
			return b.dropUnnamed(taken, names)
		}
		if try == orgTries {
			return fmt.Errorf("space %s: repos come and go too fast", space)
		}
		if err := b.to.Drop(space); err != nil {
			return err
		}
	}
}

// dropUnnamed leaves out repos that were deleted after they had been taken.
func (b *backup) dropUnnamed(taken, names map[string]bool) error {
	for id, there := range taken {
		if there && !names[id] {
			if err := b.to.Drop(ledger.RepoSpace(id)); err != nil {
				return err
			}
		}
	}
	return nil
}

// named gives the ids of an org's repos.
func (b *backup) named(ctx context.Context, space ledger.Space) (ids []string, err error) {
	v, err := b.ledger.Read(ctx, space)
	if err != nil {
		return nil, fmt.Errorf("list repos of %s: %w", space, err)
	}
	defer v.Close()
	items, err := scanAll(ctx, v, nameKeys)
	if err != nil {
		return nil, fmt.Errorf("list repos of %s: %w", space, err)
	}
	for _, it := range items {
		ids = append(ids, string(it.Value))
	}
	return ids, nil
}

// repo takes a repo's space and its packs. A pack that is gone when it is to be copied
// has been replaced: the space is then taken again. One that is gone although the
// space still names it is lost, and the repo damaged.
func (b *backup) repo(ctx context.Context, id string) (there bool, err error) {
	space := ledger.RepoSpace(id)
	gone := ""
	var info repoRecord
	for try := 1; ; try++ {
		var live []livePack
		var segments []segmentRecord
		err := b.space(ctx, space, func(it ledger.Item) {
			if it.Key == metaKey {
				info, _ = decodeRepoRecord(it.Value) // names the repo if it has to be named
			}
			if name, ok := strings.CutPrefix(it.Key, packKeys); ok {
				if rec, err := decodePackRecord(it.Value); err == nil && rec.State == packLive {
					live = append(live, livePack{name, rec, it.Value})
				}
			}
			if strings.HasPrefix(it.Key, segmentKeys) {
				if rec, err := decodeSegmentRecord(it.Value); err == nil {
					segments = append(segments, rec)
				}
			}
		})
		if errors.Is(err, ledger.ErrNotFound) {
			return false, nil // deleted meanwhile
		}
		if err != nil {
			return false, err
		}
		name, err := b.packs(ctx, id, live)
		if err == nil {
			name, err = b.segments(ctx, id, segments)
		}
		if err == nil {
			return true, nil
		}
		again := errors.Is(err, fs.ErrNotExist) && name != gone && try < repoTries
		gone = name
		what := "pack "
		if checkSegmentName(name) == nil {
			what = "part of the log "
		}
		err = fmt.Errorf("%s of repo %s/%s (%s): %w", what+name, info.Org, info.Name, id, err)
		if !errors.As(err, new(*unreadableError)) || ctx.Err() != nil {
			return false, err
		}
		if derr := b.to.Drop(space); derr != nil {
			return false, derr
		}
		if !again {
			return true, b.to.Damaged(DamagedRepo{ID: id, Org: info.Org, Name: info.Name, Err: err})
		}
	}
}

// An unreadableError is damage in what is to be backed up, not of the backup's place.
type unreadableError struct{ err error }

func (e *unreadableError) Error() string { return e.err.Error() }
func (e *unreadableError) Unwrap() error { return e.err }

// unreadable is nil for no error.
func unreadable(err error) error {
	if err == nil {
		return nil
	}
	return &unreadableError{err}
}

// damageReader tells what reading ends with from what writing does.
type damageReader struct{ io.Reader }

func (r damageReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = unreadable(err)
	}
	return n, err
}

// space takes one space. What was read of it may come again from the beginning.
func (b *backup) space(ctx context.Context, s ledger.Space, see func(ledger.Item)) error {
	for try := 1; ; try++ {
		err := b.dump(ctx, s, see)
		if err == nil || !errors.Is(err, ledger.ErrUnavailable) || try == spaceTries || ctx.Err() != nil {
			return err
		}
		if err := b.to.Drop(s); err != nil {
			return err
		}
	}
}

func (b *backup) dump(ctx context.Context, s ledger.Space, see func(ledger.Item)) (err error) {
	d, err := b.ledger.Dump(ctx, s)
	if err != nil {
		return fmt.Errorf("dump space %s: %w", s, err)
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := b.to.Begin(BackupFile{Kind: BackupSpace, Space: s, Size: -1}); err != nil {
		return err
	}
	err = ledger.WriteDump(ctx, b.to, s, d, func(it ledger.Item) error {
		if see != nil {
			see(it)
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	return b.to.End()
}

// packs copies those packs of a repo that are not there yet. On an error it names the pack.
func (b *backup) packs(ctx context.Context, id string, live []livePack) (name string, err error) {
	for _, p := range live {
		err := unreadable(packs.CheckName(p.name))
		switch {
		case err != nil:
		case b.to.HasPack(p.name):
			err = b.to.Keep(id, p.name)
		default:
			err = b.pack(ctx, id, p)
		}
		if err != nil {
			return p.name, err
		}
	}
	return "", nil
}

func (b *backup) pack(ctx context.Context, id string, p livePack) error {
	base := filepath.Join(b.store.repoDir(id), "packs", p.name)
	pack, err := b.store.fs.Open(base + ".pack")
	if err != nil {
		return unreadable(err)
	}
	defer pack.Close()
	idx, err := b.store.fs.Open(base + ".idx")
	if err != nil {
		return unreadable(err)
	}
	defer idx.Close()
	if err := b.copy(ctx, BackupFile{Kind: BackupPack, Repo: id, Pack: p.name, Size: p.rec.Size}, pack); err != nil {
		return err
	}
	info, err := idx.Stat()
	if err != nil {
		return unreadable(err)
	}
	return b.copy(ctx, BackupFile{Kind: BackupIdx, Repo: id, Pack: p.name, Size: info.Size()}, idx)
}

// copySteps copies to the end of from, or until ctx ends.
func copySteps(ctx context.Context, to io.Writer, from io.Reader) (n int64, err error) {
	buf := make([]byte, 256<<10)
	for {
		if err := ctx.Err(); err != nil {
			return n, context.Cause(ctx)
		}
		got, err := from.Read(buf)
		n += int64(got)
		if _, werr := to.Write(buf[:got]); werr != nil {
			return n, werr
		}
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// copy copies a file of git's, which ends with the SHA-1 of all that comes before.
func (b *backup) copy(ctx context.Context, f BackupFile, from io.Reader) error {
	if err := b.to.Begin(f); err != nil {
		return err
	}
	sum := trailed{h: sha1.New()}
	size, err := copySteps(ctx, io.MultiWriter(b.to, &sum), damageReader{from})
	if err != nil {
		return err
	}
	if size != f.Size || !sum.holds() {
		return unreadable(&packs.BrokenError{Name: f.Pack, Err: fmt.Errorf("its %s does not have its size or its checksum", f.Kind)})
	}
	return b.to.End()
}

// trailed hashes all but the last 20 bytes of what is written, and keeps those.
type trailed struct {
	h    hash.Hash
	tail []byte
}

func (t *trailed) Write(p []byte) (int, error) {
	t.tail = append(t.tail, p...)
	if n := len(t.tail) - sha1.Size; n > 0 {
		t.h.Write(t.tail[:n])
		t.tail = append(t.tail[:0], t.tail[n:]...)
	}
	return len(p), nil
}

func (t *trailed) holds() bool {
	return len(t.tail) == sha1.Size && string(t.h.Sum(nil)) == string(t.tail)
}
