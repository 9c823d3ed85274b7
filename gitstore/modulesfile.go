package gitstore

import (
	"bytes"
	"net/url"
	"strings"
)

// checkModules refuses a .gitmodules with which a clone could be made to write
// outside of its folder or to run a command, as git's fsck does: names with "..",
// values that would be options, URLs that would be read as another host's. What
// cannot be parsed is harmless: git stops reading there too.
func checkModules(data []byte) error {
	p := configParser{rest: bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))}
	for {
		key, value, ok := p.next()
		if !ok {
			return nil
		}
		if p.section != "submodule" || !p.hasName {
			continue
		}
		if badModuleName(p.name) {
			return badObject(BlobObject, ".gitmodules has a submodule named %s", clipped([]byte(p.name)))
		}
		bad := false
		switch key {
		case "url":
			bad = badModuleURL(value)
		case "path":
			bad = strings.HasPrefix(value, "-")
		case "update":
			bad = strings.HasPrefix(value, "!")
		}
		if bad {
			return badObject(BlobObject, ".gitmodules has %s = %s", key, clipped([]byte(value)))
		}
	}
}

func badModuleName(name string) bool {
	for part := range strings.SplitSeq(strings.ReplaceAll(name, `\`, "/"), "/") {
		if part == ".." {
			return true
		}
	}
	return name == ""
}

func badModuleURL(s string) bool {
	if strings.HasPrefix(s, "-") {
		return true
	}
	relative := strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../")
	if relative || strings.HasPrefix(s, "git://") {
		ups, after := 0, s
		for strings.HasPrefix(after, "../") || strings.HasPrefix(after, "./") {
			if strings.HasPrefix(after, "../") {
				ups++
			}
			_, after, _ = strings.Cut(after, "/")
		}
		return decodesToNewline(s) || ups > 0 && (strings.HasPrefix(after, ":") || strings.HasPrefix(after, "/"))
	}
	for _, scheme := range []string{"http::", "https::", "ftp::", "ftps::"} {
		if after, ok := strings.CutPrefix(s, scheme); ok {
			s = after
			break
		}
	}
	for _, scheme := range []string{"http://", "https://", "ftp://", "ftps://"} {
		if strings.HasPrefix(s, scheme) {
			u, err := url.Parse(s)
			return err != nil || u.Host == "" || decodesToNewline(s)
		}
	}
	return false
}

func decodesToNewline(s string) bool {
	return strings.Contains(s, "\n") || strings.Contains(strings.ToLower(s), "%0a")
}

// configParser reads a file in git's configuration format:
//
//	file    = *( section / entry / comment / blank )
//	section = "[" name [ 1*SP DQUOTE subname DQUOTE ] "]"
//	entry   = key [ "=" value ]
//	value   = text with quotes, \n \t \b \" \\, and "\" LF to go on
type configParser struct {
	rest    []byte
	section string // the section read last, in lower case
	name    string // its subname
	hasName bool
}

// next gives one entry; ok is false at the end and where the syntax breaks.
func (p *configParser) next() (key, value string, ok bool) {
	for {
		p.rest = bytes.TrimLeft(p.rest, " \t\r\n\f\v")
		if len(p.rest) == 0 {
			return "", "", false
		}
		switch c := p.rest[0]; {
		case c == '#' || c == ';':
			_, p.rest, _ = bytes.Cut(p.rest, []byte("\n"))
		case c == '[':
			if !p.header() {
				return "", "", false
			}
		default:
			return p.entry()
		}
	}
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-'
}

// header reads a section's head. A subname may also follow a dot: [section.name].
func (p *configParser) header() bool {
	b := p.rest[1:]
	n := 0
	for n < len(b) && (isNameByte(b[n]) || b[n] == '.') {
		n++
	}
	name := strings.ToLower(string(b[:n]))
	p.section, p.name, p.hasName = strings.Cut(name, ".")
	b = bytes.TrimLeft(b[n:], " \t")
	if len(b) > 0 && b[0] == '"' {
		var sub []byte
		if sub, b = quoted(b[1:]); b == nil {
			return false
		}
		p.name, p.hasName = string(sub), true
	}
	if len(b) == 0 || b[0] != ']' {
		return false
	}
	p.rest = b[1:]
	return true
}

// quoted reads up to the closing quote; a backslash keeps the next byte. rest is nil
// if there is none.
func quoted(b []byte) (text, rest []byte) {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '\n':
			return nil, nil
		case '"':
			return text, b[i+1:]
		case '\\':
			i++
			if i == len(b) || b[i] == '\n' {
				return nil, nil
			}
		}
		text = append(text, b[i])
	}
	return nil, nil
}

func (p *configParser) entry() (key, value string, ok bool) {
	n := 0
	for n < len(p.rest) && isNameByte(p.rest[n]) {
		n++
	}
	if n == 0 {
		return "", "", false
	}
	key = strings.ToLower(string(p.rest[:n]))
	p.rest = bytes.TrimLeft(p.rest[n:], " \t")
	if len(p.rest) == 0 || p.rest[0] == '\n' || p.rest[0] == '\r' {
		return key, "", true
	}
	if p.rest[0] != '=' {
		return "", "", false
	}
	p.rest = p.rest[1:]
	value, ok = p.value()
	return key, value, ok
}

// value reads to the end of the line. Blanks outside of quotes count only between
// what else there is.
func (p *configParser) value() (string, bool) {
	var text, blanks []byte
	inQuotes := false
	for i := 0; i < len(p.rest); i++ {
		c := p.rest[i]
		if c == '\r' && i+1 < len(p.rest) && p.rest[i+1] == '\n' {
			continue
		}
		switch {
		case c == '\n':
			p.rest = p.rest[i+1:]
			return string(text), !inQuotes
		case !inQuotes && (c == ' ' || c == '\t'):
			if len(text) > 0 {
				blanks = append(blanks, c)
			}
			continue
		case !inQuotes && (c == '#' || c == ';'):
			_, p.rest, _ = bytes.Cut(p.rest[i:], []byte("\n"))
			return string(text), true
		}
		text, blanks = append(text, blanks...), nil
		switch c {
		case '"':
			inQuotes = !inQuotes
		case '\\':
			i++
			if i == len(p.rest) {
				return "", false
			}
			at := strings.IndexByte("ntb\"\\\n", p.rest[i])
			if at < 0 {
				return "", false
			}
			if p.rest[i] != '\n' {
				text = append(text, "\n\t\b\"\\"[at])
			}
		default:
			text = append(text, c)
		}
	}
	p.rest = nil
	return string(text), !inQuotes
}
