package gitstore

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/headgate/headgate/refpolicy"
)

// errDiffOutput: git printed something that is not a diff as this file knows it.
var errDiffOutput = errors.New("unexpected output of git diff-tree")

// diffParser reads what git diff-tree --raw -p -z prints:
//
//	output  = *entry [ NUL *section ]
//	entry   = ":" mode SP mode SP oid SP oid SP state NUL path NUL [ path NUL ]
//	section = "diff --git" SP old SP new LF *header-line [ body ]
//
// An entry has no section if only whitespace differs and that is ignored, and two
// if it changes its type. Paths in sections may be quoted, so the line that must
// open each entry's section is made from the entry and compared.
type diffParser struct {
	keepAll bool  // keep the patch of every file, or fail with ErrTooLarge
	perFile int64 // else: withhold patches longer than this,
	total   int64 // and those that make the kept ones longer than this

	entries []diffEntry
	at      int // the entry whose section is being read
	kept    int64
	long    bool // the last fragment read ended within a line
}

type diffEntry struct {
	path, oldPath        string
	state                string
	old, new             diffSide
	printed              bool // it had a section
	withheld             bool
	raw                  []byte
	additions, deletions int
}

// diffSide is what an entry is before or after; nothing has mode 0.
type diffSide struct {
	mode Mode
	oid  refpolicy.OID
}

func (p *diffParser) parse(in *bufio.Reader) error {
	if err := p.parseEntries(in); err != nil {
		return fmt.Errorf("read diff entries: %w", err)
	}
	p.at = -1
	s := sectionReader{}
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			if err := p.fragment(&s, line); err != nil {
				return fmt.Errorf("read patch: %w", err)
			}
			p.long = line[len(line)-1] != '\n'
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("read patch: %w", err)
		}
	}
}

// parseEntries reads the raw part and the NUL after it.
func (p *diffParser) parseEntries(in *bufio.Reader) error {
	for {
		c, err := in.ReadByte()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case c == 0:
			return nil
		case c != ':':
			return fmt.Errorf("%w: byte %q", errDiffOutput, c)
		}
		e, err := parseRawEntry(in)
		if err != nil {
			return err
		}
		p.entries = append(p.entries, e)
	}
}

func parseRawEntry(in *bufio.Reader) (e diffEntry, err error) {
	field := func() string {
		b, readErr := in.ReadBytes(0)
		if readErr != nil && err == nil {
			err = fmt.Errorf("%w: %w", errDiffOutput, readErr)
		}
		return string(bytes.TrimSuffix(b, []byte{0}))
	}
	meta := bytes.Split([]byte(field()), []byte(" "))
	e.path = field()
	if err != nil || len(meta) != 5 || len(meta[4]) == 0 {
		return e, errors.Join(err, fmt.Errorf("%w: entry %q", errDiffOutput, meta))
	}
	e.state = string(meta[4])
	if e.state[0] == 'R' || e.state[0] == 'C' {
		e.oldPath, e.path = e.path, field()
	}
	var oldErr, newErr error
	e.old, oldErr = parseSide(meta[0], meta[2])
	e.new, newErr = parseSide(meta[1], meta[3])
	return e, errors.Join(err, oldErr, newErr)
}

func parseSide(mode, hex []byte) (s diffSide, err error) {
	m, modeErr := strconv.ParseUint(string(mode), 8, 32)
	s.mode = Mode(m)
	s.oid, err = refpolicy.ParseOID(string(hex))
	if err = errors.Join(modeErr, err); err != nil {
		err = fmt.Errorf("%w: %w", errDiffOutput, err)
	}
	return s, err
}

// sectionReader knows where in a section the next line stands.
type sectionReader struct {
	old, new int  // lines of the hunk still to come, from each side
	hunks    bool // a hunk was read: header lines are over
	binary   bool // in a binary patch
}

// fragment takes a line, or the first or a further piece of one that is too long
// to hold.
func (p *diffParser) fragment(s *sectionReader, b []byte) error {
	if p.long {
		return p.keep(b)
	}
	if s.old > 0 || s.new > 0 {
		if err := p.hunkLine(s, b[0]); err != nil {
			return err
		}
		return p.keep(b)
	}
	switch {
	case bytes.HasPrefix(b, []byte("diff --git ")):
		*s = sectionReader{}
		if err := p.open(b); err != nil {
			return err
		}
	case p.at < 0:
		return fmt.Errorf("%w: %.60q before a section", errDiffOutput, b)
	case bytes.HasPrefix(b, []byte("@@ -")) && !s.binary:
		if err := s.openHunk(b); err != nil {
			return err
		}
	case b[0] == '\\' && s.hunks, s.binary:
	case s.hunks:
		return fmt.Errorf("%w: %.60q after a hunk", errDiffOutput, b)
	case bytes.HasPrefix(b, []byte("GIT binary patch")):
		s.binary = true
	case bytes.HasPrefix(b, []byte("Binary files ")):
		p.entries[p.at].withhold(&p.kept)
	}
	return p.keep(b)
}

// open finds the entry whose section begins with line.
func (p *diffParser) open(line []byte) error {
	if p.at >= 0 && p.entries[p.at].state[0] == 'T' && p.entries[p.at].opens(line) {
		return nil // the second half of a type change
	}
	for p.at++; p.at < len(p.entries); p.at++ {
		e := &p.entries[p.at]
		if e.opens(line) {
			e.printed = true
			return nil
		}
	}
	return fmt.Errorf("%w: no entry for %.200q", errDiffOutput, line)
}

// openHunk reads "@@ -start[,lines] +start[,lines] @@".
func (s *sectionReader) openHunk(b []byte) error {
	fields := bytes.SplitN(b, []byte(" "), 4)
	if len(fields) < 4 || len(fields[2]) < 2 || fields[2][0] != '+' || !bytes.HasPrefix(fields[3], []byte("@@")) {
		return fmt.Errorf("%w: hunk header %.60q", errDiffOutput, b)
	}
	var err error
	if s.old, err = hunkLines(fields[1][1:]); err == nil {
		s.new, err = hunkLines(fields[2][1:])
	}
	s.hunks = true
	return err
}

// hunkLines reads "start[,lines]"; one line is the default.
func hunkLines(b []byte) (int, error) {
	_, lines, ok := bytes.Cut(b, []byte(","))
	if !ok {
		return 1, nil
	}
	n, err := strconv.ParseUint(string(lines), 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%w: hunk of %.40q lines", errDiffOutput, lines)
	}
	return int(n), nil
}

func (p *diffParser) hunkLine(s *sectionReader, mark byte) error {
	e := &p.entries[p.at]
	switch mark {
	case ' ':
		s.old--
		s.new--
	case '-':
		s.old--
		e.deletions++
	case '+':
		s.new--
		e.additions++
	case '\\':
	default:
		return fmt.Errorf("%w: hunk line begins with %q", errDiffOutput, mark)
	}
	if s.old < 0 || s.new < 0 {
		return fmt.Errorf("%w: hunk is longer than its header says", errDiffOutput)
	}
	return nil
}

// keep adds b to the patch of the entry that is being read, as far as limits allow.
func (p *diffParser) keep(b []byte) error {
	e := &p.entries[p.at]
	if e.withheld {
		return nil
	}
	over := p.kept+int64(len(b)) > p.total
	if p.keepAll && over {
		return fmt.Errorf("%w: patches of the asked paths are over %d bytes", ErrTooLarge, p.total)
	}
	if over || (!p.keepAll && int64(len(e.raw)+len(b)) > p.perFile) {
		e.withhold(&p.kept)
		return nil
	}
	e.raw = append(e.raw, b...)
	p.kept += int64(len(b))
	return nil
}

// withhold lets go of an entry's patch; its lines are still counted.
func (e *diffEntry) withhold(kept *int64) {
	*kept -= int64(len(e.raw))
	e.withheld, e.raw = true, nil
}

// opens reports whether line, or what could be held of it, begins the entry's section.
func (e *diffEntry) opens(line []byte) bool {
	want := e.sectionLine()
	return bytes.Equal(want, line) || (line[len(line)-1] != '\n' && bytes.HasPrefix(want, line))
}

// sectionLine is the line that git begins the entry's section with.
func (e *diffEntry) sectionLine() []byte {
	old := e.path
	if e.oldPath != "" {
		old = e.oldPath
	}
	b := appendQuoted([]byte("diff --git "), "a/"+old)
	b = appendQuoted(append(b, ' '), "b/"+e.path)
	return append(b, '\n')
}

// appendQuoted writes a path as git does with core.quotePath on: bare if it is
// harmless, else in double quotes with C escapes.
func appendQuoted(b []byte, path string) []byte {
	harmless := true
	for i := range len(path) {
		if c := path[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			harmless = false
		}
	}
	if harmless {
		return append(b, path...)
	}
	const named = "abtnvfr" // from 7 on
	b = append(b, '"')
	for i := range len(path) {
		switch c := path[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c >= 7 && c <= 13:
			b = append(b, '\\', named[c-7])
		case c < ' ' || c >= 0x7f:
			b = append(b, '\\', '0'+c>>6, '0'+c>>3&7, '0'+c&7)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
