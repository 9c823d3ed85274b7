package gitstore

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// The keys of a repo's space. doc.go draws the whole picture.
const (
	metaKey       = "meta"      // the repo's record
	genKey        = "gc/gen"    // prune generation; exists as long as the repo does, so every write checks it
	prunedKey     = "gc/pruned" // when the last prune began, at which log entry, and how many refs it saw
	leaseKey      = "gc/lease"  // who looks after the repo's packs, and until when
	refKeys       = "ref/"      // ref/<name> -> ref record
	createdKeys   = "created/"  // created/<h|e>/<when>/<name>: branches in order of creation
	tipKeys       = "tip/"      // tip/<oid>/<name>: which refs are at oid
	bornKeys      = "born/"     // born/<oid> -> name of the ref a commit came in by
	joinKeys      = "join/"     // join/<ref>\x00<ref or pin>\x00<...>: who built on what came in by a ref, and where
	cutKeys       = "cut/"      // cut/<ref>: it was rewound or deleted
	linesKey      = "lines"     // exists if join/ has been kept since the repo was made
	hotKeys       = "o/"        // o/<oid, 20 bytes> -> hot object
	packKeys      = "pack/"     // pack/<name> -> pack record
	indexPointer  = "gc/index"  // name of the index in use
	indexKeys     = "index/"    // index/<name> -> index record
	pinKeys       = "pin/"      // pin/<id> -> pin record
	pinnedKeys    = "pinned/"   // pinned/<oid>/<id>: which pins hold an oid
	firstGen      = "1"
	bornPerUpdate = 2_000 // commits of one change that get a born key; more are found by walking
)

func refKey(name refpolicy.RefName) string { return refKeys + string(name) }

func tipPrefix(oid refpolicy.OID) string { return tipKeys + oid.String() + "/" }

func tipKey(oid refpolicy.OID, name refpolicy.RefName) string { return tipPrefix(oid) + string(name) }

func bornKey(oid refpolicy.OID) string { return bornKeys + string(oid[:]) }

func hotKey(oid refpolicy.OID) string { return hotKeys + string(oid[:]) }

func pinKey(id string) string { return pinKeys + id }

func pinnedPrefix(oid refpolicy.OID) string { return pinnedKeys + oid.String() + "/" }

func pinnedKey(oid refpolicy.OID, id string) string { return pinnedPrefix(oid) + id }

func indexKey(name string) string { return indexKeys + name }

func packKey(name string) string { return packKeys + name }

// createdPrefix is where branches of one namespace stand in order of creation.
func createdPrefix(ephemeral bool) string {
	if ephemeral {
		return createdKeys + "e/"
	}
	return createdKeys + "h/"
}

// createdKey is the place of a branch among those of its namespace; ok is false
// for refs that are not branches.
func createdKey(name refpolicy.RefName, at time.Time) (key string, ok bool) {
	switch {
	case strings.HasPrefix(string(name), refpolicy.BranchPrefix):
		return fmt.Sprintf("%s%016x/%s", createdPrefix(false), at.UnixMicro(), name), true
	case strings.HasPrefix(string(name), refpolicy.EphemeralBranchPrefix):
		return fmt.Sprintf("%s%016x/%s", createdPrefix(true), at.UnixMicro(), name), true
	}
	return "", false
}

// The keys of an org's space.
const (
	nameKeys   = "repo/"   // repo/<name> -> repo id
	recentKeys = "recent/" // recent/<newest first>/<id> -> repo record
)

func nameKey(name string) string { return nameKeys + name }

func recentKey(at time.Time, id string) string {
	return fmt.Sprintf("%s%016x/%s", recentKeys, math.MaxInt64-at.UnixMicro(), id)
}

// intentKeys in the server's space name repos whose creation or removal is under way.
const intentKeys = "repo-intent/"
