package sigcheck

import (
	"bytes"
	"strings"
	"testing"
)

func TestSplitSignature(t *testing.T) {
	const head, tail = "tree 1\nauthor a\ncommitter c\n", "\nsubject\n"
	for _, tc := range []struct {
		why, raw, payload, signature string
		signed                       bool
	}{
		{"unsigned", head + tail, "", "", false},
		{"empty", "", "", "", false},
		{"one line", head + "gpgsig s\n" + tail, head + tail, "s\n", true},
		{"continued", head + "gpgsig s\n t\n \n u\n" + tail, head + tail, "s\nt\n\nu\n", true},
		{"one blank is taken off, not two", head + "gpgsig s\n  t\n" + tail, head + tail, "s\n t\n", true},
		{"two headers are one signature, as git reads them", head + "gpgsig s\ngpgsig t\n" + tail, head + tail, "s\nt\n", true},
		{"another header between", head + "gpgsig s\nx y\n z\ngpgsig t\n" + tail, head + "x y\n z\n" + tail, "s\nt\n", true},
		{"an empty value", head + "gpgsig \n" + tail, head + tail, "\n", true},
		{"no value is no signature", head + "gpgsig\n" + tail, "", "", false},
		{"sha256 alone is no signature of this content", head + "gpgsig-sha256 s\n t\n" + tail, "", "", false},
		{"sha256 first", head + "gpgsig-sha256 x\n y\ngpgsig s\n t\n" + tail, head + tail, "s\nt\n", true},
		{"sha256 last", head + "gpgsig s\n t\ngpgsig-sha256 x\n y\nz w\n v\n" + tail, head + "z w\n v\n" + tail, "s\nt\n", true},
		{"in the message", head + "\ngpgsig s\n t\n", "", "", false},
		{"header and message", head + "gpgsig s\n\ngpgsig t\n u\n", head + "\ngpgsig t\n u\n", "s\n", true},
		{"cut short", head + "gpgsig s", head, "s", true},
		{"a name that begins alike is dropped too, as git does", head + "gpgsigx y\ngpgsig s\n" + tail, head + tail, "s\n", true},
	} {
		payload, signature, signed := SplitSignature([]byte(tc.raw))
		if string(payload) != tc.payload || string(signature) != tc.signature || signed != tc.signed {
			t.Errorf("%s: SplitSignature(%q) =\n%q, %q, %v, want\n%q, %q, %v",
				tc.why, tc.raw, payload, signature, signed, tc.payload, tc.signature, tc.signed)
		}
		if !signed && (payload != nil || signature != nil) {
			t.Errorf("%s: unsigned, yet payload or signature is not nil", tc.why)
		}
	}
}

func TestCommittedAt(t *testing.T) {
	for _, tc := range []struct {
		payload string
		want    int64 // -1: none
	}{
		{"tree 1\ncommitter C <c@x> 1790000000 +0200\n\nm", 1790000000},
		{"committer C <c@x> 0 +0000\n\n", 0},
		{"committer C <c@x>> <y> 7 +0000\n\n", 7}, // the last bracket counts
		{"committer C <c@x> 5 +0000\ncommitter C <c@x> 6 +0000\n\n", 5},
		{"author C <c@x> 5 +0000\n\n", -1},
		{"committer C <c@x>\n\n", -1},
		{"committer C <c@x> 5\n\n", -1},
		{"committer C <c@x> -5 +0000\n\n", -1},
		{"committer C <c@x> 99999999999999999999 +0000\n\n", -1},
		{"\ncommitter C <c@x> 5 +0000\n", -1}, // in the message
		{"", -1},
	} {
		at, ok := committedAt([]byte(tc.payload))
		if ok != (tc.want >= 0) || ok && at.Unix() != tc.want {
			t.Errorf("committedAt(%q) = %v, %v; want %d", tc.payload, at, ok, tc.want)
		}
	}
}

// slowSplit says the rule again, header by header. A header is a line with the
// lines after it that begin with a blank.
func slowSplit(raw string) (payload, signature string, signed bool) {
	header, message := raw, ""
	if strings.HasPrefix(raw, "\n") {
		header, message = "", raw
	} else if i := strings.Index(raw, "\n\n"); i >= 0 {
		header, message = raw[:i+1], raw[i+1:]
	}
	var headers []string
	for line := range strings.SplitAfterSeq(header, "\n") {
		if strings.HasPrefix(line, " ") && len(headers) > 0 {
			headers[len(headers)-1] += line
		} else if line != "" {
			headers = append(headers, line)
		}
	}
	for _, h := range headers {
		switch {
		case strings.HasPrefix(h, "gpgsig "):
			signed = true
			signature += strings.ReplaceAll(strings.TrimPrefix(h, "gpgsig "), "\n ", "\n")
		case !strings.HasPrefix(h, "gpgsig"):
			payload += h
		}
	}
	if !signed {
		return "", "", false
	}
	return payload + message, signature, true
}

func FuzzSplitSignature(f *testing.F) {
	for _, s := range []string{
		"tree 1\ngpgsig s\n t\n\nm", "gpgsig s", "gpgsig s\n\n t", " x\ngpgsig s\n", "gpgsig-sha256 a\n b\ngpgsig c\n d\n e",
		"\ngpgsig s\n", "gpgsig\n a\ngpgsig b\n", "a\x00b\ngpgsig \x00\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		payload, signature, signed := SplitSignature(raw)
		p, s, ok := slowSplit(string(raw))
		if string(payload) != p || string(signature) != s || signed != ok {
			t.Fatalf("SplitSignature(%q) = %q, %q, %v; want %q, %q, %v", raw, payload, signature, signed, p, s, ok)
		}
		if !bytes.Equal(raw, before) {
			t.Fatal("SplitSignature changed its input")
		}
		if _, _, again := SplitSignature(payload); again {
			t.Fatalf("the payload %q of %q is still signed", payload, raw)
		}
		committedAt(raw)
	})
}
