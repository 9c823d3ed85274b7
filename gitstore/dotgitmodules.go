package gitstore

import (
	"strings"
)

// isDotGitmodules reports whether some file system takes name for .gitmodules. git
// reads that file by its name, so a link there would have it read another one.
func isDotGitmodules(name string) bool {
	return isHFSName(name, ".gitmodules") || isNTFSName(name, ".gitmodules", "gitmod", "gi7eba")
}

// isHFSName compares as HFS+ does: without the code points it ignores, in any case.
// Bytes that are no UTF-8 end the name.
func isHFSName(name, want string) bool {
	if i := strings.IndexFunc(strings.ToValidUTF8(name, "\x00"), func(r rune) bool { return r == 0 }); i >= 0 {
		name = name[:i]
	}
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
