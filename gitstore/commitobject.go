package gitstore

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// maxCommitTime is the last second whose year has four digits in every zone.
// Later times cannot be written as RFC 3339 and are read as the epoch, which is
// how git shows a time it cannot represent.
const maxCommitTime = 253402214400

// commitHeader is what walking history needs of a commit.
type commitHeader struct {
	tree    refpolicy.OID
	parents []refpolicy.OID
	date    uint64 // committer date in seconds as git sorts by it; 0 if it cannot be read
}

// parseCommit reads a commit object:
//
//	commit  = "tree" SP oid LF *( "parent" SP oid LF ) *header LF message
//	header  = name SP value LF *( SP value LF )
//
// Like git it insists on the tree and parent lines alone; identities may be odd
// or missing and give what can be read of them. The message keeps its encoding.
func parseCommit(raw []byte) (CommitInfo, error) {
	head, rest, err := parseCommitHeader(raw)
	if err != nil {
		return CommitInfo{}, err
	}
	c := CommitInfo{Tree: head.tree, Parents: head.parents, Raw: raw}
	c.Author, c.Committer = noSignature(), noSignature()
	var seenAuthor, seenCommitter bool
	for len(rest) > 0 && rest[0] != '\n' {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte("\n"))
		if v, ok := bytes.CutPrefix(line, []byte("author ")); ok && !seenAuthor {
			c.Author, seenAuthor = parseSignature(v), true
		}
		if v, ok := bytes.CutPrefix(line, []byte("committer ")); ok && !seenCommitter {
			c.Committer, seenCommitter = parseSignature(v), true
		}
	}
	if len(rest) > 0 {
		c.Message = string(rest[1:])
	}
	return c, nil
}

// parseCommitHeader reads the tree and parents and the committer date; rest begins after the parents.
func parseCommitHeader(raw []byte) (h commitHeader, rest []byte, err error) {
	rest, ok := cutOIDLine(raw, "tree ", &h.tree)
	if !ok {
		return h, nil, fmt.Errorf("%w: commit without a tree", ErrBadObject)
	}
	for bytes.HasPrefix(rest, []byte("parent ")) {
		var p refpolicy.OID
		if rest, ok = cutOIDLine(rest, "parent ", &p); !ok {
			return h, nil, fmt.Errorf("%w: commit with a malformed parent", ErrBadObject)
		}
		h.parents = append(h.parents, p)
	}
	h.date = committerDate(rest)
	return h, rest, nil
}

// cutOIDLine takes "<prefix><40 hex>LF" off b.
func cutOIDLine(b []byte, prefix string, id *refpolicy.OID) (rest []byte, ok bool) {
	b, ok = bytes.CutPrefix(b, []byte(prefix))
	if !ok || len(b) < 2*len(id)+1 || b[2*len(id)] != '\n' {
		return nil, false
	}
	if _, err := hex.Decode(id[:], b[:2*len(id)]); err != nil {
		return nil, false
	}
	return b[2*len(id)+1:], true
}

// committerDate finds the date in "author ...LF committer ... date zone LF". As in
// git the committer line must directly follow the author line.
func committerDate(b []byte) uint64 {
	if !bytes.HasPrefix(b, []byte("author ")) {
		return 0
	}
	_, b, _ = bytes.Cut(b, []byte("\n"))
	b, ok := bytes.CutPrefix(b, []byte("committer "))
	if !ok {
		return 0
	}
	line, _, _ := bytes.Cut(b, []byte("\n"))
	digits := bytes.TrimLeft(line[bytes.LastIndexByte(line, '>')+1:], " \t\v\f\r")
	date, err := strconv.ParseUint(string(digits[:digitSpan(digits)]), 10, 64)
	if err != nil {
		return 0
	}
	return date
}

// parseSignature reads "name <email> seconds zone". What is missing is empty, a
// missing or absurd time is the epoch, an absurd zone is +0000.
func parseSignature(line []byte) Signature {
	s := noSignature()
	open := bytes.IndexByte(line, '<')
	if open < 0 {
		return s
	}
	shut := bytes.IndexByte(line[open:], '>')
	if shut < 0 {
		return s
	}
	s.Name = strings.TrimSpace(string(line[:open]))
	s.Email = string(line[open+1 : open+shut])
	s.When = parseWhen(line[bytes.LastIndexByte(line, '>')+1:])
	return s
}

func noSignature() Signature { return Signature{When: time.Unix(0, 0).UTC()} }

// parseWhen reads "seconds zone" with blanks around them.
func parseWhen(b []byte) time.Time {
	b = bytes.TrimLeft(b, " \t\v\f\r")
	n := digitSpan(b)
	zone := bytes.TrimLeft(b[n:], " \t\v\f\r")
	if n == 0 || len(zone) == 0 || (zone[0] != '+' && zone[0] != '-') || digitSpan(zone[1:]) == 0 {
		return time.Unix(0, 0).UTC()
	}
	seconds, err := strconv.ParseUint(string(b[:n]), 10, 64)
	if err != nil || seconds > maxCommitTime {
		return time.Unix(0, 0).UTC()
	}
	return time.Unix(int64(seconds), 0).In(parseZone(zone))
}

// parseZone reads a sign and digits: hours and two digits of minutes.
func parseZone(b []byte) *time.Location {
	n, err := strconv.ParseUint(string(b[1:1+digitSpan(b[1:])]), 10, 31)
	minutes := int(n/100*60 + n%100)
	if err != nil || minutes == 0 || minutes >= 24*60 {
		return time.UTC
	}
	if b[0] == '-' {
		minutes = -minutes
	}
	return time.FixedZone("", minutes*60)
}

func digitSpan(b []byte) int {
	n := 0
	for n < len(b) && b[n] >= '0' && b[n] <= '9' {
		n++
	}
	return n
}

// encodeCommit makes a commit object. Identities are cleaned as git cleans them,
// and the message gets exactly one LF at its end. The caller has refused names
// that are empty after cleanIdentity and messages with NUL.
func encodeCommit(tree refpolicy.OID, parents []refpolicy.OID, author, committer Signature, message string) []byte {
	var b bytes.Buffer
	b.Grow(300 + 48*len(parents) + len(message))
	fmt.Fprintf(&b, "tree %s\n", tree)
	for _, p := range parents {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	fmt.Fprintf(&b, "author %s\n", formatSignature(author))
	fmt.Fprintf(&b, "committer %s\n", formatSignature(committer))
	b.WriteByte('\n')
	b.WriteString(strings.TrimRight(message, "\n"))
	b.WriteByte('\n')
	return b.Bytes()
}

// formatSignature is the inverse of parseSignature for clean identities. Times
// outside of what parseSignature reads become the epoch.
func formatSignature(s Signature) string {
	seconds := s.When.Unix()
	if seconds < 0 || seconds > maxCommitTime {
		seconds = 0
	}
	_, offset := s.When.Zone()
	sign, minutes := '+', offset/60
	if minutes < 0 {
		sign, minutes = '-', -minutes
	}
	return fmt.Sprintf("%s <%s> %d %c%02d%02d", cleanIdentity(s.Name), cleanIdentity(s.Email), seconds, sign, minutes/60, minutes%60)
}

// cleanIdentity makes a name or an address fit for a commit as git does: crud is
// taken off both ends, and line feeds and angle brackets (and NUL, which git
// never sees) are taken out of the middle.
func cleanIdentity(s string) string {
	for len(s) > 0 && isCrud(s[0]) {
		s = s[1:]
	}
	for len(s) > 0 && isCrud(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	if !strings.ContainsAny(s, "\n<>\x00") {
		return s
	}
	var b strings.Builder
	for i := range len(s) { // bytes: a name need not be UTF-8
		if c := s[i]; c != '\n' && c != '<' && c != '>' && c != 0 {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func isCrud(c byte) bool {
	return c <= ' ' || strings.IndexByte(".,:;<>\"\\'", c) >= 0
}
