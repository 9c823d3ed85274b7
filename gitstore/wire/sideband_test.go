package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"unicode"

	"pgregory.net/rapid"
)

func TestSideband_PacketSizes(t *testing.T) {
	data := bytes.Repeat([]byte("d"), 70_000)
	for _, tc := range []struct {
		form  SidebandForm
		first int // length of the first packet
	}{{SidebandSmall, 1000}, {Sideband64k, 65520}} {
		var out bytes.Buffer
		s := NewSideband(&out, tc.form)
		if n, err := s.Write(data); n != len(data) || err != nil {
			t.Fatalf("Write = %d, %v; want %d", n, err, len(data))
		}
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		_, first, err := NewReader(bytes.NewReader(out.Bytes()), 0).Next()
		if len(first)+4 != tc.first || err != nil {
			t.Errorf("form %d: first packet has %d bytes, %v; want %d", tc.form, len(first)+4, err, tc.first)
		}
		got, err := io.ReadAll(NewDemux(NewReader(&out, 0), nil))
		if !bytes.Equal(got, data) || err != nil {
			t.Errorf("form %d: demultiplexed %d bytes, %v; want the %d written", tc.form, len(got), err, len(data))
		}
	}
}

func TestSideband_ReadFrom(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 20_000)
	for _, form := range []SidebandForm{NoSideband, SidebandSmall, Sideband64k} {
		var out, progress bytes.Buffer
		s := NewSideband(&out, form)
		if n, err := s.ReadFrom(bytes.NewReader(data)); n != int64(len(data)) || err != nil {
			t.Fatalf("form %d: ReadFrom = %d, %v; want %d", form, n, err, len(data))
		}
		if form == NoSideband {
			if !bytes.Equal(out.Bytes(), data) {
				t.Errorf("form %d: %d bytes are written, want the %d read", form, out.Len(), len(data))
			}
			continue
		}
		if err := errors.Join(s.Told([]byte("half\r")), s.Told(nil), s.Flush()); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(NewDemux(NewReader(&out, 0), &progress))
		if !bytes.Equal(got, data) || err != nil || progress.String() != "half\r" {
			t.Errorf("form %d: demultiplexed %d bytes, %v, and %q; want the %d read", form, len(got), err, &progress, len(data))
		}
	}
	cut := errors.New("cut")
	if n, err := NewSideband(io.Discard, Sideband64k).ReadFrom(io.MultiReader(strings.NewReader("ab"), iotest.ErrReader(cut))); n != 2 || !errors.Is(err, cut) {
		t.Errorf("ReadFrom of what breaks = %d, %v; want 2 and its error", n, err)
	}
}

func TestSideband_NoSidebandPassesDataAlone(t *testing.T) {
	var out bytes.Buffer
	s := NewSideband(&out, NoSideband)
	_, _ = s.Write([]byte("PACK"))
	for _, err := range []error{s.Progress("text"), s.Fatal("text"), s.KeepAlive(), s.Flush()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if out.String() != "PACK" {
		t.Errorf("written %q, want PACK", &out)
	}
}

func TestSideband_MessagesAreCleanLines(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"hello", "hello\n"},
		{"two\nlines\n", "two\nlines\n"},
		{"\x1b[31mred\x1b[0m", "?[31mred?[0m\n"},
		{"a\rb\x00c\x7f\u009b", "a?b?c??\n"},
		{"tab\tstays é", "tab\tstays é\n"},
		{"bad \xff utf-8, \u202e reversed", "bad ? utf-8, ? reversed\n"},
	} {
		var out, text bytes.Buffer
		s := NewSideband(&out, Sideband64k)
		if err := errors.Join(s.Progress(tc.in), s.KeepAlive(), s.Flush()); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(NewDemux(NewReader(&out, 0), &text)); err != nil || text.String() != tc.want {
			t.Errorf("Progress(%q) arrives as %q, %v; want %q", tc.in, &text, err, tc.want)
		}
	}
}

func TestSideband_MessagesNeverControlATerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOf(rapid.Byte()).Draw(t, "text"))
		for _, r := range cleanText(in, true) {
			if unicode.IsControl(r) && r != '\n' && r != '\t' {
				t.Fatalf("cleanText(%q) keeps %q", in, r)
			}
		}
		if clean := cleanText(in, false); strings.ContainsAny(clean, "\n\t\r") {
			t.Fatalf("cleanText(%q, false) = %q has more than one line", in, clean)
		}
		if cut := clipText(in, 40); len(cut) > 40 {
			t.Fatalf("clipText(%q, 40) has %d bytes", in, len(cut))
		}
	})
}

func TestSideband_FatalEndsTheStream(t *testing.T) {
	var out bytes.Buffer
	s := NewSideband(&out, SidebandSmall)
	_, _ = s.Write([]byte("begun"))
	if err := s.Fatal("no\nway " + strings.Repeat("x", 2000)); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(NewDemux(NewReader(&out, 0), nil))
	var remote *RemoteError
	if string(got) != "begun" || !errors.As(err, &remote) || !strings.HasPrefix(remote.Text, "no way xxx") || len(remote.Text) > 995 {
		t.Errorf("read %q, %v; want the begun data and a RemoteError of one line", got, err)
	}
}

func TestDemux_RefusesWhatIsNoSideband(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want func(error) bool
	}{
		{"", isUnexpectedEOF},
		{"0006\x01a", isUnexpectedEOF}, // no flush-pkt
		{"0004", isProtocolError},
		{"0001", isProtocolError},
		{"0006\x04a", isProtocolError},
		{"00", isUnexpectedEOF},
	} {
		if _, err := io.ReadAll(NewDemux(NewReader(strings.NewReader(tc.in), 0), nil)); !tc.want(err) {
			t.Errorf("reading the sideband %q: %v", tc.in, err)
		}
	}
}

func isUnexpectedEOF(err error) bool { return errors.Is(err, io.ErrUnexpectedEOF) }

func isProtocolError(err error) bool {
	var protocol *ProtocolError
	return errors.As(err, &protocol)
}

func TestSideband_ConcurrentWritersNeverTearAPacket(t *testing.T) {
	var out bytes.Buffer
	s := NewSideband(&out, SidebandSmall)
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range 50 {
				_, _ = s.Write(bytes.Repeat([]byte("d"), 1500))
				_ = s.Progress("progress")
			}
		})
	}
	writers.Wait()
	_ = s.Flush()
	var text bytes.Buffer
	got, err := io.ReadAll(NewDemux(NewReader(&out, 0), &text))
	if len(got) != 4*50*1500 || text.String() != strings.Repeat("progress\n", 200) || err != nil {
		t.Errorf("read %d bytes of data and %d of text, %v; want 300000 and 1800", len(got), text.Len(), err)
	}
}
