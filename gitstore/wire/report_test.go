package wire

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
	"pgregory.net/rapid"
)

func TestReport_Encode(t *testing.T) {
	id := refpolicy.OID{0xab}
	report := &Report{Refs: []RefReport{
		{Ref: "refs/heads/main", Reason: "force push denied by policy"},
		{Ref: "refs/heads/other"},
		{Ref: "refs/for/x", Option: &ReportOption{RefName: "refs/heads/y", OldOID: &refpolicy.ZeroOID, NewOID: &id, ForcedUpdate: true}},
	}}
	v1 := frame("unpack ok\n", "ng refs/heads/main force push denied by policy\n", "ok refs/heads/other\n", "ok refs/for/x\n")
	v2 := v1 + frame("option refname refs/heads/y\n", "option old-oid "+zero+"\n", "option new-oid "+id.String()+"\n", "option forced-update\n")
	for form, want := range map[ReportForm]string{NoReport: "", ReportV1: v1 + "0000", ReportV2: v2 + "0000"} {
		var got bytes.Buffer
		if err := report.Encode(&got, form); err != nil || got.String() != want {
			t.Errorf("Encode in form %d: %q, %v; want %q", form, &got, err, want)
		}
	}
}

// A server sends one report for each push: a buffer of its own for each would be most
// of what a push allocates.
func TestReport_EncodeAllocatesLittle(t *testing.T) {
	report := &Report{Refs: []RefReport{{Ref: "refs/heads/main"}}}
	var before, after runtime.MemStats
	const times = 1000
	runtime.ReadMemStats(&before)
	for range times {
		if err := report.Encode(io.Discard, ReportV2); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	// The race detector has a pool forget a part of what it is given.
	if each := (after.TotalAlloc - before.TotalAlloc) / times; each > MaxPacket/2 {
		t.Errorf("Encode of a short report allocated %d bytes, want far less than a packet", each)
	}
}

func TestReport_ReasonsAreOneBoundedLineAndNeverSuccess(t *testing.T) {
	for _, tc := range []struct{ reason, want string }{
		{"two\nlines", "ng r two lines\n"},
		{"\x1b[2Jgone", "ng r ?[2Jgone\n"},
		{" \n ", "ng r refused\n"},
		{"ok", "ng r refused\n"},
		{strings.Repeat("é", 600), "ng r " + strings.Repeat("é", 498) + "...\n"},
	} {
		var got bytes.Buffer
		if err := (&Report{Refs: []RefReport{{Ref: "r", Reason: tc.reason}}}).Encode(&got, ReportV1); err != nil {
			t.Fatal(err)
		}
		if want := frame("unpack ok\n", tc.want, "0000"); got.String() != want {
			t.Errorf("reason %q is sent as %q, want %q", tc.reason, &got, want)
		}
	}
	var got bytes.Buffer
	if err := (&Report{Unpack: "ok"}).Encode(&got, ReportV1); err != nil || got.String() != frame("unpack refused\n", "0000") {
		t.Errorf("unpack reason %q is sent as %q, %v", "ok", &got, err)
	}
}

func TestCase1_3_ReportInSidebandOrPlain(t *testing.T) {
	answer := &ReceiveResponse{Messages: []string{"rule X refuses main"}, Report: Report{Refs: []RefReport{{Ref: "refs/heads/main", Reason: "no"}}}}
	inner := frame("unpack ok\n", "ng refs/heads/main no\n", "0000")
	for _, tc := range []struct {
		name   string
		report ReportForm
		band   SidebandForm
		want   string
	}{
		{"sideband", ReportV2, Sideband64k, frame("\x02rule X refuses main\n", "\x01"+inner, "0000")},
		{"plain", ReportV1, NoSideband, inner},
		{"sideband without report", NoReport, Sideband64k, frame("\x02rule X refuses main\n", "0000")},
		{"nothing", NoReport, NoSideband, ""},
	} {
		var got bytes.Buffer
		if err := answer.Encode(&got, tc.report, tc.band); err != nil || got.String() != tc.want {
			t.Errorf("%s: %q, %v; want %q", tc.name, &got, err, tc.want)
		}
	}
}

func TestReport_LargeReportFillsItsPackets(t *testing.T) {
	report := &Report{Refs: make([]RefReport, 10_000)}
	for i := range report.Refs {
		report.Refs[i].Ref = "refs/heads/some-session-branch"
	}
	var out bytes.Buffer
	if err := (&ReceiveResponse{Report: *report}).Encode(&out, ReportV2, Sideband64k); err != nil {
		t.Fatal(err)
	}
	_, first, err := NewReader(bytes.NewReader(out.Bytes()), 0).Next()
	if len(first) != MaxPayload || err != nil {
		t.Errorf("first packet carries %d bytes, %v; want %d", len(first), err, MaxPayload)
	}
	got, err := ReadReport(NewReader(NewDemux(NewReader(&out, 0), nil), 0))
	if err != nil || !reflect.DeepEqual(got, report) {
		t.Errorf("read a report of %d refs, %v; want the %d written", len(got.Refs), err, len(report.Refs))
	}
}

func TestReadReport_Refusals(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     func(error) bool
	}{
		{"empty", "", isUnexpectedEOF},
		{"flush alone", "0000", isProtocolError},
		{"no unpack line", frame("ok refs/heads/x\n", "0000"), isProtocolError},
		{"two unpack lines", frame("unpack ok\n", "unpack ok\n", "0000"), isProtocolError},
		{"option without a ref", frame("unpack ok\n", "option forced-update\n", "0000"), isProtocolError},
		{"unknown option", frame("unpack ok\n", "ok r\n", "option x\n", "0000"), isProtocolError},
		{"bad oid", frame("unpack ok\n", "ok r\n", "option new-oid x\n", "0000"), isProtocolError},
		{"no flush", frame("unpack ok\n"), isUnexpectedEOF},
		{"delim", frame("unpack ok\n", "0001"), isProtocolError},
	} {
		if _, err := ReadReport(NewReader(strings.NewReader(tc.in), 0)); !tc.want(err) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

func TestReport_ReadsWhatItWrote(t *testing.T) {
	name := rapid.StringMatching(`refs/[a-z/]{1,20}`)
	reason := rapid.StringMatching(`([a-z]{1,5} ?){0,4}[a-jl-z]`) // never "ok"
	rapid.Check(t, func(t *rapid.T) {
		report := &Report{Unpack: rapid.OneOf(rapid.Just(""), reason).Draw(t, "unpack")}
		for range rapid.IntRange(0, 5).Draw(t, "refs") {
			ref := RefReport{Ref: name.Draw(t, "ref"), Reason: rapid.OneOf(rapid.Just(""), reason).Draw(t, "reason")}
			if ref.Reason == "" && rapid.Bool().Draw(t, "option") {
				id := genOID.Draw(t, "new")
				ref.Option = &ReportOption{RefName: name.Draw(t, "refname"), NewOID: &id}
			}
			report.Refs = append(report.Refs, ref)
		}
		var out bytes.Buffer
		if err := report.Encode(&out, ReportV2); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadReport(NewReader(&out, 0)); err != nil || !reflect.DeepEqual(got, report) {
			t.Fatalf("read %+v, %v; want %+v", got, err, report)
		}
	})
}

func FuzzReport(f *testing.F) {
	f.Add([]byte(frame("\x02text\n", "\x01"+frame("unpack ok\n", "ok r\n", "option forced-update\n", "ng s no\n", "0000"), "0000")))
	f.Add([]byte(frame("\x03fatal\n")))
	f.Fuzz(func(t *testing.T, in []byte) {
		defer hangs(t)()
		src := NewReader(NewDemux(NewReader(bytes.NewReader(in), 1<<20), nil), 1<<20)
		report, err := ReadReport(src)
		if err != nil {
			return
		}
		if err := report.Encode(io.Discard, ReportV2); err != nil && !errors.Is(err, ErrPacketTooLong) {
			t.Fatalf("encode %+v: %v", report, err)
		}
	})
}
