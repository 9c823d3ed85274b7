package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func readReceive(body string, l Limits) (*ReceiveRequest, string, error) {
	br := bufio.NewReader(strings.NewReader(body))
	q, err := ReadReceiveRequest(br, l)
	rest, _ := io.ReadAll(br)
	return q, string(rest), err
}

// Recorded shapes of older clients: without side-band, without any report, without capabilities.
func TestF01_ReceiveRequestsOfOlderClients(t *testing.T) {
	create, remove := zero+" "+oidA+" refs/heads/x", oidA+" "+zero+" refs/heads/x"
	for _, tc := range []struct {
		name, body string
		updates    int
		pack       bool
		report     ReportForm
		band       SidebandForm
		rest       string
	}{
		{name: "empty body", body: ""},
		{name: "probe", body: "0000"},
		{name: "no capabilities", body: frame(create, "0000") + "PACK", updates: 1, pack: true, rest: "PACK"},
		{name: "no capabilities, LF", body: frame(create+"\n", "0000") + "PACK", updates: 1, pack: true, rest: "PACK"},
		{name: "empty list", body: frame(create+"\x00", "0000") + "PACK", updates: 1, pack: true, rest: "PACK"},
		{name: "report-status", body: frame(create+"\x00report-status", "0000") + "PACK", updates: 1, pack: true, report: ReportV1, rest: "PACK"},
		{name: "LF after the list", body: frame(create+"\x00 report-status delete-refs\n", "0000") + "PACK", updates: 1, pack: true, report: ReportV1, rest: "PACK"},
		{name: "no ofs-delta", body: frame(create+"\x00report-status side-band-64k", "0000") + "PACK", updates: 1, pack: true, report: ReportV1, band: Sideband64k, rest: "PACK"},
		{name: "side-band is none here", body: frame(create+"\x00report-status side-band", "0000") + "PACK", updates: 1, pack: true, report: ReportV1, rest: "PACK"},
		{name: "delete", body: frame(remove+"\x00report-status-v2 delete-refs", "0000"), updates: 1, report: ReportV2},
		{name: "delete and create", body: frame(remove+"\x00report-status-v2", create, "0000") + "PACK", updates: 2, pack: true, report: ReportV2, rest: "PACK"},
		{name: "options not negotiated", body: frame(create+"\x00report-status", "0000", "o", "0000"), updates: 1, pack: true, report: ReportV1, rest: frame("o", "0000")},
		{name: "options", body: frame(create+"\x00report-status push-options", "0000", "o", "0000") + "PACK", updates: 1, pack: true, report: ReportV1, rest: "PACK"},
	} {
		q, rest, err := readReceive(tc.body, Limits{})
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if len(q.Updates) != tc.updates || q.ExpectsPack() != tc.pack || q.ReportForm() != tc.report || q.Sideband() != tc.band || rest != tc.rest {
			t.Errorf("%s: read %+v, pack %v, report %d, sideband %d, left %q", tc.name, q, q.ExpectsPack(), q.ReportForm(), q.Sideband(), rest)
		}
	}
}

// Names are judged one by one later; here they only have to arrive.
func TestCase2_2And2_3_OddNamesAreKept(t *testing.T) {
	long := "refs/heads/" + strings.Repeat("x", 5000)
	for _, name := range []string{"refs/heads/nope", "refs/heads/a..b", "refs/heads/x.lock", "heads/x", "refs/heads/", "refs/heads/a b", "refs/heads/\x01\xff", long} {
		q, _, err := readReceive(frame(zero+" "+zero+" "+name+"\x00report-status", "0000"), Limits{})
		if err != nil || len(q.Updates) != 1 || q.Updates[0].Ref != name || q.ExpectsPack() {
			t.Errorf("update of %q: %+v, %v; want the name as it is and no pack", name, q, err)
		}
	}
}

func TestReadReceiveRequest_Refusals(t *testing.T) {
	create := zero + " " + oidA + " refs/heads/x"
	for _, tc := range []struct{ name, body, text string }{
		{"certificate", frame("push-cert\x00report-status", "certificate version 0.1\n", "push-cert-end\n", "0000"), "push certificate is not supported"},
		{"no name", frame(zero+" "+oidA+" ", "0000"), `expected old/new/ref, got "` + (zero + " " + oidA)[:80] + `"...`},
		{"no new", frame(zero+" refs/heads/x", "0000"), `expected old/new/ref, got "` + zero + ` refs/heads/x"`},
		{"bad oid", frame("x"+create[1:], "0000"), `expected old/new/ref, got "x` + create[1:80] + `"...`},
		{"bad shallow", frame("shallow x", "0000"), `shallow: bad object id "x"`},
		{"sha256", frame(create+"\x00object-format=sha256", "0000"), `object format "sha256" is not supported`},
		{"delim", frame(create, "0001"), "unexpected delim packet"},
		{"delim in options", frame(create+"\x00push-options", "0000", "0001"), "unexpected delim packet"},
		{"cut in the updates", frame(create), ""},
		{"cut in the options", frame(create+"\x00push-options", "0000", "o"), ""},
	} {
		_, _, err := readReceive(tc.body, Limits{})
		if text, _ := ErrorText(err); err == nil || text != tc.text || text == "" && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v with text %q, want %q", tc.name, err, text, tc.text)
		}
	}
}

func TestReadReceiveRequest_Bounds(t *testing.T) {
	l := Limits{RefUpdates: 2, RefName: 20, Shallow: 1, PushOptions: 1}
	update := zero + " " + oidA + " refs/heads/x"
	for _, tc := range []struct {
		name, body string
		want       error
	}{
		{"as many as allowed", frame("shallow "+oidA, update+"\x00push-options", update+"1234567", "0000", "o", "0000"), nil},
		{"updates", frame(update, update, update, "0000"), ErrTooLarge},
		{"name", frame(update+"123456789", "0000"), ErrTooLarge},
		{"shallow", frame("shallow "+oidA, "shallow "+oidA, update, "0000"), ErrTooLarge},
		{"options", frame(update+"\x00push-options", "0000", "o", "o", "0000"), ErrTooLarge},
		{"capabilities", frame(update+"\x00"+strings.Repeat(" a", 300), "0000"), ErrTooLarge},
	} {
		if _, _, err := readReceive(tc.body, l); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}

func TestReceiveRequest_DuplicatesAreNamedOnce(t *testing.T) {
	q := &ReceiveRequest{Updates: []RefUpdate{{Ref: "b"}, {Ref: "a"}, {Ref: "b"}, {Ref: "c"}, {Ref: "b"}, {Ref: "a"}}}
	var twice *DuplicateRefError
	if err := q.Duplicates(); !errors.As(err, &twice) || !slices.Equal(twice.Refs, []string{"b", "a"}) {
		t.Errorf("Duplicates() = %v, want b and a", err)
	}
	if err := (&ReceiveRequest{Updates: q.Updates[:2]}).Duplicates(); err != nil {
		t.Errorf("Duplicates() of two refs = %v, want nil", err)
	}
}

func TestReceiveRequest_ReadsWhatItWroteAndLeavesThePack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := genReceive.Draw(t, "request")
		pack := "PACK" + rapid.String().Draw(t, "pack")
		var body bytes.Buffer
		if err := q.Encode(&body); err != nil {
			t.Fatal(err)
		}
		got, rest, err := readReceive(body.String()+pack, Limits{})
		if err != nil || !reflect.DeepEqual(got, q) || rest != pack {
			t.Fatalf("read %+v and left %q, %v; want %+v and %q", got, rest, err, q, pack)
		}
	})
}

func FuzzReceiveRequest(f *testing.F) {
	f.Add([]byte("0000"))
	f.Add([]byte(frame("shallow "+oidA+"\n", zero+" "+oidA+" refs/heads/x\x00 report-status-v2 side-band-64k atomic quiet push-options object-format=sha1 agent=git/2.39.5",
		oidA+" "+oidB+" refs/heads/y", oidA+" "+zero+" refs/heads/z", "0000", "option=1", "", "0000") + "PACK\x00\x00\x00\x02"))
	f.Add([]byte(frame("push-cert\x00report-status", "0000")))
	f.Fuzz(func(t *testing.T, in []byte) {
		defer hangs(t)()
		q, rest, err := readReceive(string(in), smallLimits)
		if err != nil {
			checkTyped(t, in, err)
			return
		}
		if !bytes.HasSuffix(in, []byte(rest)) {
			t.Fatalf("left %q of %q", rest, in)
		}
		var body bytes.Buffer
		if err := q.Encode(&body); err != nil {
			t.Fatalf("encode %+v: %v", q, err)
		}
		again, rest, err := readReceive(body.String()+"PACK", smallLimits)
		if len(q.Updates) == 0 {
			q.Capabilities = nil
		}
		if err != nil || !reflect.DeepEqual(again, q) || rest != "PACK" {
			t.Fatalf("read %+v, written and read again %+v, left %q, %v", q, again, rest, err)
		}
	})
}
