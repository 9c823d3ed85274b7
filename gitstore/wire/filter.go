package wire

import (
	"net/url"
	"strconv"
	"strings"
)

// checkFilter accepts the filter specs that are offered and refuses the rest:
// sparse filters, because they would read an object by the client's choice, and all that git does not know.
//
//	filter = "blob:none" / "blob:limit=" number ["k" / "m" / "g"] / "tree:" number
//	       / "object:type=" type / "combine:" filter *("+" filter)      ; parts url-encoded
func checkFilter(spec string) error {
	parts, combined := strings.CutPrefix(spec, "combine:")
	if !combined {
		return checkSimpleFilter(spec)
	}
	for part := range strings.SplitSeq(parts, "+") {
		// PathUnescape, because "+" divides the parts and is no space in them.
		plain, err := url.PathUnescape(part)
		if err != nil || strings.HasPrefix(plain, "combine:") {
			return protocolErrorf("invalid filter-spec %s", quote(part))
		}
		if err := checkSimpleFilter(plain); err != nil {
			return err
		}
	}
	return nil
}

func checkSimpleFilter(spec string) error {
	kind, value, _ := strings.Cut(spec, ":")
	limit, isLimit := strings.CutPrefix(value, "limit=")
	ok := false
	switch {
	case kind == "sparse":
		return &UnsupportedError{Feature: "filter " + quote(spec)}
	case spec == "blob:none":
		ok = true
	case kind == "blob" && isLimit:
		ok = isSize(limit)
	case kind == "tree":
		_, err := strconv.ParseUint(value, 10, 32)
		ok = err == nil
	case kind == "object":
		switch value {
		case "type=blob", "type=tree", "type=commit", "type=tag":
			ok = true
		}
	}
	if !ok {
		return protocolErrorf("invalid filter-spec %s", quote(spec))
	}
	return nil
}

func isSize(s string) bool {
	if n := len(s); n > 1 && strings.ContainsRune("kmgKMG", rune(s[n-1])) {
		s = s[:n-1]
	}
	// 33 bits of number and 30 of unit are the most that git can hold.
	_, err := strconv.ParseUint(s, 10, 33)
	return err == nil
}
