package gitstore

import (
	"context"
	"io"
)

// A Remote is one of the views of a repo that git clients talk to.
type Remote uint8

// The remotes of a repo (contract/git.md 3).
const (
	MainRemote Remote = iota
	EphemeralRemote
)

// GitRequest is one smart-HTTP exchange.
type GitRequest struct {
	Remote   Remote
	Protocol string // the Git-Protocol header, "" for v0
	Advice   string // a sentence for sideband 2 of a refused push: what the token may do and how long it lives; may be empty
	In       io.Reader
	Out      io.Writer
}

// AdvertiseUploadPack writes the answer to info/refs?service=git-upload-pack: refs
// in v0 and v1, capabilities in v2.
func (r *Repo) AdvertiseUploadPack(ctx context.Context, c Caller, q GitRequest) error {
	panic("being written")
}

// AdvertiseReceivePack writes the answer to info/refs?service=git-receive-pack.
func (r *Repo) AdvertiseReceivePack(ctx context.Context, c Caller, q GitRequest) error {
	panic("being written")
}

// UploadPack answers one POST to git-upload-pack. Before the first byte of Out was
// written an error may become a status; afterwards the stream is cut.
func (r *Repo) UploadPack(ctx context.Context, c Caller, q GitRequest) error { panic("being written") }

// ReceivePack answers one POST to git-receive-pack. Refusals of single refs are in
// the report and are no error.
func (r *Repo) ReceivePack(ctx context.Context, c Caller, q GitRequest) error { panic("being written") }
