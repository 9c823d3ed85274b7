package client

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable gives a text that does nothing to a terminal: whatever is not printed as a
// character of its own is escaped as in Go strings, line ends too.
func Printable(s string) string {
	var out strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&out, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			out.WriteRune(r)
		default:
			q := strconv.QuoteRuneToASCII(r)
			out.WriteString(q[1 : len(q)-1])
		}
	}
	return out.String()
}

// printable makes what of an event is shown to people safe to show.
func (e *event) printable() {
	for _, s := range []*string{&e.Org, &e.Repo, &e.Code, &e.Error} {
		*s = Printable(*s)
	}
	for i := range e.Findings {
		f := &e.Findings[i]
		f.Kind, f.Subject, f.Detail = Printable(f.Kind), Printable(f.Subject), Printable(f.Detail)
	}
}
