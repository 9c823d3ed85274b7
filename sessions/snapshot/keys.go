package snapshot

import (
	"encoding/binary"
	"math"
	"time"
)

// The keys of a repo's space that are ours.
const (
	recordKeys   = "snapshot/"          // snapshot/<id> -> record; id: of the commit, or of a save that has none
	ofKeys       = "snapshot-of/"       // snapshot-of/<session>/<when, newest first><id>: all of a session
	keptKeys     = "snapshot-kept/"     // snapshot-kept/<session>/<newest first><sha>: those that have a commit
	launchKeys   = "snapshot-launch/"   // snapshot-launch/<newest first><sha>: those that a session can be made from
	readyKeys    = "snapshot-ready/"    // snapshot-ready/<sha> -> session; there is one exactly while it can be
	childKeys    = "snapshot-child/"    // snapshot-child/<parent sha>/<newest first><sha>
	uploadKeys   = "snapshot-upload/"   // snapshot-upload/<session>/<id>: uploads under way
	dueKeys      = "snapshot-due/"      // snapshot-due/<when><id>: when the reaper has to look
	hotKeys      = "snapshot-hot/"      // snapshot-hot/<sha>/<part> -> numbers of chunks
	standingKeys = "snapshot-standing/" // snapshot-standing/<session> -> standing
	baseKeys     = "snapshot-base/"     // snapshot-base/<name> -> sha
	bytesKey     = "snapshot-bytes"     // what all kept snapshots are charged with
	countKey     = "snapshot-count"     // how many are kept
)

// markKeys in the server's space name repos that have, or had, snapshots.
const markKeys = "snapshots/"

func recordKey(id string) string        { return recordKeys + id }
func readyKey(sha string) string        { return readyKeys + sha }
func standingKey(session string) string { return standingKeys + session }
func baseKey(name string) string        { return baseKeys + name }
func markKey(repoID string) string      { return markKeys + repoID }
func ofPrefix(session string) string    { return ofKeys + session + "/" }
func keptPrefix(session string) string  { return keptKeys + session + "/" }
func childPrefix(sha string) string     { return childKeys + sha + "/" }
func uploadPrefix(session string) string {
	return uploadKeys + session + "/"
}
func hotPrefix(sha string) string { return hotKeys + sha + "/" }

// dueKey is the place of a look at id: a record's, or that of what a session keeps.
func dueKey(at time.Time, id string) string { return dueKeys + whenBytes(at) + id }

// keepDueID stands for a session of whose snapshots some are to go.
func keepDueID(session string) string { return keepDuePrefix + session }

const keepDuePrefix = "keep:"

// place puts times in byte order, newest first.
func place(at time.Time, id string) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(math.MaxInt64-at.UnixMicro()))) + id
}

// whenLength is how many bytes a place begins with before the id.
const whenLength = 8

// whenBytes puts times in byte order, oldest first.
func whenBytes(at time.Time) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(at.UnixMicro())))
}

// parseWhen reads what whenBytes begins with, and gives the rest.
func parseWhen(s string) (at time.Time, rest string, ok bool) {
	if len(s) < whenLength {
		return time.Time{}, "", false
	}
	return time.UnixMicro(int64(binary.BigEndian.Uint64([]byte(s[:whenLength])))).UTC(), s[whenLength:], true
}

// earliest is the earlier of two times of which zero is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func latest(times ...time.Time) (last time.Time) {
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}
