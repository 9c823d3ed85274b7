package snapshot

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// conclude makes a snapshot of what was woven: nothing if nothing has changed, else a
// commit that is published when all of it was read again. The pack is the caller's to
// abort.
func (k *Keeper) conclude(ctx context.Context, repo Repo, p *planned, w *weave) (Snapshot, error) {
	if p.same(p.spec.Excluded) && w.same() && !p.spec.DryRun {
		return k.skip(ctx, repo, p)
	}
	if err := w.verify(ctx); err != nil {
		return Snapshot{}, k.spoilt(ctx, repo, p, err)
	}
	m := p.manifestOf(w)
	if p.spec.DryRun {
		return k.wouldBe(ctx, repo, p, m, w.fresh)
	}
	tree, err := w.root(&m)
	if err != nil {
		return Snapshot{}, err
	}
	commit, err := w.pack.AddObject("commit", commitText(tree, p, &m))
	if err != nil {
		return Snapshot{}, err
	}
	if err := w.pack.Finish(ctx); err != nil {
		return Snapshot{}, err
	}
	return k.publish(ctx, repo, p, made{Commit: commit, Manifest: m, Pack: w.pack, New: w.fresh})
}

// spoilt is an error of reading the base again. Damage in it is the base's: it is
// written down, and the save can be tried again without it.
func (k *Keeper) spoilt(ctx context.Context, repo Repo, p *planned, err error) error {
	if !isDamage(err) || p.base == nil {
		return err
	}
	return k.damage(ctx, repo, p.base.Commit, "what the save builds on", err)
}

// wouldBe tells what a save would be, and forgets it.
func (k *Keeper) wouldBe(ctx context.Context, repo Repo, p *planned, m Manifest, fresh int64) (Snapshot, error) {
	if err := k.drop(ctx, repo, p); err != nil {
		return Snapshot{}, err
	}
	s := Snapshot{
		Upload: p.id, Repo: repo.ID(), Session: p.spec.Session, Workspace: p.workspace, Name: m.Name, Kind: m.Parts[0].Kind, State: Ready,
		Size: m.Size, Stored: m.Stored, New: fresh, Zero: m.Zero, ChunkBytes: m.Parts[0].ChunkBytes, Usable: true, Sealed: m.Envelope != nil,
		Excluded: m.Excluded, Boundary: m.Boundary, Machine: m.Machine, Parent: p.parent, CreatedAt: p.at,
	}
	s.Root, _ = ParseHash(m.Root)
	return s, nil
}

// manifestOf is the manifest of a save.
func (p *planned) manifestOf(w *weave) Manifest {
	m := Manifest{
		Format: FormatVersion, Requires: p.spec.Requires, Session: p.spec.Session, Name: p.spec.Name, Parent: p.parent.String(),
		Workspace: p.workspace.String(), CreatedAt: p.at.UTC(), Machine: p.spec.Machine, Boundary: p.spec.Boundary,
		Excluded: p.spec.Excluded, Quiet: p.spec.Quiet, Envelope: p.spec.Envelope, Parts: w.parts, Zero: w.zero, Stored: w.stored,
		Extra: p.spec.Extra,
	}
	for _, part := range w.parts {
		m.Size += part.Size
	}
	m.Zero = min(m.Zero, m.Size)
	m.Root = SnapshotRoot(w.parts).String()
	return m
}

// commitText is the commit of a snapshot in git's form.
func commitText(tree OID, p *planned, m *Manifest) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "tree %s\nparent %s\n", tree, p.workspace)
	who := fmt.Sprintf("headgate <headgate@localhost> %d +0000", p.at.Unix())
	fmt.Fprintf(&b, "author %s\ncommitter %s\n\nSnapshot of session %s\n\nSession: %s\n", who, who, m.Session, m.Session)
	for _, line := range []struct{ key, value string }{{"Boundary", m.Boundary}, {"Name", m.Name}, {"Parent", m.Parent}, {"Image", m.Root}} {
		if line.value != "" {
			fmt.Fprintf(&b, "%s: %s\n", line.key, line.value)
		}
	}
	return []byte(b.String())
}

// ended is the end of a save that has failed: its record says why, or is gone if it may
// be tried again as it is.
func (k *Keeper) ended(ctx context.Context, repo Repo, p *planned, err error) error {
	if p.upload && retryable(err) {
		return err // the upload is still under way
	}
	return k.refuse(ctx, repo, p, err)
}

// retryable reports whether an upload that could not be sealed may be sealed later, when
// more was sent, or the right thing asked for, or another save has ended, or there is space.
func retryable(err error) bool {
	var moved *MovedError
	var over *OverCapError
	return !errors.Is(err, ErrNotQuiet) && !errors.As(err, &moved) && !errors.As(err, &over)
}
