package gitstore

import (
	"bytes"
	"errors"
	"strings"

	"github.com/headgate/headgate/refpolicy"
)

// specialFile is a file that git itself reads from whatever it has checked out, so
// that its content can do harm.
type specialFile uint8

const (
	plainFile specialFile = iota
	modulesFile
	attributesFile
)

const (
	// maxSpecial is the largest .gitmodules or .gitattributes that is taken.
	maxSpecial = 1 << 20
	// maxAttributesLine is the longest line of a .gitattributes that git takes.
	maxAttributesLine = 2048
)

// specialOf tells by name, on whatever file system, what a tree's entry is.
func specialOf(name string) specialFile {
	if len(name) < len("gi7eba~1") {
		return plainFile
	}
	switch {
	case isHFSName(name, ".gitmodules"), isNTFSName(name, ".gitmodules", "gitmod", "gi7eba"):
		return modulesFile
	case isHFSName(name, ".gitattributes"), isNTFSName(name, ".gitattributes", "gitatt", "gi7d29"):
		return attributesFile
	}
	return plainFile
}

// isHFSName compares as HFS+ does: without the code points it ignores, in any case.
// Bytes that are no UTF-8 end the name.
func isHFSName(name, want string) bool {
	name, _, _ = strings.Cut(strings.ToValidUTF8(name, "\x00"), "\x00")
	seen := strings.Map(func(r rune) rune {
		if hfsIgnores(r) {
			return -1
		}
		return r
	}, name)
	return len(seen) == len(want) && strings.EqualFold(seen, want)
}

// isNTFSName compares as NTFS does: any case, without blanks and dots at the end and
// without a stream's name, or by one of the short names that NTFS makes of it:
// six letters, "~" and a digit from 1 to 4, or fewer letters of a hash and a number.
func isNTFSName(name, want, short, hashed string) bool {
	name, _, _ = strings.Cut(name, ":")
	name = strings.ToLower(strings.TrimRight(name, " ."))
	if name == want {
		return true
	}
	if len(name) != len("abcdef~1") {
		return false
	}
	stem, number, ok := strings.Cut(name, "~")
	if !ok || number == "" || number[0] < '1' || number[0] > '9' || strings.Trim(number, "0123456789") != "" {
		return false
	}
	return stem == short && number <= "4" || strings.HasPrefix(hashed, stem)
}

// specialSource is where the special files of a push are found.
type specialSource struct {
	pushed func(refpolicy.OID) ([]byte, error) // ErrObjectNotFound: not in the push
	stored func(refpolicy.OID) ([]byte, error)
	// readable reports whether a stored object exists for the caller. It is asked only
	// of one with a fault: what is wrong with another's file is not told.
	readable func(refpolicy.OID) (bool, error)
}

// checkSpecials looks into the special files that trees of a push name. Those that
// do not exist for the caller are left to the proof of reach. It is nil,
// ErrBadObject, or what the source gave.
func checkSpecials(specials map[refpolicy.OID]specialFile, from specialSource) error {
	for oid, kind := range specials {
		data, err := from.pushed(oid)
		own := !errors.Is(err, ErrObjectNotFound)
		if !own {
			data, err = from.stored(oid)
		}
		switch {
		case errors.Is(err, ErrObjectNotFound):
			continue
		case errors.Is(err, ErrTooLarge) || err == nil && len(data) > maxSpecial:
			err = badObject(BlobObject, "%s is a .gitmodules or .gitattributes of over %d bytes", oid, maxSpecial)
		case err == nil:
			err = checkSpecialContent(kind, data)
		}
		if errors.Is(err, ErrBadObject) && !own {
			ok, rerr := from.readable(oid)
			if rerr != nil {
				return rerr
			}
			if !ok {
				continue
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkSpecialPath refuses what a push would be refused for: a special name on a
// path that is no regular file. It is nil or ErrBadObject.
func checkSpecialPath(path string, mode Mode) error {
	for {
		name, rest, more := strings.Cut(path, "/")
		as := mode
		if more {
			as = ModeTree
		}
		if err := checkSpecialMode(name, as); err != nil || !more {
			return err
		}
		path = rest
	}
}

// checkSpecialMode lets special names be regular files only. git does not follow a
// link in the place of .gitattributes.
func checkSpecialMode(name string, mode Mode) error {
	kind := specialOf(name)
	regular := mode&^0o777 == 0o100000
	if kind == plainFile || regular || kind == attributesFile && mode == ModeSymlink {
		return nil
	}
	return badObject(TreeObject, "entry %s is no regular file", clipped([]byte(name)))
}

// checkSpecialContent looks into the bytes of a special file. It is nil or ErrBadObject.
func checkSpecialContent(kind specialFile, data []byte) error {
	switch kind {
	case modulesFile:
		return checkModules(data)
	case attributesFile:
		return checkAttributes(data)
	}
	return nil
}

func checkAttributes(data []byte) error {
	for len(data) > 0 {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		if len(line) >= maxAttributesLine {
			return badObject(BlobObject, ".gitattributes has a line of over %d bytes", maxAttributesLine)
		}
		data = rest
	}
	return nil
}
