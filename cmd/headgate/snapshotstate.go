package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate/headgate/httpapi/client"
)

// A saveState is what is remembered on this machine between the saves of one session:
//
//	<name>.memo     what the images were like (see client.Memo)
//	<name>.upload   the upload that was not finished
//	<name>.seal     the data key of its sealed saves, with its envelope
//
// below one folder. Without a folder nothing is remembered.
type saveState struct {
	base   string // folder and name; empty: nothing is remembered
	mark   string // goes into names: what was remembered under one key is nothing under another
	resume string // id of the upload that is under way
}

// openSaveState gives the state of a session of a repo of a server, in dir or where a
// user's programs keep such things.
func openSaveState(dir, server, repo, session string) *saveState {
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return &saveState{} // nothing is remembered
		}
		dir = filepath.Join(cache, "headgate")
	}
	sum := sha256.Sum256([]byte(strings.TrimRight(server, "/") + "\x00" + repo + "\x00" + session))
	return &saveState{base: filepath.Join(dir, hex.EncodeToString(sum[:16]))}
}

func (s *saveState) path(what string) string { return s.base + s.mark + "." + what }

// memo opens the memo; nil where nothing is remembered.
func (s *saveState) memo() (*client.Memo, error) {
	if s.base == "" {
		return nil, nil
	}
	return client.OpenMemo(s.path("memo"))
}

// upload is the id of the session's save that was interrupted, if it can be gone on with.
func (s *saveState) upload(ctx context.Context, api *client.Snapshots, session string, o client.SaveOptions) string {
	if s.base == "" {
		return ""
	}
	text, err := os.ReadFile(s.path("upload"))
	if err != nil {
		return ""
	}
	id := strings.TrimSpace(string(text))
	up, err := api.Upload(ctx, session, id)
	if err != nil || !sameParts(up.Parts, o.Parts) {
		return ""
	}
	return id
}

// sameParts reports whether an upload is one of these parts. What the server has filled
// in where nothing was said is no difference.
func sameParts(told []client.PartSpec, parts []client.SavePart) bool {
	if len(told) != len(parts) {
		return false
	}
	for i, p := range parts {
		t := told[i]
		if p.Name != "" && p.Name != t.Name || p.Kind != "" && p.Kind != t.Kind || p.Layout != "" && p.Layout != t.Layout ||
			p.ChunkBytes != 0 && p.ChunkBytes != t.ChunkBytes || p.Size != t.Size {
			return false
		}
	}
	return true
}

// begun remembers the upload until ended. That it cannot costs only a second sending.
func (s *saveState) begun(id string) {
	s.resume = id
	if s.base != "" && os.MkdirAll(filepath.Dir(s.base), 0o700) == nil {
		_ = os.WriteFile(s.path("upload"), []byte(id+"\n"), 0o600)
	}
}

// ended forgets the upload.
func (s *saveState) ended() {
	if s.base != "" {
		_ = os.Remove(s.path("upload")) // one that is left is asked for next time, and is not there
	}
}

// interrupted says how a save that failed is gone on with.
func (s *saveState) interrupted(err error) error {
	if s.base == "" || s.resume == "" {
		return err
	}
	return fmt.Errorf("%w (what was sent is kept for a while: the same command goes on)", err)
}
