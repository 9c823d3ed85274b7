package gitstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// The kinds of packs. They say what was done for the packs' deltas, and so which of
// them are merged with each other.
const (
	kindSettled = "settled" // small objects that were hot, whole
	kindPushed  = "pushed"  // a large push, with the deltas git made for it
	kindMerged  = "merged"  // what upkeep made of them, with deltas
	kindBlobs   = "blobs"   // large blobs and the files of a large commit: never searched for deltas
)

// A newPack is a pack whose files are durable and which nobody knows yet.
type newPack struct {
	packs.Info
	kind string
}

// deltas says what becomes of deltas in a new pack.
type deltas int

const (
	keepDeltas deltas = iota // taken over, and looked for between what has none
	newDeltas                // all looked for anew
)

// A packJob is one pack for git to write: of the objects feed names, a line each, or
// of all in packs.
type packJob struct {
	kind    string
	feed    func(w io.Writer) error
	packs   []string // names
	without string   // a pack, registered or not, whose objects are left out; with packs alone
	deltas  deltas
}

func (j packJob) args() []string {
	args := []string{"pack-objects", "-q", "--non-empty", "--delta-base-offset"}
	if j.packs != nil {
		args = append(args, "--stdin-packs")
	}
	if j.deltas == newDeltas {
		args = append(args, "--no-reuse-delta")
	}
	if j.kind == kindBlobs || j.kind == kindSnapshot {
		args = append(args, "--window=0")
	}
	return args
}

func (j packJob) write(w io.Writer) error {
	if j.packs == nil {
		return j.feed(w)
	}
	var lines strings.Builder
	for _, name := range j.packs {
		lines.WriteString(name + ".pack\n")
	}
	if j.without != "" {
		lines.WriteString("^" + j.without + ".pack\n")
	}
	_, err := io.WriteString(w, lines.String())
	return err
}

// gitPack lets git do a job. Objects are copied as they stand in the packs where that
// can be done. ok is false if there was nothing to write. Until it is registered
// nobody knows the pack; its folder is removed here whatever happens, and after a
// crash by whoever opens the repo next.
func (r *Repo) gitPack(ctx context.Context, job packJob) (p newPack, ok bool, err error) {
	if err := r.allLinked(ctx); err != nil {
		return p, false, err
	}
	folder, err := r.dir.Incoming()
	if err != nil {
		return p, false, err
	}
	defer func() {
		if rerr := r.dir.RemoveIncoming(folder); rerr != nil {
			r.store.log.Warn("remove pack folder", "repo", r.id, "err", rerr)
		}
	}()
	if job.without != "" {
		if err := r.dir.LinkInto(folder, job.without); err != nil {
			return p, false, err
		}
	}
	sum, err := r.runPackObjects(ctx, job, folder)
	if err != nil || sum == "" {
		return p, false, err
	}
	base := filepath.Join(folder, "pack", packBase+"-"+sum)
	p.kind = job.kind
	p.Info, err = r.dir.Adopt(ctx, base+".pack", base+".idx")
	return p, err == nil, err
}

// packBase begins the names of what git writes into an incoming folder. It is not that
// of registered packs: one of them may be linked into the folder.
const packBase = "made"

// runPackObjects gives the hash by which git names the pack, "" if there is none.
func (r *Repo) runPackObjects(ctx context.Context, job packJob, folder string) (sum string, err error) {
	var out bytes.Buffer
	in, lines := io.Pipe()
	var helpers sync.WaitGroup
	defer helpers.Wait()
	writing, written := context.WithCancel(ctx)
	defer written()
	helpers.Go(func() { lines.CloseWithError(job.write(lines)) })
	helpers.Go(func() { r.dir.WriteBehind(writing, folder) })
	err = r.store.runLow(ctx, gitcmd.Cmd{
		Args: append(job.args(), filepath.Join(folder, "pack", packBase)), GitDir: r.dir.Root(), ObjectDir: folder,
		Alternates: []string{r.dir.ObjectsPath()}, Stdin: in, Stdout: &out, Timeout: transferTimeout,
	})
	in.Close() // ends the feeding if git has ended before it
	if err != nil {
		return "", fmt.Errorf("write pack: %w", err)
	}
	if sum = strings.TrimSpace(out.String()); sum == "" {
		return "", nil
	}
	if _, err := refpolicy.ParseOID(sum); err != nil {
		return "", fmt.Errorf("write pack: git named no pack: %w", err)
	}
	return sum, nil
}

// A swap puts new packs in the place of old ones, in one batch.
type swap struct {
	// gen is the prune generation the decision was made in; nil if it holds in any.
	gen []byte
	new []newPack
	old []livePack
	// lean are packs that hold what was not copied, since they are live.
	lean []livePack

	applied bool
}

func (s *swap) batch(r *Repo, now time.Time) ledger.Batch {
	b := ledger.Batch{Space: r.space}
	if s.gen != nil {
		b.Checks = append(b.Checks, ledger.Equal(genKey, s.gen))
	}
	for _, list := range [][]livePack{s.old, s.lean} {
		for _, p := range list {
			b.Checks = append(b.Checks, ledger.Equal(packKey(p.name), p.raw))
		}
	}
	for _, p := range s.new {
		rec := packRecord{Size: p.Size, Objects: p.Objects, Kind: p.kind, State: packLive}
		b.Checks = append(b.Checks, ledger.Absent(packKey(p.Name)))
		b.Sets = append(b.Sets, ledger.Set{Key: packKey(p.Name), Value: mustJSON(rec)})
	}
	for _, p := range s.old {
		rec := p.rec
		rec.State, rec.At = packCondemned, now
		b.Sets = append(b.Sets, ledger.Set{Key: packKey(p.name), Value: mustJSON(rec)})
	}
	return b
}

// apply registers the new packs and condemns the old ones, if all are still what
// they were. Before this batch the new packs do not exist for anybody, and a crash
// leaves files that no record names; after it a condemned pack is still on disk for
// those who read in it. Of two that replace the same pack, on whatever node, the
// second finds a record changed and gives up.
func (s *swap) apply(ctx context.Context, r *Repo) error {
	now, err := r.ledger.Now(ctx)
	if err == nil {
		_, err = r.applySure(ctx, s.batch(r, now))
	}
	if err != nil {
		return fmt.Errorf("replace packs: %w", err)
	}
	s.applied = true
	var added, gone []string
	for _, p := range s.new {
		added = append(added, p.Name)
	}
	for _, p := range s.old {
		gone = append(gone, p.name)
	}
	r.replacePacks(added, gone)
	return nil
}

// drop removes the files of the new packs if they were not registered; err says why.
func (s *swap) drop(ctx context.Context, r *Repo, err error) {
	if s.applied {
		return
	}
	for _, p := range s.new {
		r.dropPack(ctx, p.Name, err)
	}
}
