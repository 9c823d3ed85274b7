package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// frame makes one body: "0000", "0001" and "0002" are special packets, all else lines without LF.
func frame(lines ...string) string {
	var out bytes.Buffer
	pkt := NewWriter(&out)
	for _, line := range lines {
		switch line {
		case "0000", "0001", "0002":
			out.WriteString(line)
		default:
			_ = pkt.WriteString(line)
		}
	}
	return out.String()
}

const (
	oidA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	oidB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	zero = "0000000000000000000000000000000000000000"
)

func TestReadV2Request_EndsQuietly(t *testing.T) {
	for _, body := range []string{"", "0000"} {
		if q, err := ReadV2Request(strings.NewReader(body), Limits{}); q != nil || !errors.Is(err, io.EOF) {
			t.Errorf("ReadV2Request(%q) = %v, %v; want io.EOF", body, q, err)
		}
	}
}

func TestReadV2Request_CommandWithoutArguments(t *testing.T) {
	q, err := ReadV2Request(strings.NewReader(frame("command=ls-refs\n", "agent=x", "0000")), Limits{})
	if err != nil || q.LsRefs == nil || q.Fetch != nil || !q.Capabilities.Has("agent") {
		t.Errorf("ls-refs without arguments = %+v, %v", q, err)
	}
}

func TestReadV2Request_ReadsOneCommandAndLeavesTheNext(t *testing.T) {
	body := bufio.NewReader(strings.NewReader(
		frame("command=ls-refs", "0001", "peel", "0000") + frame("command=fetch", "0001", "want "+oidA, "done", "0000")))
	first, err := ReadV2Request(body, Limits{})
	if err != nil || first.LsRefs == nil || !first.LsRefs.Peel {
		t.Fatalf("first command = %+v, %v; want ls-refs", first, err)
	}
	second, err := ReadV2Request(body, Limits{})
	if err != nil || second.Fetch == nil || !second.Fetch.Done {
		t.Fatalf("second command = %+v, %v; want fetch", second, err)
	}
	if _, err := ReadV2Request(body, Limits{}); !errors.Is(err, io.EOF) {
		t.Errorf("after the last command: %v, want io.EOF", err)
	}
}

func TestReadV2Request_Refusals(t *testing.T) {
	fetch := func(args ...string) string {
		return frame(append(append([]string{"command=fetch", "object-format=sha1", "0001"}, args...), "0000")...)
	}
	for _, tc := range []struct {
		name, body, text string // text is what the client may be told; empty: nothing, the body is cut short
	}{
		{"unknown command", frame("command=object-info", "0001", "size", "0000"), `invalid command "object-info"`},
		{"no command", frame("agent=x", "0000"), "no command requested"},
		{"two commands", frame("command=fetch", "command=ls-refs", "0000"), `command "ls-refs" requested after "fetch"`},
		{"capability not offered", frame("command=fetch", "server-option=x", "0000"), `unknown capability "server-option=x"`},
		{"sha256", frame("command=fetch", "object-format=sha256", "0000"), `object format "sha256" is not supported`},
		{"response-end in the head", frame("command=fetch", "0002"), "unexpected response-end packet"},
		{"delim in the arguments", fetch("0001"), "unexpected delim packet"},
		{"want-ref", fetch("want-ref refs/heads/main"), "want-ref is not supported"},
		{"packfile-uris", fetch("packfile-uris https"), "packfile-uris is not supported"},
		{"sideband-all", fetch("sideband-all"), "sideband-all is not supported"},
		{"sparse filter", fetch("filter sparse:oid=main:x"), `filter "sparse:oid=main:x" is not supported`},
		{"sparse in combine", fetch("filter combine:blob:none+sparse%3Aoid=x"), `filter "sparse:oid=x" is not supported`},
		{"unknown filter", fetch("filter blob:all"), `invalid filter-spec "blob:all"`},
		{"two filters", fetch("filter tree:0", "filter tree:1"), "more than one filter"},
		{"bad want", fetch("want main"), `want: bad object id "main"`},
		{"short have", fetch("have " + oidA[:7]), `have: bad object id "aaaaaaa"`},
		{"unknown argument", fetch("sing"), `unexpected line: "sing"`},
		{"deepen 0", fetch("deepen 0"), `invalid deepen: "deepen 0"`},
		{"deepen -1", fetch("deepen -1"), `invalid deepen: "deepen -1"`},
		{"deepen too far", fetch("deepen 2147483648"), `invalid deepen: "deepen 2147483648"`},
		{"deepen-since 0", fetch("deepen-since 0"), `invalid deepen-since: "deepen-since 0"`},
		{"depth and date", fetch("deepen 1", "deepen-since 5"), "deepen and deepen-since (or deepen-not) cannot be used together"},
		{"ls-refs argument", frame("command=ls-refs", "0001", "want "+oidA, "0000"), `unexpected line: "want ` + oidA + `"`},
		{"bad length", "zzzz", "bad pkt-line length"},
		{"cut in the head", frame("command=fetch"), ""},
		{"cut in the arguments", frame("command=fetch", "0001", "done"), ""},
	} {
		_, err := ReadV2Request(strings.NewReader(tc.body), Limits{})
		if tc.text == "" {
			if _, told := ErrorText(err); told || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: %v, want io.ErrUnexpectedEOF", tc.name, err)
			}
			continue
		}
		if text, _ := ErrorText(err); text != tc.text {
			t.Errorf("%s: %v with text %q, want %q", tc.name, err, text, tc.text)
		}
	}
}

func TestReadV2Request_Bounds(t *testing.T) {
	small := Limits{Bytes: 4000, Wants: 2, Haves: 2, Shallow: 2, DeepenNot: 2}
	for _, line := range []string{"want " + oidA, "have " + oidA, "shallow " + oidA, "deepen-not x"} {
		for n, want := range map[int]error{2: nil, 3: ErrTooLarge} {
			lines := []string{"command=fetch", "0001"}
			for range n {
				lines = append(lines, line)
			}
			if _, err := ReadV2Request(strings.NewReader(frame(append(lines, "0000")...)), small); !errors.Is(err, want) {
				t.Errorf("%d times %q: %v, want %v", n, line, err, want)
			}
		}
	}
	long := frame("command=ls-refs", "0001", "ref-prefix "+strings.Repeat("x", 4000), "0000")
	if _, err := ReadV2Request(strings.NewReader(long), small); !errors.Is(err, ErrTooLarge) {
		t.Errorf("body of %d bytes where 4000 are allowed: %v, want ErrTooLarge", len(long), err)
	}
	many := frame(append([]string{"command=fetch"}, strings.Fields(strings.Repeat("agent=x ", 300))...)...)
	if _, err := ReadV2Request(strings.NewReader(many), Limits{}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("300 capabilities: %v, want ErrTooLarge", err)
	}
}

func TestV2Request_ReadsWhatItWrote(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := genV2.Draw(t, "request")
		var body bytes.Buffer
		if err := q.Encode(&body); err != nil {
			t.Fatal(err)
		}
		got, err := ReadV2Request(&body, Limits{})
		if err != nil || !reflect.DeepEqual(got, q) {
			t.Fatalf("read %+v (%+v, %+v), %v; want what was written", got, got.Fetch, got.LsRefs, err)
		}
	})
}

// smallLimits let a fuzzer reach every bound with short inputs.
var smallLimits = Limits{
	Bytes: 1 << 20, Wants: 20, Haves: 40, Shallow: 10, DeepenNot: 3, RefPrefixes: 10, RefUpdates: 10, RefName: 300, PushOptions: 5,
}

func FuzzV2Request(f *testing.F) {
	f.Add([]byte(frame("command=ls-refs\n", "agent=git/2.39.5", "object-format=sha1", "0001", "peel\n", "symrefs\n", "unborn\n", "ref-prefix refs/heads/\n", "0000")))
	f.Add([]byte(frame("command=fetch", "agent=git/2.39.5", "0001", "thin-pack", "no-progress", "ofs-delta", "shallow "+oidA, "deepen 1",
		"filter combine:blob:none+tree:3", "want "+oidA+"\n", "have "+oidB+"\n", "done\n", "0000")))
	f.Add([]byte(frame("command=fetch", "0001", "deepen-since 5", "deepen-not v1", "deepen-relative", "wait-for-done", "0000")))
	f.Add([]byte(frame("command=object-info", "0000")))
	f.Fuzz(func(t *testing.T, in []byte) {
		defer hangs(t)()
		q, err := ReadV2Request(bytes.NewReader(in), smallLimits)
		if err != nil {
			checkTyped(t, in, err)
			return
		}
		var body bytes.Buffer
		if err := q.Encode(&body); err != nil {
			t.Fatalf("encode %+v: %v", q, err)
		}
		again, err := ReadV2Request(&body, smallLimits)
		if err != nil || !reflect.DeepEqual(again, q) {
			t.Fatalf("read %+v, written and read again %+v, %v", q, again, err)
		}
	})
}

// checkTyped fails unless err is cut-short input or something a client can be told.
func checkTyped(t *testing.T, in []byte, err error) {
	t.Helper()
	if _, ok := ErrorText(err); !ok && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("reading %q: untyped error %v", in, err)
	}
}
