package sessions

import (
	"encoding/binary"
	"math"
	"strings"
	"time"
)

// The keys of a repo's space that are ours, besides those of tokens and forks.
const (
	sessionKeys = "session/"       // session/<id> -> record
	fenceKeys   = "fence/"         // fence/<ref> -> fence; there is one exactly while the session has not ended
	byKeys      = "session-by/"    // session-by/<what>/...<when, newest first><id>: lists
	childKeys   = "session-child/" // session-child/<parent>/<id>: live children
	dueKeys     = "session-due/"   // session-due/<when><id>: when the reaper has to look
	freedKeys   = "session-freed/" // session-freed/<id> -> when its last child ended
	liveKey     = "session-live"   // how many sessions have not ended
	baseKey     = "epoch-base"     // what is added to every epoch of a record
	revokedKeys = "session-revoked/"
	fromKeys    = "session-from/"         // session-from/<snapshot sha>/<id>: live sessions made from it
	startedKeys = "session-from-started/" // session-from-started/<snapshot sha> -> when one was made from it last
	unusedKeys  = "session-from-freed/"   // session-from-freed/<snapshot sha> -> when one of them ended last
)

// markKeys in the server's space name repos that have, or had, sessions.
const markKeys = "sessions/"

func sessionKey(id string) string { return sessionKeys + id }

func fenceKey(ref string) string { return fenceKeys + ref }

func freedKey(id string) string { return freedKeys + id }

func markKey(repoID string) string { return markKeys + repoID }

// childPrefix is where the live children of a session stand.
func childPrefix(parent string) string { return childKeys + parent + "/" }

// fromPrefix is where the live sessions stand that were made from a snapshot.
func fromPrefix(sha string) string { return fromKeys + sha + "/" }

func startedKey(sha string) string { return startedKeys + sha }

func unusedKey(sha string) string { return unusedKeys + sha }

// revokedKey exists once the tokens of a family are revoked: a token and those that
// it was renewed to.
func revokedKey(family string) string { return revokedKeys + family }

// familyOf is the part of a token's id that its renewals share.
func familyOf(jti string) string {
	family, _, _ := strings.Cut(jti, ".")
	return family
}

// dueKey is the place of a look at id, a session's or fork:<group>.
func dueKey(at time.Time, id string) string { return dueKeys + whenBytes(at) + id }

// The lists there are. Each prefix ends so that no other list's begins with it: what
// is joined holds no NUL, and the time after it has a fixed length.
func byAll() string                  { return byKeys + "all/" }
func byState(s State) string         { return byKeys + "state/" + string(s) + "/" }
func byLabel(key, val string) string { return byKeys + "label/" + key + "\x00" + val + "\x00" }
func byHolder(holder string) string  { return byKeys + "holder/" + holder + "\x00" }
func byParent(parent string) string  { return byKeys + "parent/" + parent + "/" }
func place(at time.Time, id string) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(math.MaxInt64-at.UnixMicro()))) + id
}

// whenBytes puts times in byte order, oldest first.
func whenBytes(at time.Time) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(at.UnixMicro())))
}

// parseWhen reads what whenBytes begins with, and gives the rest.
func parseWhen(s string) (at time.Time, rest string, ok bool) {
	if len(s) < 8 {
		return time.Time{}, "", false
	}
	return time.UnixMicro(int64(binary.BigEndian.Uint64([]byte(s[:8])))).UTC(), s[8:], true
}

// groupDueID stands for a group where a look is due.
func groupDueID(group string) string { return groupDuePrefix + group }

const groupDuePrefix = "fork:"
