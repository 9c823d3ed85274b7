package gitstore

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/headgate/headgate/refpolicy"
)

// checkObject holds a pushed object to what git's fsck calls errors; what fsck
// only warns of passes, so that old histories can be imported (OQ-G13). Beyond
// fsck, names in a tree that some file system takes for .git are refused (OQ-S4),
// and modes that are none of git's. It is nil or ErrBadObject. The special files
// that a tree names are put into specials, which may be nil; see checkSpecials.
func checkObject(t ObjectType, data []byte, specials map[refpolicy.OID]specialFile) error {
	switch t {
	case CommitObject:
		return checkCommit(data)
	case TreeObject:
		return checkTree(data, specials)
	case TagObject:
		return checkTag(data)
	}
	return nil
}

func badObject(t ObjectType, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrBadObject, t, fmt.Sprintf(format, args...))
}

// checkHeaders demands that the header has no NUL and ends: with an empty line, or
// with the object.
func checkHeaders(t ObjectType, data []byte) error {
	head, _, ended := bytes.Cut(data, []byte("\n\n"))
	if bytes.IndexByte(head, 0) >= 0 {
		return badObject(t, "NUL in its header")
	}
	if !ended && !bytes.HasSuffix(data, []byte("\n")) {
		return badObject(t, "header does not end")
	}
	return nil
}

// checkCommit: see parseCommit for the grammar. Exactly one author and the
// committer after it, both well formed.
func checkCommit(data []byte) error {
	if err := checkHeaders(CommitObject, data); err != nil {
		return err
	}
	_, rest, err := parseCommitHeader(data)
	if err != nil {
		return err
	}
	rest, ok := bytes.CutPrefix(rest, []byte("author "))
	if !ok {
		return badObject(CommitObject, "no author")
	}
	if rest, err = checkIdentity(CommitObject, rest); err != nil {
		return err
	}
	if bytes.HasPrefix(rest, []byte("author ")) {
		return badObject(CommitObject, "several authors")
	}
	if rest, ok = bytes.CutPrefix(rest, []byte("committer ")); !ok {
		return badObject(CommitObject, "no committer")
	}
	_, err = checkIdentity(CommitObject, rest)
	return err
}

// checkIdentity reads one line and gives what follows it:
//
//	identity = name SP "<" email ">" SP seconds SP zone LF
//	zone     = ( "+" / "-" ) 4DIGIT
//
// The name may be empty, the space before the address may not be missing.
func checkIdentity(t ObjectType, b []byte) (rest []byte, err error) {
	line, rest, ok := bytes.Cut(b, []byte("\n"))
	if !ok {
		return nil, badObject(t, "identity does not end")
	}
	open := bytes.IndexAny(line, "<>")
	if open < 1 || line[open] != '<' || line[open-1] != ' ' {
		return nil, badObject(t, "malformed name %s", clipped(line))
	}
	line = line[open+1:]
	shut := bytes.IndexAny(line, "<>")
	if shut < 0 || line[shut] != '>' {
		return nil, badObject(t, "malformed address %s", clipped(line))
	}
	when, ok := bytes.CutPrefix(line[shut+1:], []byte(" "))
	if !ok {
		return nil, badObject(t, "no space before the date")
	}
	if err := checkDate(string(when)); err != nil {
		return nil, badObject(t, "%v", err)
	}
	return rest, nil
}

// checkDate reads "seconds SP zone"; like git it passes over blanks before them.
func checkDate(s string) error {
	seconds, zone, ok := strings.Cut(strings.TrimLeft(s, " \t"), " ")
	n, err := strconv.ParseUint(seconds, 10, 64)
	switch {
	case !ok || digitSpan([]byte(seconds)) != len(seconds) || seconds == "":
		return fmt.Errorf("malformed date %s", clipped([]byte(s)))
	case seconds[0] == '0' && len(seconds) > 1:
		return fmt.Errorf("date with leading zeros")
	case err != nil || n >= math.MaxInt64:
		return fmt.Errorf("date is out of bounds")
	case len(zone) != 5 || zone[0] != '+' && zone[0] != '-' || digitSpan([]byte(zone[1:])) != 4:
		return fmt.Errorf("malformed time zone %s", clipped([]byte(zone)))
	}
	return nil
}

// checkTag: see parseTag for the grammar. A tagger may be missing, as in git's oldest tags.
func checkTag(data []byte) error {
	if err := checkHeaders(TagObject, data); err != nil {
		return err
	}
	if _, err := parseTag(data); err != nil {
		return err
	}
	rest := data
	for range 3 { // object, type, tag
		_, after, ok := bytes.Cut(rest, []byte("\n"))
		if !ok {
			return badObject(TagObject, "header does not end")
		}
		rest = after
	}
	if tagger, ok := bytes.CutPrefix(rest, []byte("tagger ")); ok {
		_, err := checkIdentity(TagObject, tagger)
		return err
	}
	return nil
}

// checkTree: see parseTree for the grammar. Entries are in git's order, none twice.
func checkTree(data []byte, specials map[refpolicy.OID]specialFile) error {
	entries, err := parseTree(data)
	if err != nil {
		return err
	}
	// Files whose name begins all names since: a folder of the same name comes
	// after "name.x" and so not directly behind the file.
	var files []string
	for i, e := range entries {
		if err := checkEntry(e, specials); err != nil {
			return err
		}
		if i > 0 && compareEntries(entries[i-1], e) >= 0 {
			return badObject(TreeObject, "entry %s is out of order or comes twice", clipped([]byte(e.name)))
		}
		for len(files) > 0 && !strings.HasPrefix(e.name, files[len(files)-1]) {
			files = files[:len(files)-1]
		}
		if len(files) > 0 && files[len(files)-1] == e.name {
			return badObject(TreeObject, "entry %s comes twice", clipped([]byte(e.name)))
		}
		if !e.isTree() {
			files = append(files, e.name)
		}
	}
	return nil
}

func checkEntry(e treeEntry, specials map[refpolicy.OID]specialFile) error {
	if err := checkEntryName(e.name); err != nil {
		return badObject(TreeObject, "entry %s: %v", clipped([]byte(e.name)), err)
	}
	// Old trees hold modes like 100664.
	regular := e.mode&^0o777 == 0o100000
	if !regular && e.mode != ModeTree && e.mode != ModeSubmodule && e.mode != ModeSymlink {
		return badObject(TreeObject, "entry %s has mode %o", clipped([]byte(e.name)), uint32(e.mode))
	}
	if err := checkSpecialMode(e.name, e.mode); err != nil {
		return err
	}
	if kind := specialOf(e.name); kind != plainFile && regular && specials != nil {
		specials[e.oid] = kind
	}
	return nil
}

// clipped quotes at most 60 bytes of what a client sent.
func clipped(b []byte) string {
	const most = 60
	if len(b) > most {
		return strconv.QuoteToASCII(string(b[:most])) + "..."
	}
	return strconv.QuoteToASCII(string(b))
}
