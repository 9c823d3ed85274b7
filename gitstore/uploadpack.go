package gitstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/gitstore/wire"
	"github.com/headgate/headgate/refpolicy"
)

// transferTimeout bounds the git process of one fetch or push. It is long: who
// moves slowly is not to be cut, and who stands still is cut by the connection.
const transferTimeout = 24 * time.Hour

// uploadConfig lets git serve what was found readable before it was started,
// though no ref of its view reaches it.
var uploadConfig = [][2]string{
	{"uploadpack.allowAnySHA1InWant", "true"},
	{"uploadpack.allowFilter", "true"},
	{"pack.threads", "2"}, // a client waits for the deltas
}

// UploadPack answers one POST to git-upload-pack. Before the first byte of Out was
// written an error may become a status; afterwards the stream is cut. What the
// client did wrong is told in an ERR packet and is no error.
func (r *Repo) UploadPack(ctx context.Context, c Caller, q GitRequest) error {
	end, err := r.store.begin()
	if err != nil {
		return err
	}
	defer end()
	if protocolVersion(q.Protocol) == 2 {
		err = r.uploadV2(ctx, c, q)
	} else {
		err = r.uploadV0(ctx, c, q)
	}
	if text, ok := wire.ErrorText(err); ok {
		return wire.WriteError(q.Out, text)
	}
	return err
}

func (r *Repo) uploadV2(ctx context.Context, c Caller, q GitRequest) error {
	req, err := wire.ReadV2Request(q.In, wire.Limits{})
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return endsEarly(err)
	case req.LsRefs != nil:
		return r.lsRefs(ctx, c, q, req.LsRefs)
	}
	share := req.Fetch.EndsInPack()
	if share {
		req = req.Canonical()
	}
	f := req.Fetch
	return r.fetch(ctx, c, q, fetch{
		wants: f.Wants, haves: f.Haves, filterHaves: f.FilterHaves,
		depth: &f.DepthRequest, tags: f.IncludeTag, protocol: "version=2", encode: req.Encode,
		acks: len(f.Haves) > 0 && !f.Done, share: share, small: isSmall(f),
		order: func() *packOrder { return orderOf(f) },
	})
}

// endsEarly makes the client's fault of a request that ends within a message.
func endsEarly(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: request ends within a packet: %w", ErrInvalid, err)
	}
	return err
}

func (r *Repo) uploadV0(ctx context.Context, c Caller, q GitRequest) error {
	req, err := wire.ReadUploadRequest(q.In, wire.Limits{})
	if err != nil || len(req.Wants) == 0 {
		return endsEarly(err)
	}
	share := req.EndsInPack()
	if share {
		req = req.Canonical()
	}
	return r.fetch(ctx, c, q, fetch{
		wants: req.Wants, haves: req.AllHaves(), filterHaves: req.FilterHaves,
		depth: &req.DepthRequest, tags: req.Capabilities.Has("include-tag"), encode: req.Encode,
		share: share,
	})
}

// fetch is a request for objects, the same for all versions of the protocol.
type fetch struct {
	wants, haves []refpolicy.OID
	filterHaves  func(keep func(refpolicy.OID) bool)
	depth        *wire.DepthRequest
	tags         bool // annotated tags come with what they point at
	protocol     string
	encode       func(io.Writer) error
	acks         bool              // the client waits to be told which of its haves are common
	share        bool              // the answer ends in a pack, and the request is in its canonical form
	small        bool              // fetchSmall may answer it
	order        func() *packOrder // what pack-objects alone can answer; nil in old versions of the protocol
}

// An uploadJob is all that git is told to answer a fetch: what it answers follows from
// this and from the objects that it names.
type uploadJob struct {
	protocol   string
	packedRefs []byte     // the refs of its view
	body       []byte     // the request
	order      *packOrder // what of the request pack-objects is told; nil: upload-pack answers
}

// fetch answers a request for objects. A want the caller may not read is answered
// as one that does not exist, in git's words.
func (r *Repo) fetch(ctx context.Context, c Caller, q GitRequest, f fetch) error {
	bad, ok, err := r.firstUnreadable(ctx, c, f.wants)
	if err != nil {
		return fmt.Errorf("check wants: %w", err)
	}
	if !ok {
		return &wire.ProtocolError{Text: "upload-pack: not our ref " + bad.String()}
	}
	if c.Policy.RestrictsReads() || f.share && len(f.haves)+len(f.depth.Shallow) <= sharedHaves {
		left, err := r.dropUnreadable(ctx, c, f)
		if err != nil {
			return fmt.Errorf("check haves: %w", err)
		}
		if f.acks && left == 0 {
			return nothingCommon(q.Out)
		}
	}
	job := uploadJob{protocol: f.protocol}
	if job.packedRefs, err = r.viewRefs(ctx, c, q.Remote, f); err != nil {
		return err
	}
	if f.small {
		if done, err := r.fetchSmall(ctx, c, q, f, job.packedRefs); done || err != nil {
			return err
		}
	}
	var body bytes.Buffer
	if err := f.encode(&body); err != nil {
		return err
	}
	job.body = body.Bytes()
	if f.order != nil {
		job.order = f.order()
	}
	if f.share {
		return r.shareAnswer(ctx, job, q)
	}
	return r.answerFetch(ctx, job, q.Out)
}

// sharedHaves is up to how many haves are looked up only to know which of them exist:
// clients whose haves differ by what the repo does not know ask for the same.
const sharedHaves = 1000

// dropUnreadable takes out what a client says it has and may not read: an ACK of
// it, or a delta against it, would tell that it exists. It returns how many haves
// are left.
func (r *Repo) dropUnreadable(ctx context.Context, c Caller, f fetch) (left int, err error) {
	said := append(f.haves[:len(f.haves):len(f.haves)], f.depth.Shallow...)
	readable, err := r.readableAmong(ctx, c, said)
	if err != nil {
		return 0, err
	}
	f.filterHaves(func(oid refpolicy.OID) bool {
		if readable[oid] {
			left++
		}
		return readable[oid]
	})
	kept := f.depth.Shallow[:0]
	for _, oid := range f.depth.Shallow {
		if readable[oid] {
			kept = append(kept, oid)
		}
	}
	f.depth.Shallow = kept
	return left, nil
}

// nothingCommon is git's answer to haves of which it knows none. git itself, given
// a request without haves, would send the pack that the client does not expect yet.
func nothingCommon(out io.Writer) error {
	w := wire.NewWriter(out)
	for _, line := range []string{"acknowledgments\n", "NAK\n"} {
		if err := w.WriteString(line); err != nil {
			return fmt.Errorf("send acknowledgments: %w", err)
		}
	}
	return w.Flush()
}

// answerFetch lets git answer and passes on what it says as it comes.
func (r *Repo) answerFetch(ctx context.Context, job uploadJob, out io.Writer) error {
	view, err := r.store.writeView(job.packedRefs)
	if err != nil {
		return err
	}
	defer view.remove()
	dir, alternates, release, err := r.gitObjects(ctx)
	if err != nil {
		return err
	}
	defer release()
	cmd := gitcmd.Cmd{ObjectDir: dir, Alternates: alternates, Config: uploadConfig, Timeout: transferTimeout}
	if job.order != nil {
		cmd.GitDir = view.dir
		return r.sendPack(ctx, cmd, job.order, out)
	}
	cmd.Args, cmd.Protocol = []string{"upload-pack", "--strict", "--stateless-rpc", view.dir}, job.protocol
	cmd.Stdin = bytes.NewReader(job.body)
	return r.runUploadPack(ctx, cmd, out)
}

// runUploadPack has git upload-pack answer.
func (r *Repo) runUploadPack(ctx context.Context, cmd gitcmd.Cmd, out io.Writer) error {
	p, err := r.store.git.Start(ctx, cmd)
	if err != nil {
		return err
	}
	lost := copyPack(out, &packPipe{in: p.StdoutPipe()})
	if lost != nil {
		p.Kill() // nobody is there any more to pack for
	}
	if err := p.Wait(); err != nil && lost == nil {
		r.doubtIndex(err)
		return err
	}
	return lost
}

// sendError tells of an error of who is answered; nil stays nil.
func sendError(err error) error {
	if err != nil {
		return fmt.Errorf("send pack: %w", err)
	}
	return nil
}

// copyPack copies until the end of in or until out takes no more, which is its error.
func copyPack(out io.Writer, in io.Reader) error {
	buf := make([]byte, 128<<10)
	for {
		n, err := in.Read(buf)
		if n > 0 {
			if _, err := out.Write(buf[:n]); err != nil {
				return sendError(err)
			}
		}
		if err != nil {
			return nil
		}
	}
}
