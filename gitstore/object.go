package gitstore

import "github.com/headgate/headgate/refpolicy"

// ObjectType is a git object type with git's own pack numbers.
type ObjectType uint8

// The types of git objects.
const (
	CommitObject ObjectType = 1
	TreeObject   ObjectType = 2
	BlobObject   ObjectType = 3
	TagObject    ObjectType = 4
)

func (t ObjectType) String() string {
	switch t {
	case CommitObject:
		return "commit"
	case TreeObject:
		return "tree"
	case BlobObject:
		return "blob"
	case TagObject:
		return "tag"
	}
	return "unknown"
}

// A NewObject is a small object on its way into the store, whole in memory.
type NewObject struct {
	OID  refpolicy.OID
	Type ObjectType
	Data []byte
}
