package main

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/adler32"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// pushClients push side by side, to a branch each.
const pushClients = 8

// pushRows measures the smallest push beside git http-backend: on the wire from one
// client and from several, and by the git client.
func pushRows(ctx context.Context, w *workshop) ([]row, error) {
	fixture, err := w.fixture(ctx)
	if err != nil {
		return nil, err
	}
	r, err := w.newHistoryRepo(ctx, "pushed", fixture)
	if err != nil {
		return nil, err
	}
	address, err := w.mirrorPlain(ctx, "plain-pushed", fixture)
	if err != nil {
		return nil, err
	}
	tree, err := rootTree(ctx, fixture)
	if err != nil {
		return nil, err
	}
	head, err := git(ctx, fixture, nil, "rev-parse", "main")
	if err != nil {
		return nil, err
	}
	wire := func(address, path, authorization string, clients int) side {
		all := make([]*wirePush, clients)
		for i := range all {
			all[i] = &wirePush{
				gitPeer: gitPeer{w.connect(address), path, authorization},
				branch:  fmt.Sprintf("refs/heads/wire/%d-%d", clients, i), tree: tree, tip: zeroID, parent: head,
			}
		}
		return func(ctx context.Context, _ int) (float64, error) {
			return w.rate(ctx, clients, func(client int) error { return all[client].step() })
		}
	}
	ours := func(clients int) side { return wire(r.server.address, "/"+r.name+".git", r.basic(), clients) }
	theirs := func(clients int) side { return wire(address, "/"+fixtureName, "", clients) }
	client, err := w.newPushClient(ctx, fixture)
	if err != nil {
		return nil, err
	}
	const reference = "git http-backend, nginx, fcgiwrap"
	return []row{
		{name: "push-1", work: "push of one small commit on the wire, 1 client", reference: reference, goal: 10, figure: perSecond, ours: ours(1), theirs: theirs(1)},
		{name: "push-8", work: "the same, 8 clients on 8 branches", reference: reference, goal: 20, figure: perSecond, ours: ours(pushClients), theirs: theirs(pushClients)},
		{name: "push-git", work: "git push of one small commit", reference: reference, goal: 1.3, figure: perOperation,
			ours: client.pushes(r.remote()), theirs: client.pushes("http://" + address + "/" + fixtureName)},
	}, nil
}

// A wirePush moves one branch forward, commit by commit, from a client that costs
// next to nothing: it does not compress.
type wirePush struct {
	gitPeer
	branch      string
	tree        []byte // a file is added to it
	tip, parent string
}

func (p *wirePush) step() error {
	commit, pack := p.next(pushes.Add(1))
	body := pktLine(fmt.Sprintf("%s %s %s\x00report-status agent=bench/1", p.tip, commit, p.branch))
	answer, err := p.conn.do(p.receivePack(append(append(body, "0000"...), pack...)), http.StatusOK)
	if err != nil {
		return err
	}
	if !bytes.Contains(answer, []byte("ok "+p.branch)) {
		return fmt.Errorf("push was refused: %.300q", answer)
	}
	p.tip, p.parent = commit, commit
	return nil
}

// next makes a commit that adds one file of 1 KiB, whose name sorts after all others.
func (p *wirePush) next(seed uint64) (oid string, pack []byte) {
	blob := states(seed, stateBytes)
	blobID := objectID("blob", blob)
	tree := append(append(bytes.Clone(p.tree), "100644 zzz-state.json\x00"...), blobID[:]...)
	treeID := objectID("tree", tree)
	who := fmt.Sprintf("bench <bench@example.invalid> %d +0000", time.Now().Unix())
	commit := fmt.Appendf(nil, "tree %x\nparent %s\nauthor %s\ncommitter %s\n\nstep\n", treeID, p.parent, who, who)
	commitID := objectID("commit", commit)
	return hex.EncodeToString(commitID[:]), plainPack(packObject{1, commit}, packObject{2, tree}, packObject{3, blob})
}

// plainPack is a pack of whole objects that are not compressed; any number of clients
// may make one.
func plainPack(objects ...packObject) []byte {
	var b bytes.Buffer
	b.WriteString("PACK")
	b.Write(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 2), uint32(len(objects))))
	for _, o := range objects {
		b.Write(entryHead(o))
		b.Write(storedForm(o.data))
	}
	sum := sha1.Sum(b.Bytes())
	return append(b.Bytes(), sum[:]...)
}

// storedForm is data as zlib writes it without compressing.
//
//	form  = %x78 %x01 1*block adler32
//	block = final size size-inverted data     ; sizes of two bytes, little-endian
func storedForm(data []byte) []byte {
	sum := adler32.Checksum(data)
	out := append(make([]byte, 0, len(data)+32), 0x78, 0x01)
	for first := true; first || len(data) > 0; first = false {
		n, final := min(len(data), 0xffff), byte(0)
		if n == len(data) {
			final = 1
		}
		out = append(out, final, byte(n), byte(n>>8), ^byte(n), ^byte(n>>8))
		out = append(out, data[:n]...)
		data = data[n:]
	}
	return binary.BigEndian.AppendUint32(out, sum)
}

// entryHead is the kind and size of a pack's entry.
func entryHead(o packObject) (head []byte) {
	size := len(o.data)
	c := o.kind<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		head = append(head, c|0x80)
		c = byte(size & 0x7f)
	}
	return append(head, c)
}

func basicOf(token string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("t:"+token))
}

// A pushClient is a repository from which git pushes one new commit at a time.
type pushClient struct {
	w   *workshop
	dir string
	n   int
}

func (w *workshop) newPushClient(ctx context.Context, fixture string) (*pushClient, error) {
	dir := filepath.Join(w.scratch, "pushing")
	w.onStop(func() { os.RemoveAll(dir) })
	if _, err := git(ctx, "", nil, "clone", "-q", "--bare", "--shared", "--single-branch", "--branch", "main", fixture, dir); err != nil {
		return nil, err
	}
	return &pushClient{w: w, dir: dir}, nil
}

// commit makes a commit of one more file on main's head.
func (c *pushClient) commit(ctx context.Context) (string, error) {
	c.n++
	blob, err := git(ctx, c.dir, bytes.NewReader(states(uint64(c.n), stateBytes)), "hash-object", "-w", "--stdin")
	if err != nil {
		return "", err
	}
	entries, err := git(ctx, c.dir, nil, "ls-tree", "main")
	if err != nil {
		return "", err
	}
	tree, err := git(ctx, c.dir, strings.NewReader(entries+"\n100644 blob "+blob+"\tzzz-state.json\n"), "mktree")
	if err != nil {
		return "", err
	}
	return git(ctx, c.dir, strings.NewReader("step\n"), "commit-tree", tree, "-p", "main")
}

// pushes pushes a new commit to a branch of its own.
func (c *pushClient) pushes(remote string) side {
	return func(ctx context.Context, _ int) (float64, error) {
		commit, err := c.commit(ctx)
		if err != nil {
			return 0, err
		}
		return timed(1, func(int) error {
			_, err := git(ctx, c.dir, nil, "push", "-q", remote, fmt.Sprintf("%s:refs/heads/git/%d", commit, c.n))
			return err
		})
	}
}
