package gitstore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
	"github.com/headgate/headgate/refpolicy"
)

// The kinds of packs. Packs are merged and rewritten within their kind alone.
const (
	kindSettled = "settled" // small objects that were hot
	kindPushed  = "pushed"  // a large push, with the deltas git made for it
	kindBlobs   = "blobs"   // the files of a large commit: never searched for deltas
)

// A newPack is a pack whose files are durable and which nobody knows yet.
type newPack struct {
	packs.Info
	kind string
}

// gitPack lets git write a pack of what feed names, a line each: oids, or names of
// packs with stdinPacks. Objects are copied as they stand in the packs where that can
// be done. ok is false if there was nothing to write. Until it is registered nobody
// knows the pack; its folder is removed here whatever happens, and after a crash by
// whoever opens the repo next.
func (r *Repo) gitPack(ctx context.Context, kind string, stdinPacks bool, feed func(w io.Writer) error) (p newPack, ok bool, err error) {
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
	args := []string{"pack-objects", "-q", "--non-empty", "--delta-base-offset"}
	if stdinPacks {
		args = append(args, "--stdin-packs")
	}
	if kind == kindBlobs {
		args = append(args, "--window=0")
	}
	var out bytes.Buffer
	in, lines := io.Pipe()
	fed := make(chan struct{})
	go func() { defer close(fed); lines.CloseWithError(feed(lines)) }()
	err = r.store.git.Run(ctx, gitcmd.Cmd{
		Args: append(args, filepath.Join(folder, "pack", "pack")), GitDir: r.dir.Root(), ObjectDir: folder,
		Alternates: []string{r.dir.ObjectsPath()}, Stdin: in, Stdout: &out, Timeout: transferTimeout, Low: true,
	})
	in.Close() // ends feed if git has ended before it
	<-fed
	if err != nil {
		return p, false, fmt.Errorf("write pack: %w", err)
	}
	sum := strings.TrimSpace(out.String())
	if sum == "" {
		return p, false, nil
	}
	if _, err := refpolicy.ParseOID(sum); err != nil {
		return p, false, fmt.Errorf("write pack: git named no pack: %w", err)
	}
	base := filepath.Join(folder, "pack", "pack-"+sum)
	p.kind = kind
	p.Info, err = r.dir.Adopt(ctx, base+".pack", base+".idx")
	return p, err == nil, err
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
