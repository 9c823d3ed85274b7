package wire

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// cleanText replaces what could act on a terminal or forge a line: control
// characters (LF and TAB stay if keepLines), the marks that reorder text, and
// bytes that are not UTF-8.
func cleanText(s string, keepLines bool) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			if keepLines {
				return r
			}
			return ' '
		case unicode.IsControl(r), r == utf8.RuneError, unicode.Is(unicode.Bidi_Control, r):
			return '?'
		case r == '\u2028' || r == '\u2029':
			return ' '
		}
		return r
	}, s)
}

// clipText cuts s to at most n bytes and never inside a character.
func clipText(s string, n int) string {
	if len(s) <= n {
		return s
	}
	const mark = "..."
	n = max(n-len(mark), 0)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}
