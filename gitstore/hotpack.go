package gitstore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
)

// hotPacks keeps the throw-away pack through which git processes see hot objects.
// It is made anew when the hot tier has changed since, and goes when the last
// process that uses an old one has ended.
type hotPacks struct {
	mu      sync.Mutex // guards current and the users of every hotPack; held while a pack is made
	current *hotPack
	closed  bool // none is kept for the next process any more
}

// hotPack is one throw-away pack; its folder is empty when nothing was hot.
type hotPack struct {
	folder string // "" when nothing was hot
	seq    uint64 // log number up to which it is complete
	users  int
	old    bool // not current any more
}

// gitObjects says where git finds all objects of the repo: an object directory and
// alternates. release must be called when the process has ended.
func (r *Repo) gitObjects(ctx context.Context) (dir string, alternates []string, release func(), err error) {
	ended := r.store.gitRuns.begin(r.id)
	h, err := r.useHot(ctx)
	if err != nil {
		ended()
		return "", nil, nil, fmt.Errorf("show hot objects to git: %w", err)
	}
	index, unused := r.useIndex(ctx)
	if index != "" {
		alternates = append(alternates, index)
	}
	if h.folder != "" {
		alternates = append(alternates, h.folder+"/objects")
	}
	return r.dir.ObjectsPath(), alternates, func() { ended(); unused(); r.hots.release(h) }, nil
}

// runGit runs a sealed git process that sees all objects of the repo, hot ones
// too. GitDir and Alternates of cmd are filled in here.
func (r *Repo) runGit(ctx context.Context, cmd gitcmd.Cmd) error {
	_, alternates, release, err := r.gitObjects(ctx)
	if err != nil {
		return err
	}
	defer release()
	cmd.GitDir = r.dir.Root()
	cmd.Alternates = append(cmd.Alternates[:len(cmd.Alternates):len(cmd.Alternates)], alternates...)
	err = r.store.git.Run(ctx, cmd)
	r.doubtIndex(err)
	return err
}

func (r *Repo) useHot(ctx context.Context) (*hotPack, error) {
	r.hots.mu.Lock()
	defer r.hots.mu.Unlock()
	v, err := r.ledger.Peek(ctx, r.space)
	if err != nil {
		return nil, err
	}
	defer v.Close()
	seq, err := v.LastSeq(ctx)
	if err != nil {
		return nil, err
	}
	if h := r.hots.current; h != nil && h.seq == seq {
		r.standAll()
		h.users++
		return h, nil
	}
	// The packs after the hot objects: what is settled in between is in a pack that
	// is listed already, whether or not the view is a snapshot.
	items, err := scanAll(ctx, v, hotKeys)
	if err != nil {
		return nil, err
	}
	if err := r.allLinked(ctx); err != nil {
		return nil, err
	}
	h := &hotPack{seq: seq, users: 1}
	if len(items) > 0 {
		if h.folder, err = r.store.throwAway(ctx, items); err != nil {
			return nil, err
		}
	}
	r.hots.retire()
	if h.old = r.hots.closed; !h.old {
		r.hots.current = h
	}
	return h, nil
}

// retire makes the current pack an old one. Called with mu held.
func (p *hotPacks) retire() {
	h := p.current
	p.current = nil
	if h == nil {
		return
	}
	h.old = true
	if h.users == 0 {
		h.remove()
	}
}

// drop retires the current pack: its objects have been settled.
func (p *hotPacks) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retire()
}

// close is drop for a repo that is not shared any more: what still works on it keeps
// nothing when it ends.
func (p *hotPacks) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.retire()
}

func (p *hotPacks) release(h *hotPack) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if h.users--; h.users == 0 && h.old {
		h.remove()
	}
}

func (h *hotPack) remove() {
	if h.folder != "" {
		os.RemoveAll(filepath.Dir(h.folder)) // scratch: what is left goes when the store is opened again
	}
}

// throwAway writes a pack that need not survive a crash into a folder of its own.
func (s *Store) throwAway(ctx context.Context, items []ledger.Item) (folder string, err error) {
	parent, err := os.MkdirTemp(s.scratch.path, "hot-")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(parent)
		}
	}()
	folder = parent + "/repo"
	o := packs.Options{FS: unsynced{}, Codec: codec{}, Cache: s.bases}
	if err := packs.CreateDir(folder, o); err != nil {
		return "", err
	}
	d, err := packs.Open(folder, o)
	if err != nil {
		return "", err
	}
	defer d.Close()
	w, err := d.NewWriter(ctx)
	if err != nil {
		return "", err
	}
	defer w.Abort()
	w.Expect(len(items))
	if err := addHot(w, items); err != nil {
		return "", err
	}
	info, err := w.Finish()
	if err != nil {
		return "", err
	}
	return folder, d.Link(info.Name)
}

// unsynced is the operating system's files without any waiting for the disk.
type unsynced struct{ packs.OS }

func (unsynced) SyncDir(string) error { return nil }

func (u unsynced) Create(name string) (packs.File, error) { return forgoSync(u.OS.Create(name)) }

func (u unsynced) Open(name string) (packs.File, error) { return forgoSync(u.OS.Open(name)) }

func forgoSync(f packs.File, err error) (packs.File, error) {
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

type unsyncedFile struct{ packs.File }

func (unsyncedFile) Sync() error { return nil }
