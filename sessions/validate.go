package sessions

import (
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of what a caller names.
const (
	maxIDBytes     = 128
	maxHolderBytes = 256
	maxLabels      = 64
	maxLabelKey    = 63
	maxLabelValue  = 255
	maxBranchBytes = 900
	maxCaptureKey  = 16 << 10
	maxDuration    = 100 * 365 * 24 * time.Hour // longer times are cut to it
)

func validID(id string) error {
	if id == "" || len(id) > maxIDBytes || id[0] == '.' || id[0] == '-' || !onlyNameBytes(id, "._-") {
		return invalidf("a session's id is 1 to %d of [A-Za-z0-9._-] and begins with neither '.' nor '-'", maxIDBytes)
	}
	return nil
}

func validHolder(holder string) error {
	if holder == "" || len(holder) > maxHolderBytes || !isText(holder) {
		return invalidf("a holder is 1 to %d bytes of text", maxHolderBytes)
	}
	return nil
}

func validLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return invalidf("%d labels, at most %d", len(labels), maxLabels)
	}
	for key, val := range labels {
		if err := validLabelKey(key); err != nil {
			return err
		}
		if len(val) > maxLabelValue || !isText(val) {
			return invalidf("value of label %s is not at most %d bytes of text", key, maxLabelValue)
		}
	}
	return nil
}

func validLabelKey(key string) error {
	if key == "" || len(key) > maxLabelKey || !onlyNameBytes(key, "._/-") {
		return invalidf("the key of a label is 1 to %d of [A-Za-z0-9._/-]", maxLabelKey)
	}
	return nil
}

// validTime demands that a length of time is not negative, and cuts it.
func validTime(what string, d *time.Duration) error {
	if *d < 0 {
		return invalidf("%s is negative", what)
	}
	*d = min(*d, maxDuration)
	return nil
}

func onlyNameBytes(s, also string) bool {
	for _, c := range []byte(s) {
		if !isNameByte(c, also) {
			return false
		}
	}
	return true
}

func isNameByte(c byte, also string) bool {
	if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' {
		return true
	}
	for _, a := range []byte(also) {
		if c == a {
			return true
		}
	}
	return false
}

// isText reports whether s is UTF-8 without control characters.
func isText(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, c := range s {
		if unicode.IsControl(c) {
			return false
		}
	}
	return true
}
