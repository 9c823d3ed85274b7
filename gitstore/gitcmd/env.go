package gitcmd

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// sealed is the part of the environment that is the same for every process.
var sealed = []string{
	"GIT_CONFIG_NOSYSTEM=1",
	"GIT_CONFIG_GLOBAL=/dev/null",
	"GIT_ATTR_NOSYSTEM=1",
	"GIT_NO_REPLACE_OBJECTS=1",
	"GIT_TERMINAL_PROMPT=0",
	"GIT_OPTIONAL_LOCKS=0",
	"LC_ALL=C",
}

// fixedConfig keeps one git process below 256 MiB of anonymous memory, away
// from any network, and without upkeep of its own. A file over
// core.bigFileThreshold is streamed, never made a delta, and binary to diff.
//
// core.fsync is none because headgate syncs itself what it takes over from a
// process; the files of one that is killed are thrown away.
var fixedConfig = [][2]string{
	{"safe.directory", "*"},
	{"protocol.allow", "never"},
	{"core.hooksPath", "/dev/null"},
	{"core.attributesFile", "/dev/null"},
	{"core.fsync", "none"},
	{"core.packedGitLimit", "128m"},
	{"core.packedGitWindowSize", "16m"},
	{"core.deltaBaseCacheLimit", "32m"},
	{"core.bigFileThreshold", "32m"},
	{"pack.windowMemory", "48m"},
	{"pack.deltaCacheSize", "16m"},
	{"pack.threads", "1"},
	{"pack.writeReverseIndex", "false"},
	{"gc.auto", "0"},
	{"maintenance.auto", "false"},
}

// environ builds the whole environment of one process.
func (r *Runner) environ(c Cmd) []string {
	env := make([]string, 0, len(sealed)+2*(len(fixedConfig)+len(c.Config))+9)
	env = append(env, sealed...)
	env = append(env, "PATH="+r.path, "HOME="+r.opts.Home, "TMPDIR="+r.tmp)
	if c.GitDir != "" {
		env = append(env, "GIT_DIR="+c.GitDir)
	}
	if c.ObjectDir != "" {
		env = append(env, "GIT_OBJECT_DIRECTORY="+c.ObjectDir)
	}
	if len(c.Alternates) > 0 {
		env = append(env, "GIT_ALTERNATE_OBJECT_DIRECTORIES="+quoteAlternates(c.Alternates))
	}
	if c.Protocol != "" {
		env = append(env, "GIT_PROTOCOL="+c.Protocol)
	}
	n := 0
	for _, list := range [][][2]string{fixedConfig, c.Config} {
		for _, kv := range list {
			i := strconv.Itoa(n)
			env = append(env, "GIT_CONFIG_KEY_"+i+"="+kv[0], "GIT_CONFIG_VALUE_"+i+"="+kv[1])
			n++
		}
	}
	return append(env, "GIT_CONFIG_COUNT="+strconv.Itoa(n))
}

// quoteAlternates joins paths as git reads them back. Each is quoted in C
// style: a bare one would be split at a colon and dropped after a leading '#'.
func quoteAlternates(paths []string) string {
	quoted := make([]string, len(paths))
	for i, p := range paths {
		quoted[i] = quoteC(p)
	}
	return strings.Join(quoted, ":")
}

func quoteC(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20 || c == 0x7f:
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// check refuses a Cmd that could mean something else than its caller wanted.
func (c Cmd) check() error {
	if len(c.Args) == 0 || !isCommandName(c.Args[0]) {
		return fmt.Errorf("%w: the first argument is not the name of a git command", ErrBadCmd)
	}
	for _, p := range append([]string{c.GitDir, c.ObjectDir}, c.Alternates...) {
		if p != "" && !filepath.IsAbs(p) {
			return fmt.Errorf("%w: a folder is not an absolute path", ErrBadCmd)
		}
	}
	all := append([]string{c.GitDir, c.ObjectDir, c.Protocol}, c.Args...)
	all = append(all, c.Alternates...)
	for _, kv := range c.Config {
		all = append(all, kv[0], kv[1])
	}
	for _, s := range all {
		if strings.IndexByte(s, 0) >= 0 {
			return fmt.Errorf("%w: NUL in an argument", ErrBadCmd)
		}
	}
	return nil
}

func isCommandName(s string) bool {
	if s == "" || s[0] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && c != '-' && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}
