package packs

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
)

// A Type is the type of an object, by git's number in a pack entry.
type Type uint8

// The four types of objects.
const (
	Commit Type = 1
	Tree   Type = 2
	Blob   Type = 3
	Tag    Type = 4
)

// The two forms of entries that are no object by themselves.
const (
	ofsDelta Type = 6
	refDelta Type = 7
)

// Valid reports whether t is a commit, tree, blob or tag.
func (t Type) Valid() bool { return t >= Commit && t <= Tag }

// String gives git's word for the type.
func (t Type) String() string {
	switch t {
	case Commit:
		return "commit"
	case Tree:
		return "tree"
	case Blob:
		return "blob"
	case Tag:
		return "tag"
	}
	return fmt.Sprintf("type-%d", uint8(t))
}

// A Kind says what a pack is for. Kinds are never mixed in a pack, so that a
// fork or a prune can take or leave a pack as a whole.
type Kind string

// The kinds of packs.
const (
	KindHistory   Kind = "history"   // ordinary branches and tags; the zero Kind too
	KindEphemeral Kind = "ephemeral" // ephemeral branches
	KindSnapshot  Kind = "snapshot"  // chunks of memory images
)

// Info is what a ledger records about a pack.
type Info struct {
	Name    string // pack-<40 hex>
	Size    int64  // bytes of the pack file, without its idx
	Objects int
	Kind    Kind // set by the caller; this package only carries it
}

const namePrefix = "pack-"

// newName gives a name that was never used and never will be.
func newName() string { return namePrefix + randomHex() }

func randomHex() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b[:])
}

// CheckName refuses what is not pack-<40 lower-case hex digits>: ErrBadName. A
// name that passes is safe in a path.
func CheckName(name string) error {
	digits, ok := strings.CutPrefix(name, namePrefix)
	if !ok || len(digits) != 40 || strings.Trim(digits, "0123456789abcdef") != "" {
		return fmt.Errorf("%w: %q", ErrBadName, name)
	}
	return nil
}
