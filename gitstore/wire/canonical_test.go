package wire

import (
	"bytes"
	"testing"
)

// The canonical form of whatever a client sends is read back as itself, asks for an
// answer of the same kind, and is that of its own canonical form: two requests are
// answered alike exactly if git is told the same for both.
func FuzzCanonicalRequest(f *testing.F) {
	f.Add(false, []byte(frame("want "+oidB+" side-band-64k agent=git/2 ofs-delta\n", "want "+oidA+"\n", "want "+oidB+"\n", "shallow "+oidB, "deepen 3", "0000", "have "+oidB+"\n", "have "+oidA+"\n", "done\n")))
	f.Add(false, []byte(frame("want "+oidA+" multi_ack deepen-relative session-id=1\n", "deepen-not b", "deepen-not a", "0000", "have "+oidA+"\n", "0000", "done\n")))
	f.Add(true, []byte(frame("command=fetch", "agent=git/2", "object-format=sha1", "0001", "thin-pack", "want "+oidB+"\n", "want "+oidA+"\n", "have "+oidA+"\n", "deepen-not v1", "done\n", "0000")))
	f.Add(true, []byte(frame("command=fetch", "session-id=7", "0001", "wait-for-done", "filter blob:none", "deepen 2", "want "+oidA+"\n", "0000")))
	f.Fuzz(func(t *testing.T, v2 bool, in []byte) {
		canonical := canonicalV0
		if v2 {
			canonical = canonicalV2
		}
		once, pack, ok := canonical(t, in)
		if !ok {
			return
		}
		twice, packAgain, ok := canonical(t, once)
		if !ok || !bytes.Equal(once, twice) || pack != packAgain {
			t.Fatalf("canonical form of %q is %q (ends in a pack: %v), and its own is %q (%v)", in, once, pack, twice, packAgain)
		}
	})
}

func canonicalV0(t *testing.T, in []byte) (out []byte, pack, ok bool) {
	q, err := ReadUploadRequest(bytes.NewReader(in), smallLimits)
	if err != nil || len(q.Wants) == 0 {
		return nil, false, false
	}
	var b bytes.Buffer
	if err := q.Canonical().Encode(&b); err != nil {
		t.Fatalf("encode canonical form of %q: %v", in, err)
	}
	return b.Bytes(), q.EndsInPack(), true
}

func canonicalV2(t *testing.T, in []byte) (out []byte, pack, ok bool) {
	q, err := ReadV2Request(bytes.NewReader(in), smallLimits)
	if err != nil || q.Fetch == nil {
		return nil, false, false
	}
	var b bytes.Buffer
	if err := q.Canonical().Encode(&b); err != nil {
		t.Fatalf("encode canonical form of %q: %v", in, err)
	}
	return b.Bytes(), q.Fetch.EndsInPack(), true
}

func TestEndsInPack(t *testing.T) {
	for _, tc := range []struct {
		v2   bool
		body string
		want bool
	}{
		{false, frame("want "+oidA+"\n", "0000", "done\n"), true},
		{false, frame("want "+oidA+"\n", "0000", "have "+oidB+"\n", "done\n"), true},
		{false, frame("want "+oidA+"\n", "0000", "have "+oidB+"\n", "0000", "done\n"), false}, // git stops at the flush-pkt
		{false, frame("want "+oidA+"\n", "deepen 1", "0000"), false},                          // only the boundary
		{false, frame("want "+oidA+" no-done\n", "0000", "have "+oidB+"\n", "0000"), false},   // may, and nobody knows before
		{true, frame("command=fetch", "0001", "want "+oidA+"\n", "done\n", "0000"), true},
		{true, frame("command=fetch", "0001", "want "+oidA+"\n", "0000"), true}, // nothing to negotiate
		{true, frame("command=fetch", "0001", "want "+oidA+"\n", "wait-for-done", "0000"), false},
		{true, frame("command=fetch", "0001", "want "+oidA+"\n", "have "+oidB+"\n", "0000"), false},
		{true, frame("command=fetch", "0001", "done\n", "0000"), false}, // no wants
	} {
		canonical := canonicalV0
		if tc.v2 {
			canonical = canonicalV2
		}
		if _, got, ok := canonical(t, []byte(tc.body)); !ok || got != tc.want {
			t.Errorf("%q ends in a pack: %v, read: %v; want %v", tc.body, got, ok, tc.want)
		}
	}
}
