package sigcheck

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// parseOptions reads the options of a line of allowed_signers: name or
// name="value", comma-separated; names in any case, each at most once. An option
// that is not known is an error: it may be a restriction.
func parseOptions(s string) (signer, error) {
	var out signer
	seen := map[string]bool{}
	for s != "" {
		name, value, rest, err := cutOption(s)
		if err != nil {
			return out, err
		}
		if seen[name] {
			return out, fmt.Errorf("option %s stands twice", name)
		}
		seen[name] = true
		if err := out.set(name, value); err != nil {
			return out, err
		}
		s = rest
	}
	if !out.after.IsZero() && !out.before.IsZero() && !out.after.Before(out.before) {
		return out, errors.New("valid-before is not after valid-after")
	}
	return out, nil
}

// cutOption takes one option off the front; its name comes in lower case.
func cutOption(s string) (name, value, rest string, err error) {
	end := strings.IndexAny(s, `=,`)
	if end < 0 || s[end] == ',' {
		name, rest, _ = strings.Cut(s, ",")
		return strings.ToLower(name), "", rest, nil
	}
	name, rest = strings.ToLower(s[:end]), s[end+1:]
	if !strings.HasPrefix(rest, `"`) {
		return "", "", "", fmt.Errorf("option %s: the value is not in quotes", name)
	}
	var text strings.Builder
	for i := 1; i < len(rest); i++ {
		switch {
		case rest[i] == '\\' && i+1 < len(rest) && rest[i+1] == '"':
			i++
			text.WriteByte('"')
		case rest[i] != '"':
			text.WriteByte(rest[i])
		default:
			rest = rest[i+1:]
			if rest != "" && rest[0] != ',' {
				return "", "", "", fmt.Errorf("option %s: no comma after the value", name)
			}
			return name, text.String(), strings.TrimPrefix(rest, ","), nil
		}
	}
	return "", "", "", fmt.Errorf("option %s: the quote does not end", name)
}

func (s *signer) set(name, value string) (err error) {
	switch name {
	case "namespaces":
		if s.namespaces = value; value == "" {
			err = errors.New("option namespaces is empty")
		}
	case "valid-after":
		s.after, err = parseTime(value)
	case "valid-before":
		s.before, err = parseTime(value)
	case "cert-authority":
		err = errors.New("cert-authority is not supported: name the signers' own keys")
	default:
		err = fmt.Errorf("no key, and no option is called %q", name)
	}
	return err
}

// parseTime reads YYYYMMDD[HHMM[SS]][Z]. All are UTC: nodes must agree.
func parseTime(s string) (time.Time, error) {
	digits := strings.TrimSuffix(s, "Z")
	layout := map[int]string{8: "20060102", 12: "200601021504", 14: "20060102150405"}[len(digits)]
	t, err := time.ParseInLocation(layout, digits, time.UTC)
	if layout == "" || err != nil {
		return time.Time{}, fmt.Errorf("time %q is not YYYYMMDD[HHMM[SS]][Z]", s)
	}
	return t, nil
}
