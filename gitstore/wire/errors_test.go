package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestErrorText_TellsOnlyWhatTheClientDid(t *testing.T) {
	for _, tc := range []struct {
		err  error
		text string
	}{
		{&ProtocolError{Text: "unexpected"}, "unexpected"},
		{&UnsupportedError{Feature: "want-ref"}, "want-ref is not supported"},
		{&UnknownCommandError{Command: "x\x1b"}, `invalid command "x\x1b"`},
		{&LimitError{What: "wants", Limit: 3}, "more than 3 wants"},
		{&DuplicateRefError{Refs: []string{"a", "b"}}, `multiple updates for ref not allowed: "a", "b"`},
		{ErrBadLength, "bad pkt-line length"},
		{io.ErrUnexpectedEOF, ""},
		{ErrPacketTooLong, ""},
		{errors.New("disk on fire"), ""},
		{&RemoteError{Text: "no"}, ""},
	} {
		text, ok := ErrorText(fmt.Errorf("read request: %w", tc.err))
		if text != tc.text || ok != (tc.text != "") {
			t.Errorf("ErrorText(%v) = %q, %v; want %q", tc.err, text, ok, tc.text)
		}
	}
}

func TestErrorText_StaysShort(t *testing.T) {
	long := strings.Repeat("x", 60_000)
	_, err := ReadV2Request(strings.NewReader(frame("command="+long, "0000")), Limits{})
	if text, ok := ErrorText(err); !ok || len(text) > 200 {
		t.Errorf("text for a long command has %d bytes, want few", len(text))
	}
	refs := strings.Fields(strings.Repeat("refs/heads/x ", 9000))
	if text := (&DuplicateRefError{Refs: refs}).Error(); len(text) > maxReason {
		t.Errorf("text for 9000 refs has %d bytes, want at most %d", len(text), maxReason)
	}
}

func TestWriteError_IsOneLineThatGitReads(t *testing.T) {
	var out bytes.Buffer
	if err := WriteError(&out, "upload-pack: not our ref\n"+oidA); err != nil {
		t.Fatal(err)
	}
	if want := frame("ERR upload-pack: not our ref " + oidA); out.String() != want {
		t.Errorf("WriteError wrote %q, want %q", &out, want)
	}
	_, payload, err := NewReader(&out, 0).Next()
	if err != nil {
		t.Fatal(err)
	}
	var remote *RemoteError
	if err := ParseError(payload); !errors.As(err, &remote) || remote.Text != "upload-pack: not our ref "+oidA {
		t.Errorf("ParseError(%q) = %v", payload, err)
	}
	if err := ParseError([]byte("NAK\n")); err != nil {
		t.Errorf("ParseError of NAK = %v, want nil", err)
	}
}
