package main

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// fixtureName is the repository on the reference's side.
const fixtureName = "history.git"

// mirrorPlain serves a mirror of the fixture, in a folder of that name, by git
// http-backend and tells where.
func (w *workshop) mirrorPlain(ctx context.Context, folder, fixture string) (address string, err error) {
	root := filepath.Join(w.dir, folder)
	plain := filepath.Join(root, fixtureName)
	if _, err := git(ctx, "", nil, "clone", "-q", "--mirror", "--no-hardlinks", fixture, plain); err != nil {
		return "", err
	}
	if _, err := git(ctx, plain, nil, "config", "http.receivepack", "true"); err != nil {
		return "", err
	}
	return w.httpBackend(ctx, root)
}

// remoteRows measures git's own protocol beside git http-backend.
func remoteRows(ctx context.Context, w *workshop) ([]row, error) {
	fixture, err := w.fixture(ctx)
	if err != nil {
		return nil, err
	}
	r, err := w.newHistoryRepo(ctx, "history", fixture)
	if err != nil {
		return nil, err
	}
	address, err := w.mirrorPlain(ctx, "plain", fixture)
	if err != nil {
		return nil, err
	}
	theirs := "http://" + address + "/" + fixtureName
	push, err := w.pushRow(ctx, r, address, fixture)
	if err != nil {
		return nil, err
	}
	const reference = "git http-backend, nginx, fcgiwrap"
	push.reference = reference
	return []row{
		{name: "remote-clone-full", work: "git clone, full history", reference: reference, goal: 0.95, figure: perOperation,
			ours: w.clones(r.remote(), 1), theirs: w.clones(theirs, 1)},
		{name: "remote-clone-depth1", work: "git clone, depth 1", reference: reference, goal: 0.95, figure: perOperation,
			ours: w.clones(r.remote(), 31, "--depth=1"), theirs: w.clones(theirs, 31, "--depth=1")},
		{name: "remote-fetch-depth1", work: "the same fetch on the wire, no git client", reference: reference, figure: perOperation,
			ours:   w.fetches(fixture, &gitPeer{w.connect(r.server.address), "/" + r.name + ".git", r.basic()}),
			theirs: w.fetches(fixture, &gitPeer{w.connect(address), "/" + fixtureName, ""})},
		push,
	}, nil
}

// A gitPeer is a repository that answers git's smart HTTP.
type gitPeer struct {
	conn          *conn
	path          string
	authorization string
}

// fetches asks for the whole of one branch's tip, another branch in each repetition.
func (w *workshop) fetches(fixture string, p *gitPeer) side {
	return func(ctx context.Context, rep int) (float64, error) {
		tip, err := git(ctx, fixture, nil, "rev-parse", fmt.Sprintf("c/%d", 1+rep%(historyBranches/2)))
		if err != nil {
			return 0, err
		}
		var body []byte
		for _, line := range []string{"command=fetch\n", "agent=bench/1\n", "object-format=sha1\n"} {
			body = append(body, pktLine(line)...)
		}
		body = append(body, "0001"...)
		for _, line := range []string{"ofs-delta\n", "no-progress\n", "deepen 1\n", "want " + tip + "\n", "done\n"} {
			body = append(body, pktLine(line)...)
		}
		body = append(body, "0000"...)
		request := message("POST", p.path+"/git-upload-pack", p.authorization, "application/x-git-upload-pack-request", body, "Git-Protocol: version=2")
		return timed(1, func(int) error {
			n, err := p.conn.skim(request, http.StatusOK)
			if err == nil && n < 1<<20 {
				err = fmt.Errorf("fetch answered with %d bytes", n)
			}
			return err
		})
	}
}

// basic is the Authorization header that git sends for remote.
func (r *repo) basic() string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("t:"+r.token))
}

// clones clones one branch in each repetition, from first on, so that no answer was
// given before.
func (w *workshop) clones(remote string, first int, options ...string) side {
	return func(ctx context.Context, rep int) (float64, error) {
		to := filepath.Join(w.scratch, "clone")
		defer os.RemoveAll(to)
		branch := fmt.Sprintf("c/%d", first+rep%(historyBranches/2))
		args := append([]string{"clone", "-q", "--single-branch", "--branch", branch}, options...)
		return timed(1, func(int) error {
			_, err := git(ctx, "", nil, append(args, remote, to)...)
			return err
		})
	}
}

// pushRow measures the smallest push: one POST with a pack of three objects, from
// a client that costs next to nothing.
func (w *workshop) pushRow(ctx context.Context, r *repo, address, fixture string) (row, error) {
	tree, err := rootTree(ctx, fixture)
	if err != nil {
		return row{}, err
	}
	head, err := git(ctx, fixture, nil, "rev-parse", "main")
	if err != nil {
		return row{}, err
	}
	a := &pusher{gitPeer: gitPeer{w.connect(r.server.address), "/" + r.name + ".git", r.basic()}, tree: tree, tip: zeroID, parent: head}
	b := &pusher{gitPeer: gitPeer{w.connect(address), "/" + fixtureName, ""}, tree: tree, tip: zeroID, parent: head}
	side := func(p *pusher) side {
		return func(ctx context.Context, _ int) (float64, error) {
			return w.rate(ctx, 1, func(int) error { return p.push() })
		}
	}
	return row{name: "remote-push", work: "push of one small commit on the wire, 1 client", goal: 5, figure: perSecond, ours: side(a), theirs: side(b)}, nil
}

// A pusher moves one branch forward, commit by commit.
type pusher struct {
	gitPeer
	tree        []byte // the root of the fixture; a file is added to it
	tip, parent string
}

var pushes atomic.Uint64

func (p *pusher) push() error {
	commit, pack := p.step(pushes.Add(1))
	body := pktLine(fmt.Sprintf("%s %s refs/heads/wire\x00report-status agent=bench/1", p.tip, commit))
	body = append(append(body, "0000"...), pack...)
	request := message("POST", p.path+"/git-receive-pack", p.authorization, "application/x-git-receive-pack-request", body)
	answer, err := p.conn.do(request, http.StatusOK)
	if err != nil {
		return err
	}
	if !bytes.Contains(answer, []byte("ok refs/heads/wire")) {
		return fmt.Errorf("push was refused: %.300q", answer)
	}
	p.tip, p.parent = commit, commit
	return nil
}

// step makes a commit that adds one file of 1 KiB to the fixture's tree; its name
// sorts after all of them.
func (p *pusher) step(seed uint64) (oid string, pack []byte) {
	blob := states(seed, stateBytes)
	blobID := objectID("blob", blob)
	tree := append(append(bytes.Clone(p.tree), "100644 zzz-state.json\x00"...), blobID[:]...)
	treeID := objectID("tree", tree)
	who := fmt.Sprintf("bench <bench@example.invalid> %d +0000", time.Now().Unix())
	commit := fmt.Appendf(nil, "tree %x\nparent %s\nauthor %s\ncommitter %s\n\nstep\n", treeID, p.parent, who, who)
	commitID := objectID("commit", commit)
	return hex.EncodeToString(commitID[:]), packOf(
		packObject{1, commit}, packObject{2, tree}, packObject{3, blob})
}

func objectID(kind string, data []byte) (id [20]byte) {
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", kind, len(data))
	h.Write(data)
	h.Sum(id[:0])
	return id
}

func pktLine(text string) []byte { return fmt.Appendf(nil, "%04x%s", len(text)+4, text) }

type packObject struct {
	kind byte // git's number
	data []byte
}

var packing = zlib.NewWriter(nil)

// packOf is a pack of whole objects. Only one client packs at a time.
func packOf(objects ...packObject) []byte {
	var b bytes.Buffer
	b.WriteString("PACK")
	b.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 2), uint32(len(objects))))
	for _, o := range objects {
		size := len(o.data)
		c := o.kind<<4 | byte(size&15)
		for size >>= 4; size > 0; size >>= 7 {
			b.WriteByte(c | 0x80)
			c = byte(size & 0x7f)
		}
		b.WriteByte(c)
		packing.Reset(&b)
		packing.Write(o.data) // a bytes.Buffer takes everything
		packing.Close()
	}
	sum := sha1.Sum(b.Bytes())
	b.Write(sum[:])
	return b.Bytes()
}
