package wire

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func TestReader_Packets(t *testing.T) {
	for _, tc := range []struct {
		in   string
		kind PacketKind
		data string
		err  error
	}{
		{in: "0006a\n", kind: Data, data: "a\n"},
		{in: "000Aabcdef", kind: Data, data: "abcdef"}, // git reads upper-case digits too
		{in: "0004", kind: Data},
		{in: "0000", kind: Flush},
		{in: "0001", kind: Delim},
		{in: "0002", kind: ResponseEnd},
		{in: "0003", err: ErrBadLength},
		{in: "fff1", err: ErrBadLength}, // 65521
		{in: "ffff", err: ErrBadLength},
		{in: "00g0", err: ErrBadLength},
		{in: "-001", err: ErrBadLength},
		{in: "0x10", err: ErrBadLength},
		{in: "", err: io.EOF},
		{in: "00", err: io.ErrUnexpectedEOF},
		{in: "0008", err: io.ErrUnexpectedEOF},
		{in: "0008abc", err: io.ErrUnexpectedEOF},
	} {
		kind, data, err := NewReader(strings.NewReader(tc.in), 0).Next()
		if kind != tc.kind || string(data) != tc.data || !errors.Is(err, tc.err) {
			t.Errorf("Next() of %q = %v, %q, %v; want %v, %q, %v", tc.in, kind, data, err, tc.kind, tc.data, tc.err)
		}
	}
}

func TestReader_LongestPacket(t *testing.T) {
	in := "fff0" + strings.Repeat("x", MaxPayload)
	kind, data, err := NewReader(strings.NewReader(in), 0).Next()
	if kind != Data || len(data) != MaxPayload || err != nil {
		t.Errorf("Next() = %v, %d bytes, %v; want data, %d bytes", kind, len(data), err, MaxPayload)
	}
}

func TestReader_StopsAtItsBound(t *testing.T) {
	src := strings.NewReader("0008abcd0008abcd")
	r := NewReader(src, 15)
	if _, _, err := r.Next(); err != nil {
		t.Fatalf("first Next(): %v", err)
	}
	_, _, err := r.Next()
	var limit *LimitError
	if !errors.Is(err, ErrTooLarge) || !errors.As(err, &limit) || limit.Limit != 15 {
		t.Errorf("Next() past the bound: %v, want a LimitError of 15 bytes", err)
	}
	if src.Len() != 4 {
		t.Errorf("%d bytes left in the source, want 4: the payload must not be read", src.Len())
	}
}

func TestReader_TakesNothingAfterItsPacket(t *testing.T) {
	src := strings.NewReader("0006ab0000PACK")
	r := NewReader(src, 0)
	for range 2 {
		if _, _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if rest, _ := io.ReadAll(src); string(rest) != "PACK" {
		t.Errorf("left in the source: %q, want PACK", rest)
	}
}

func TestReader_GivesTheSourcesError(t *testing.T) {
	broken := errors.New("broken")
	_, _, err := NewReader(io.MultiReader(strings.NewReader("0008a"), iotest.ErrReader(broken)), 0).Next()
	if !errors.Is(err, broken) {
		t.Errorf("Next() = %v, want %v", err, broken)
	}
}

func TestWriter_RefusesLongPayloadAndSplits(t *testing.T) {
	var out bytes.Buffer
	w := NewWriter(&out)
	if err := w.WriteData(make([]byte, MaxPayload+1)); !errors.Is(err, ErrPacketTooLong) || out.Len() > 0 {
		t.Errorf("WriteData of %d bytes: %v and %d bytes written, want ErrPacketTooLong and none", MaxPayload+1, err, out.Len())
	}
	if err := w.WriteSplit(make([]byte, 2*MaxPayload+1)); err != nil {
		t.Fatal(err)
	}
	r := NewReader(&out, 0)
	for _, want := range []int{MaxPayload, MaxPayload, 1} {
		if _, data, err := r.Next(); len(data) != want || err != nil {
			t.Errorf("packet of WriteSplit has %d bytes, %v; want %d", len(data), err, want)
		}
	}
	if _, _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("after the packets: %v, want io.EOF", err)
	}
}

type packet struct {
	kind PacketKind
	data string
}

func readPackets(r *Reader) (got []packet, err error) {
	for {
		kind, data, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got = append(got, packet{kind, string(data)})
	}
}

func writePackets(w io.Writer, packets []packet) error {
	pkt := NewWriter(w)
	for _, p := range packets {
		var err error
		switch p.kind {
		case Data:
			err = pkt.WriteString(p.data)
		case Flush:
			err = pkt.Flush()
		case Delim:
			err = pkt.Delim()
		case ResponseEnd:
			err = pkt.ResponseEnd()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func TestPackets_ReadAsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sent := rapid.SliceOf(rapid.Custom(func(t *rapid.T) packet {
			kind := rapid.SampledFrom([]PacketKind{Data, Flush, Delim, ResponseEnd}).Draw(t, "kind")
			if kind != Data {
				return packet{kind: kind}
			}
			return packet{Data, rapid.String().Draw(t, "data")}
		})).Draw(t, "packets")
		var out bytes.Buffer
		if err := writePackets(&out, sent); err != nil {
			t.Fatal(err)
		}
		got, err := readPackets(NewReader(iotest.OneByteReader(&out), 0))
		if err != nil || len(got) != len(sent) {
			t.Fatalf("read %d packets, %v; want %d", len(got), err, len(sent))
		}
		for i := range got {
			if got[i] != sent[i] {
				t.Fatalf("packet %d = %v, want %v", i, got[i], sent[i])
			}
		}
	})
}

func FuzzReader(f *testing.F) {
	for _, seed := range []string{"", "0000", "0001", "0006a\n0000", "0003", "fff0", "00000009done\n", "001e# service=git-upload-pack\n0000"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		defer hangs(t)()
		packets, err := readPackets(NewReader(bytes.NewReader(in), 1<<20))
		if err != nil && !errors.Is(err, ErrBadLength) && !errors.Is(err, ErrTooLarge) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("reading %q: untyped error %v", in, err)
		}
		var out bytes.Buffer
		if err := writePackets(&out, packets); err != nil {
			t.Fatal(err)
		}
		if read := in[:out.Len()]; !bytes.EqualFold(out.Bytes(), read) {
			t.Fatalf("written again %q, had read %q", out.Bytes(), read)
		}
	})
}
