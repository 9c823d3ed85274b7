package gitstore

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/headgate/headgate/gitstore/wire"
	"github.com/headgate/headgate/refpolicy"
)

// A gitView is a throw-away GIT_DIR for one upload-pack. Its refs are only those
// that git needs by name to answer: annotated tags that may ride along with what
// they point at, and where a fetch wants its history to end.
type gitView struct {
	dir string
}

// notPrefix is where a view keeps the refs of deepen-not, under names of its own:
// git looks a client's word up by several rules, and would meet other refs.
const notPrefix = "refs/deepen-not/"

// wantPrefix is where a view keeps what is wanted when the client deepens relative
// to what it has: git looks only below refs for the client's shallow commits.
const wantPrefix = "refs/wants/"

// viewRefs is the packed-refs file of the view for a request. It gives the names in
// f.depth.DeepenNot those of the view. A word there that means no ref or several is
// a *wire.ProtocolError.
func (r *Repo) viewRefs(ctx context.Context, c Caller, remote Remote, f fetch) ([]byte, error) {
	var packed bytes.Buffer
	packed.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	if f.tags || len(f.depth.DeepenNot) > 0 {
		v, err := r.ledger.Read(ctx, r.space)
		if err != nil {
			return nil, fmt.Errorf("make view: %w", err)
		}
		defer v.Close()
		s := remoteRefs{r: r, v: v, c: c, remote: remote}
		if err := s.packNots(ctx, &packed, f.depth); err != nil {
			return nil, fmt.Errorf("make view: %w", err)
		}
		if f.tags {
			if err := s.packTags(ctx, &packed); err != nil {
				return nil, fmt.Errorf("make view: %w", err)
			}
		}
	}
	if f.depth.DeepenRelative {
		for n, oid := range f.wants {
			packRef(&packed, fmt.Sprintf("%s%06d", wantPrefix, n), oid, refpolicy.ZeroOID)
		}
	}
	return packed.Bytes(), nil
}

// packTags writes the annotated tags the caller may read.
func (s remoteRefs) packTags(ctx context.Context, b *bytes.Buffer) error {
	for ref, err := range s.below(ctx, []string{refpolicy.TagPrefix}) {
		if err != nil {
			return err
		}
		if !ref.Peeled.IsZero() {
			packRef(b, ref.Name, ref.OID, ref.Peeled)
		}
	}
	return nil
}

func (s remoteRefs) packNots(ctx context.Context, b *bytes.Buffer, depth *wire.DepthRequest) error {
	names := make([]string, len(depth.DeepenNot))
	for n, word := range depth.DeepenNot {
		ref, err := s.byWord(ctx, word)
		if err != nil {
			return err
		}
		// Of equal width, so that they stand in order.
		names[n] = fmt.Sprintf("%s%06d", notPrefix, n)
		packRef(b, names[n], ref.OID, ref.Peeled)
	}
	depth.DeepenNot = names
	return nil
}

// byWord finds the one ref that a word means by git's rules for short names.
func (s remoteRefs) byWord(ctx context.Context, word string) (found Ref, err error) {
	n := 0
	if word == "HEAD" {
		head, err := s.head(ctx)
		if err != nil {
			return found, err
		}
		if head != nil && !head.OID.IsZero() {
			found, n = Ref{OID: head.OID}, 1
		}
	}
	for _, before := range []string{"", refpolicy.RefsPrefix, refpolicy.TagPrefix, refpolicy.BranchPrefix} {
		name, err := refpolicy.ParseRefName(s.remote.prefix() + before + word)
		if err != nil || s.remote.hides(name) {
			continue
		}
		ref, ok, err := s.get(ctx, name)
		if err != nil {
			return found, err
		}
		if ok {
			found, n = ref, n+1
		}
	}
	if n != 1 {
		return found, &wire.ProtocolError{Text: "upload-pack: ambiguous deepen-not: " + word}
	}
	return found, nil
}

func packRef(b *bytes.Buffer, name string, oid, peeled refpolicy.OID) {
	fmt.Fprintf(b, "%s %s\n", oid, name)
	if !peeled.IsZero() {
		fmt.Fprintf(b, "^%s\n", peeled)
	}
}

// writeView makes the folder.
func (s *Store) writeView(packedRefs []byte) (*gitView, error) {
	dir, err := os.MkdirTemp(s.scratch.path, "view-")
	if err != nil {
		return nil, fmt.Errorf("make view: %w", err)
	}
	view := &gitView{dir}
	err = os.Mkdir(filepath.Join(dir, "refs"), 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "HEAD"), []byte("ref: refs/heads/none\n"), 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "packed-refs"), packedRefs, 0o644)
	}
	if err != nil {
		view.remove()
		return nil, fmt.Errorf("make view: %w", err)
	}
	return view, nil
}

// remove ends the view. What cannot be removed goes with the scratch folder.
func (v *gitView) remove() { os.RemoveAll(v.dir) }
