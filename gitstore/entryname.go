package gitstore

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxPath is the longest path of a file, in bytes.
const maxPath = 4096

// checkPath holds a path to git's rules for the index (verify_path): no empty
// segments, no . or .., nothing that some file system takes for .git. Backslashes,
// colons and Windows' device names are plain bytes, as for git on Linux.
func checkPath(path string) error {
	if path == "" || len(path) > maxPath {
		return fmt.Errorf("%w: %d bytes, 1 to %d allowed", ErrBadPath, len(path), maxPath)
	}
	for seg := range strings.SplitSeq(path, "/") {
		if err := checkEntryName(seg); err != nil {
			return fmt.Errorf("%w: %q: %w", ErrBadPath, path, err)
		}
	}
	return nil
}

// entryNameError says why a name may not stand in a tree.
type entryNameError string

func (e entryNameError) Error() string { return string(e) }

// checkEntryName refuses names that no tree may hold, whatever the road they come
// by (OQ-S4). It is nil or an entryNameError.
func checkEntryName(name string) error {
	switch {
	case name == "":
		return entryNameError("empty name")
	case name == "." || name == "..":
		return entryNameError("name is . or ..")
	case strings.ContainsAny(name, "/\x00"):
		return entryNameError("name holds a slash or NUL")
	case isDotGit(name):
		return entryNameError("name stands for .git")
	}
	return nil
}

// isDotGit reports whether some file system takes name for .git: any case, with
// code points that HFS+ ignores, or in one of NTFS's spellings. The rules are
// those of git's fsck (is_hfs_dotgit, is_ntfs_dotgit).
func isDotGit(name string) bool {
	return strings.EqualFold(name, ".git") || isHFSDotGit(name) || isNTFSDotGit(name)
}

// isHFSDotGit drops what HFS+ ignores. As for git, a name ends where it is no UTF-8
// any more, for which git also takes U+FFFE and U+FFFF.
// isHFSDotGit reads name as HFS+ does: some code points are dropped, and what git
// takes for no character of UTF-8 ends it.
func isHFSDotGit(name string) bool {
	var seen strings.Builder
	for len(name) > 0 && seen.Len() <= len(".git") {
		r, n := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError && n == 1 || r == 0xfffe || r == 0xffff {
			break
		}
		if !hfsIgnores(r) {
			seen.WriteRune(r)
		}
		name = name[n:]
	}
	return strings.EqualFold(seen.String(), ".git")
}

// hfsIgnores tells the code points that HFS+ drops from names.
func hfsIgnores(r rune) bool {
	return r >= 0x200c && r <= 0x200f || r >= 0x202a && r <= 0x202e ||
		r >= 0x206a && r <= 0x206f || r == 0xfeff
}

// isNTFSDotGit looks at each part between backslashes up to a colon, which begins
// the name of a stream: trailing blanks and dots do not count, and git~1 is the
// short name of .git.
func isNTFSDotGit(name string) bool {
	for part := range strings.SplitSeq(name, `\`) {
		head, _, _ := strings.Cut(part, ":")
		head = strings.TrimRight(head, " .")
		if strings.EqualFold(head, ".git") || strings.EqualFold(head, "git~1") {
			return true
		}
	}
	return false
}
