package gitstore

import (
	"io"
	"strings"

	"github.com/headgate/headgate/refpolicy"
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
	Freed    func() // called at most once by a fetch that needs no git process of its own, or none any more, and goes on; may be nil
}

// agent is how headgate calls itself to git clients.
const agent = "headgate/1"

// protocolVersion is the highest version among those a Git-Protocol header names
// and headgate speaks; a server that knows none of them answers in v0.
//
//	header = item *( ":" item )    item = "version=" number / anything
func protocolVersion(header string) int {
	version := 0
	for item := range strings.SplitSeq(header, ":") {
		switch item {
		case "version=1":
			version = max(version, 1)
		case "version=2":
			version = 2
		}
	}
	return version
}

// What a ref that a client wants to change is told when its name is not one that
// the remote takes.
const (
	funnyName    = "funny refname"
	hiddenName   = "deny updating a hidden ref"
	notEphemeral = "the ephemeral remote takes branches and tags only"
)

// stored is the name under which a remote keeps what a client calls shown, or the
// reason why a client may not change it.
func (m Remote) stored(shown string) (name refpolicy.RefName, refusal string) {
	if strings.HasPrefix(shown, refpolicy.NamespacePrefix) {
		return "", hiddenName
	}
	name, err := refpolicy.ParseRefName(shown)
	if err != nil || name.OneLevel() || name == refpolicy.BranchPrefix+"HEAD" || name == refpolicy.TagPrefix+"HEAD" {
		return "", funnyName
	}
	if m == MainRemote {
		return name, ""
	}
	if !name.IsBranch() && !name.IsTag() {
		return "", notEphemeral
	}
	if name, err = refpolicy.FromEphemeral(shown); err != nil {
		return "", funnyName
	}
	return name, ""
}

// prefix is what the remote's stored names begin with before the shown name.
func (m Remote) prefix() string {
	if m == EphemeralRemote {
		return refpolicy.EphemeralPrefix
	}
	return ""
}

// hides reports whether the remote keeps a stored name to itself.
func (m Remote) hides(name refpolicy.RefName) bool { return m == MainRemote && name.Hidden() }
