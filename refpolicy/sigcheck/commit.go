package sigcheck

import (
	"bytes"
	"strconv"
	"time"
)

var (
	signatureHeader = []byte("gpgsig")
	committerHeader = []byte("committer ")
)

// SplitSignature takes a raw commit apart as git does: signature is the text of
// its gpgsig headers, continuation lines without their leading blank; payload is
// what was signed, the commit without any header whose name begins with gpgsig
// (such as gpgsig-sha256, which is no signature of this content). Without a gpgsig
// header it gives nil, nil and false. raw is not changed and not kept.
func SplitSignature(raw []byte) (payload, signature []byte, signed bool) {
	var ours, foreign bool // what a line that begins with a blank continues
	for rest := raw; len(rest) > 0; {
		line := rest[:lineLength(rest)]
		text, found := signatureText(line, ours)
		switch {
		case found:
			signature = append(signature, text...)
			foreign = false
		case bytes.HasPrefix(line, signatureHeader):
			foreign = true
		case foreign && line[0] != ' ':
			foreign = false
		}
		ours, signed = found, signed || found
		if line[0] == '\n' { // the message: nothing in it is a header
			line = rest
		}
		if !found && !foreign {
			payload = append(payload, line...)
		}
		rest = rest[len(line):]
	}
	if !signed {
		return nil, nil, false
	}
	return payload, signature, true
}

// lineLength counts the line's end too.
func lineLength(b []byte) int {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return i + 1
	}
	return len(b)
}

// signatureText is what line adds to the signature, if it is part of one.
func signatureText(line []byte, inSignature bool) ([]byte, bool) {
	if inSignature && line[0] == ' ' {
		return line[1:], true
	}
	if text, ok := bytes.CutPrefix(line, signatureHeader); ok && len(text) > 0 && text[0] == ' ' {
		return text[1:], true
	}
	return nil, false
}

// committedAt is the committer's date. ssh's validity times are compared with it,
// as git does; the signature covers it.
func committedAt(payload []byte) (time.Time, bool) {
	for rest := payload; len(rest) > 0 && rest[0] != '\n'; {
		line := rest[:lineLength(rest)]
		rest = rest[len(line):]
		ident, ok := bytes.CutPrefix(line, committerHeader)
		if !ok {
			continue
		}
		fields := bytes.Fields(ident[bytes.LastIndexByte(ident, '>')+1:])
		if len(fields) != 2 {
			return time.Time{}, false
		}
		// 12 digits reach past the year 30000; more is no date.
		seconds, err := strconv.ParseUint(string(fields[0]), 10, 63)
		if err != nil || len(fields[0]) > 12 {
			return time.Time{}, false
		}
		return time.Unix(int64(seconds), 0), true
	}
	return time.Time{}, false
}
