package tokens

import (
	"encoding/json"
	"strconv"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// A claimWriter appends JSON. The first error stays.
type claimWriter struct {
	b   []byte
	err error
}

func (w *claimWriter) text(s string) *claimWriter { w.b = append(w.b, s...); return w }

func (w *claimWriter) uint(n uint64) { w.b = strconv.AppendUint(w.b, n, 10) }

func (w *claimWriter) time(t time.Time) { w.b = strconv.AppendInt(w.b, t.Unix(), 10) }

// string writes what is plain as it is; the rest is for encoding/json.
func (w *claimWriter) string(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			w.b = append(w.b, quoted...)
			w.keep(err)
			return
		}
	}
	w.b = append(w.b, '"')
	w.b = append(w.b, s...)
	w.b = append(w.b, '"')
}

func (w *claimWriter) scopes(set Scopes) {
	w.b = append(w.b, '[')
	for i, s := range allScopes {
		if set&(1<<i) == 0 {
			continue
		}
		if w.b[len(w.b)-1] != '[' {
			w.b = append(w.b, ',')
		}
		w.string(string(s))
	}
	w.b = append(w.b, ']')
}

// written writes the rule [pattern, [op, ...]] of a pattern as somebody wrote it. One
// that is none is an error here, for a token that has one is refused whole.
func (w *claimWriter) written(pattern string, ops ...refpolicy.Op) {
	p, err := refpolicy.ParsePattern(pattern)
	w.keep(err)
	w.rule(p, ops...)
}

func (w *claimWriter) rule(pattern refpolicy.Pattern, ops ...refpolicy.Op) {
	w.b = append(w.b, '[')
	w.string(string(pattern))
	w.b = append(w.b, ',', '[')
	for i, op := range ops {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.string(string(op))
	}
	w.b = append(w.b, ']', ']')
}

// within writes the claim of that name, if there is anything to say.
func (w *claimWriter) within(policies [][]refpolicy.Rule) {
	before := `,"within":[`
	for _, rules := range policies {
		if len(rules) == 0 {
			continue
		}
		w.text(before).rules(rules)
		before = ","
	}
	if before == "," {
		w.b = append(w.b, ']')
	}
}

func (w *claimWriter) rules(rules []refpolicy.Rule) {
	w.b = append(w.b, '[')
	for i, r := range rules {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.written(r.Pattern, r.Ops...)
	}
	w.b = append(w.b, ']')
}

func (w *claimWriter) keep(err error) {
	if w.err == nil {
		w.err = err
	}
}
