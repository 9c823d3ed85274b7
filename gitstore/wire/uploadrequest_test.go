package wire

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
	"pgregory.net/rapid"
)

// The forms that older clients sent: no sideband, no ofs-delta, no thin-pack, no capabilities at all, CRLF-free lines without LF.
func TestF01_UploadRequestsOfOlderClients(t *testing.T) {
	a, b := oid(t, oidA), oid(t, oidB)
	for _, tc := range []struct {
		name, body string
		want       UploadRequest
	}{
		{"empty body", "", UploadRequest{}},
		{"lone flush", "0000", UploadRequest{}},
		{"clone without capabilities", frame("want "+oidA+"\n", "0000", "done\n"), UploadRequest{Wants: []refpolicy.OID{a}, Done: true}},
		{"no LF", frame("want "+oidA, "0000", "done"), UploadRequest{Wants: []refpolicy.OID{a}, Done: true}},
		{
			"space before LF", frame("want "+oidA+" \n", "want "+oidB+"\n", "0000", "done\n"),
			UploadRequest{Wants: []refpolicy.OID{a, b}, Done: true},
		},
		{
			"multi_ack and side-band", frame("want "+oidA+" multi_ack side-band\n", "0000", "have "+oidB+"\n", "0000", "done\n"),
			UploadRequest{Wants: []refpolicy.OID{a}, Capabilities: Capabilities{"multi_ack", "side-band"}, Haves: [][]refpolicy.OID{{b}, nil}, Done: true},
		},
		{
			"several batches", frame("want "+oidA+"\n", "0000", "have "+oidB+"\n", "0000", "have "+oidA+"\n", "0000"),
			UploadRequest{Wants: []refpolicy.OID{a}, Haves: [][]refpolicy.OID{{b}, {a}}},
		},
		{
			"haves and done", frame("want "+oidA+"\n", "0000", "have "+oidB+"\n", "done\n"),
			UploadRequest{Wants: []refpolicy.OID{a}, Haves: [][]refpolicy.OID{{b}}, Done: true},
		},
		{
			"no flush after the haves", frame("want "+oidA+"\n", "0000", "have "+oidB+"\n"),
			UploadRequest{Wants: []refpolicy.OID{a}, Haves: [][]refpolicy.OID{{b}}},
		},
		{
			"shallow boundary alone", frame("want "+oidA+" shallow\n", "deepen 3", "0000"),
			UploadRequest{Wants: []refpolicy.OID{a}, Capabilities: Capabilities{"shallow"}, DepthRequest: DepthRequest{Deepen: 3}},
		},
		{
			"filter", frame("want "+oidA+" filter\n", "shallow "+oidB, "filter blob:none", "0000", "done\n"),
			UploadRequest{
				Wants: []refpolicy.OID{a}, Capabilities: Capabilities{"filter"}, Filter: "blob:none",
				DepthRequest: DepthRequest{Shallow: []refpolicy.OID{b}}, Done: true,
			},
		},
	} {
		got, err := ReadUploadRequest(strings.NewReader(tc.body), Limits{})
		if err != nil || !reflect.DeepEqual(got, &tc.want) {
			t.Errorf("%s: read %+v, %v; want %+v", tc.name, got, err, tc.want)
		}
	}
}

// git upload-pack has to answer alike to what a client sent and to what we write. No pack goes through a
// sideband here, because git cuts it into packets as its pipes are filled.
func TestF01_GitAnswersTheRewrittenRequestAlike(t *testing.T) {
	t.Parallel()
	repo := sampleRepo(t)
	tip, old := git(t, repo, "rev-parse", "main"), git(t, repo, "rev-parse", "main~2")
	for _, lines := range [][]string{
		{"0000"},
		{"want " + tip + "\n", "0000", "done\n"},
		{"want " + tip, "0000", "done"},
		{"want " + tip + " multi_ack\n", "0000", "have " + old + "\n", "0000", "done\n"},
		{"want " + tip + " multi_ack_detailed side-band-64k no-progress\n", "0000", "have " + old + "\n", "0000"},
		{"want " + tip + " ofs-delta no-progress\n", "0000", "have " + old + "\n", "done\n"},
		{"want " + tip + " no-progress\n", "deepen 1", "0000"},
		{"want " + tip + " no-progress\n", "deepen 1", "0000", "done\n"},
		{"want " + tip + " no-progress filter\n", "filter blob:none", "0000", "done\n"},
	} {
		body := frame(lines...)
		q, err := ReadUploadRequest(strings.NewReader(body), Limits{})
		if err != nil {
			t.Fatalf("ReadUploadRequest(%q): %v", body, err)
		}
		var again bytes.Buffer
		if err := q.Encode(&again); err != nil {
			t.Fatal(err)
		}
		ask := func(body []byte) []byte {
			out, err := gitTry(t, repo, nil, body, "-c", "pack.threads=1", "upload-pack", "--stateless-rpc", ".")
			if err != nil {
				t.Fatalf("upload-pack on %q: %v", body, err)
			}
			return out
		}
		if got, want := ask(again.Bytes()), ask([]byte(body)); !bytes.Equal(got, want) {
			t.Errorf("git answers %q to %q, and %q to what the client sent, %q", got, &again, want, body)
		}
	}
}

func TestReadUploadRequest_Refusals(t *testing.T) {
	want := "want " + oidA + "\n"
	for _, tc := range []struct{ name, body, text string }{
		{"have first", frame("have "+oidA, "0000"), `unexpected line: "have ` + oidA + `"`},
		{"bad want", frame("want x", "0000"), `want: bad object id "x"`},
		{"upper-case want", frame("want "+strings.ToUpper(oidA), "0000"), `want: bad object id "` + strings.ToUpper(oidA) + `"`},
		{"want after the flush", frame(want, "0000", want), `expected have, got "want ` + oidA + `"`},
		{"bad have", frame(want, "0000", "have x"), `have: bad object id "x"`},
		{"sha256", frame("want "+oidA+" object-format=sha256", "0000"), `object format "sha256" is not supported`},
		{"sparse filter", frame(want, "filter sparse:oid=x", "0000"), `filter "sparse:oid=x" is not supported`},
		{"delim", frame(want, "0001"), "unexpected delim packet"},
		{"delim in haves", frame(want, "0000", "0001"), "unexpected delim packet"},
		{"depth and ref", frame(want, "deepen 1", "deepen-not v1", "0000"), "deepen and deepen-since (or deepen-not) cannot be used together"},
		{"cut in the wants", frame(want), ""},
		{"cut in a have", frame(want, "0000") + "0032have", ""},
	} {
		_, err := ReadUploadRequest(strings.NewReader(tc.body), Limits{})
		if text, _ := ErrorText(err); err == nil || text != tc.text || text == "" && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v with text %q, want %q", tc.name, err, text, tc.text)
		}
	}
}

func TestReadUploadRequest_Bounds(t *testing.T) {
	l := Limits{Wants: 2, Haves: 16, Bytes: 8000}
	for _, tc := range []struct {
		name, body string
		want       error
	}{
		{"as many as allowed", frame("want "+oidA, "want "+oidA, "0000", "have "+oidA, "0000", "done"), nil},
		{"wants", frame("want "+oidA, "want "+oidA, "want "+oidA, "0000"), ErrTooLarge},
		{"haves", frame("want "+oidA, "0000") + strings.Repeat(frame("have "+oidA), 17), ErrTooLarge},
		{"haves in batches", frame("want "+oidA, "0000") + strings.Repeat(frame("have "+oidA), 9) + "0000" + strings.Repeat(frame("have "+oidA), 8), ErrTooLarge},
		{"batches", frame("want "+oidA, "0000") + strings.Repeat("0000", 100), ErrTooLarge},
		{"capabilities", frame("want " + oidA + strings.Repeat(" a", 300)), ErrTooLarge},
		{"bytes of capabilities", frame("want " + oidA + strings.Repeat(" "+strings.Repeat("a", 500), 40)), ErrTooLarge},
	} {
		if _, err := ReadUploadRequest(strings.NewReader(tc.body), l); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}

func TestUploadRequest_ReadsWhatItWrote(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := genUpload.Draw(t, "request")
		var body bytes.Buffer
		if err := q.Encode(&body); err != nil {
			t.Fatal(err)
		}
		got, err := ReadUploadRequest(&body, Limits{})
		if err != nil || !reflect.DeepEqual(got, q) {
			t.Fatalf("read %+v, %v; want %+v", got, err, q)
		}
	})
}

func FuzzUploadRequest(f *testing.F) {
	f.Add([]byte("0000"))
	f.Add([]byte(frame("want "+oidA+" multi_ack_detailed no-done side-band-64k thin-pack ofs-delta deepen-relative agent=git/2.39.5\n", "want "+oidB+"\n",
		"shallow "+oidB, "deepen 1", "filter blob:none", "0000", "have "+oidB+"\n", "0000", "have "+oidA+"\n", "done\n")))
	f.Add([]byte(frame("want "+oidA, "deepen-since 5", "deepen-not v1", "0000", "0000")))
	f.Fuzz(func(t *testing.T, in []byte) {
		defer hangs(t)()
		q, err := ReadUploadRequest(bytes.NewReader(in), smallLimits)
		if err != nil {
			checkTyped(t, in, err)
			return
		}
		var body bytes.Buffer
		if err := q.Encode(&body); err != nil {
			t.Fatalf("encode %+v: %v", q, err)
		}
		again, err := ReadUploadRequest(&body, smallLimits)
		if len(q.Wants) == 0 {
			q = &UploadRequest{} // what stands before a flush-pkt without wants is answered by nothing
			again.DepthRequest, again.Filter = q.DepthRequest, q.Filter
		}
		if err != nil || !reflect.DeepEqual(again, q) {
			t.Fatalf("read %+v, written and read again %+v, %v", q, again, err)
		}
	})
}
