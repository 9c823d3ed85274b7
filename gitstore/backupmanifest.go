package gitstore

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
)

// A folder of backups holds
//
//	FORMAT                                what the folder is
//	MANIFEST                              the newest backup, and what of the folder is its own
//	spaces-<16 hex>/<number>              spaces of the ledger
//	packs/<repo id>/<pack>.pack|.idx      packs, which never change
//	packs/<repo id>/<part>.ndjson.gz      parts of its log, which never change
//
// The manifest is written last, when all it names is durable: what it does not name
// is not there. Its form:
//
//	manifest = "headgate backup 1" LF [store] *(space / pack / log / skipped) sum
//	store    = "store" SP id LF                                  ; whose it is, as a Go string
//	space    = "space" SP file SP size SP sha256 SP name LF      ; name as a Go string
//	pack     = "pack" SP repo SP pack SP size SP sha256 SP size SP sha256 LF     ; pack, idx
//	log      = "log" SP repo SP part SP size SP sha256 LF
//	skipped  = "skipped" SP repo SP name LF                      ; a damaged repo; ORG/NAME as a Go string
//	sum      = "sum" SP sha256 LF                                ; of all lines above
const (
	backupFormat   = "headgate backup 1"
	formatName     = "FORMAT"
	manifestName   = "MANIFEST"
	spacesPrefix   = "spaces-"
	packsFolder    = "packs"
	unfinishedFile = ".part" // what a file's name ends with until it is whole
)

// fileSum is what the manifest says of a file.
type fileSum struct {
	size int64
	sum  [sha256.Size]byte
}

func (f fileSum) String() string { return fmt.Sprintf("%d %x", f.size, f.sum) }

// manifestSpace is a space of a backup with its file.
type manifestSpace struct {
	name ledger.Space
	file string // below the folder
	fileSum
}

// manifestPack is a pack of a backup.
type manifestPack struct {
	repo, name string
	pack, idx  fileSum
}

func (p manifestPack) path(ext string) string {
	return filepath.Join(packsFolder, p.repo, p.name+ext)
}

// manifest is the whole of one backup.
type manifest struct {
	store   string // the store's id; "" if it has none
	spaces  []manifestSpace
	packs   []manifestPack
	logs    []manifestLog
	skipped []manifestSkip
}

// manifestSkip is a repo that could not be read. If its space is in the backup all the
// same, that is as of an earlier one.
type manifestSkip struct {
	repo string // id
	name string // ORG/NAME
}

// repos are the ids of the repos that are in a backup.
func (m *manifest) repos() map[string]bool {
	ids := map[string]bool{}
	for _, s := range m.spaces {
		if id, ok := strings.CutPrefix(string(s.name), repoSpaces); ok {
			ids[id] = true
		}
	}
	return ids
}

// write gives the manifest's text, in one order for one content.
func (m *manifest) write(w io.Writer) error {
	slices.SortFunc(m.spaces, func(a, b manifestSpace) int { return strings.Compare(string(a.name), string(b.name)) })
	slices.SortFunc(m.packs, func(a, b manifestPack) int { return strings.Compare(a.repo+a.name, b.repo+b.name) })
	slices.SortFunc(m.logs, func(a, b manifestLog) int { return strings.Compare(a.repo+a.name, b.repo+b.name) })
	sum := sha256.New()
	out := bufio.NewWriter(w)
	all := io.MultiWriter(out, sum)
	slices.SortFunc(m.skipped, func(a, b manifestSkip) int { return strings.Compare(a.repo, b.repo) })
	fmt.Fprintln(all, backupFormat)
	if m.store != "" {
		fmt.Fprintf(all, "store %q\n", m.store)
	}
	for _, s := range m.spaces {
		fmt.Fprintf(all, "space %s %s %q\n", s.file, s.fileSum, string(s.name))
	}
	for _, p := range m.packs {
		fmt.Fprintf(all, "pack %s %s %s %s\n", p.repo, p.name, p.pack, p.idx)
	}
	for _, l := range m.logs {
		fmt.Fprintf(all, "log %s %s %s\n", l.repo, l.name, l.fileSum)
	}
	for _, s := range m.skipped {
		fmt.Fprintf(all, "skipped %s %q\n", s.repo, s.name)
	}
	fmt.Fprintf(out, "sum %x\n", sum.Sum(nil))
	return out.Flush()
}

// readManifest reads the manifest of a folder; without one it is fs.ErrNotExist.
func readManifest(dir string) (*manifest, error) {
	text, err := readRegular(dir, manifestName)
	if err != nil {
		return nil, err
	}
	m, err := parseManifest(text)
	if err != nil {
		return nil, &BackupError{manifestName, err}
	}
	return m, nil
}

var (
	errCutManifest = errors.New("it is cut, or was changed")
	errBadLine     = errors.New("a line that is not of its form")
)

func parseManifest(text []byte) (*manifest, error) {
	at := bytes.LastIndex(text, []byte("\nsum ")) + 1
	if want := fmt.Sprintf("sum %x\n", sha256.Sum256(text[:at])); at == 0 || string(text[at:]) != want {
		return nil, errCutManifest
	}
	first, rest, _ := strings.Cut(string(text[:at]), "\n")
	if first != backupFormat {
		return nil, fmt.Errorf("%w: it begins with %.40q", errBadLine, first)
	}
	m := &manifest{}
	for line := range strings.SplitSeq(strings.TrimSuffix(rest, "\n"), "\n") {
		if line == "" {
			continue
		}
		if err := m.line(line); err != nil {
			return nil, fmt.Errorf("%w: %.80q", err, line)
		}
	}
	return m, nil
}

var (
	spaceFileForm = regexp.MustCompile(`^spaces-[0-9a-f]{16}/[0-9]{1,12}$`)
	repoIDForm    = regexp.MustCompile(`^repo_[0-9a-f]{32}$`)
)

// checkRepoID refuses what is no repo's id: one that passes is safe in a path.
func checkRepoID(id string) error {
	if !repoIDForm.MatchString(id) {
		return fmt.Errorf("%w: %.60q is no id of a repo", ErrInvalid, id)
	}
	return nil
}

// line reads a line. All that becomes a path is checked here.
func (m *manifest) line(line string) (err error) {
	kind, rest, _ := strings.Cut(line, " ")
	switch kind {
	case "store":
		if m.store != "" {
			return errBadLine
		}
		if m.store, err = strconv.Unquote(rest); err != nil || m.store == "" {
			return errBadLine
		}
	case "skipped":
		repo, name, _ := strings.Cut(rest, " ")
		s := manifestSkip{repo: repo}
		if s.name, err = strconv.Unquote(name); err != nil || checkRepoID(repo) != nil {
			return errBadLine
		}
		m.skipped = append(m.skipped, s)
	case "space":
		f := strings.SplitN(rest, " ", 4)
		if len(f) != 4 || !spaceFileForm.MatchString(f[0]) {
			return errBadLine
		}
		s := manifestSpace{file: f[0]}
		if s.fileSum, err = parseFileSum(f[1], f[2]); err != nil {
			return err
		}
		name, err := strconv.Unquote(f[3])
		if err != nil || ledger.Space(name).Validate() != nil {
			return errBadLine
		}
		s.name = ledger.Space(name)
		m.spaces = append(m.spaces, s)
	case "pack":
		f := strings.Split(rest, " ")
		if len(f) != 6 || checkRepoID(f[0]) != nil || packs.CheckName(f[1]) != nil {
			return errBadLine
		}
		p := manifestPack{repo: f[0], name: f[1]}
		if p.pack, err = parseFileSum(f[2], f[3]); err != nil {
			return err
		}
		if p.idx, err = parseFileSum(f[4], f[5]); err != nil {
			return err
		}
		m.packs = append(m.packs, p)
	case "log":
		return m.logLine(rest)
	default:
		return errBadLine
	}
	return nil
}

func parseFileSum(size, sum string) (f fileSum, err error) {
	f.size, err = strconv.ParseInt(size, 10, 64)
	raw, herr := hex.DecodeString(sum)
	if err != nil || herr != nil || f.size < 0 || len(raw) != len(f.sum) {
		return f, errBadLine
	}
	copy(f.sum[:], raw)
	return f, nil
}

// checkBackupFormat refuses a folder that is no folder of backups.
func checkBackupFormat(dir string) error {
	text, err := readRegular(dir, formatName)
	if errors.Is(err, os.ErrNotExist) {
		return &BackupError{formatName, fmt.Errorf("%s is no folder of backups: %w", dir, err)}
	}
	if err != nil {
		return err
	}
	if string(text) != backupFormat+"\n" {
		return &BackupError{formatName, fmt.Errorf("%.40q where this program knows %q", text, backupFormat)}
	}
	return nil
}
