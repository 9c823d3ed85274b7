package gitstore

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/refpolicy"
)

func refName(i int) refpolicy.RefName {
	return refpolicy.RefName("refs/heads/many/" + string(rune('a'+i%26)) + time.Unix(int64(i), 0).UTC().Format("150405"))
}

func TestRefRecordsComeBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		at := rapid.Int64Range(0, 1<<52)
		r := refRecord{
			created: time.UnixMicro(at.Draw(rt, "created")).UTC(), updated: time.UnixMicro(at.Draw(rt, "updated")).UTC(),
			writer: rapid.String().Draw(rt, "writer"),
		}
		copy(r.oid[:], rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(rt, "oid"))
		copy(r.peeled[:], rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(rt, "peeled"))
		if got, err := decodeRefRecord(r.encode()); err != nil || got != r {
			rt.Fatalf("decodeRefRecord(encode(%+v)) = %+v, %v", r, got, err)
		}
	})
}

func FuzzDecodeRefRecord(f *testing.F) {
	f.Add(refRecord{writer: "somebody", created: time.UnixMicro(1), updated: time.UnixMicro(2)}.encode())
	f.Add([]byte{})
	f.Add([]byte{2})
	f.Add(make([]byte, refRecordFixed-1))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRefRecord(b)
		if err == nil && string(r.encode()) != string(b) {
			t.Errorf("decodeRefRecord(%x) = %+v, which encodes as %x", b, r, r.encode())
		}
	})
}

func FuzzDecodeHot(f *testing.F) {
	f.Add(encodeHot(newObject(BlobObject, []byte("hello")), 1))
	f.Add([]byte{1, 0x80})
	f.Add([]byte{3, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHot(b)
		if err == nil && h.size < 0 {
			t.Errorf("decodeHot(%x) has the size %d", b, h.size)
		}
	})
}

// A cursor that was not made by the call it is sent to is ErrBadCursor; one that was
// comes back as it went.
func FuzzDecodeCursor(f *testing.F) {
	f.Add(encodeCursor(branchCursor, "00012/refs/heads/main"))
	f.Add(encodeCursor(repoCursor, "x"))
	f.Add("not base64!")
	f.Add("")
	f.Fuzz(func(t *testing.T, cursor string) {
		key, err := decodeCursor(cursor, branchCursor)
		if err != nil {
			if !errors.Is(err, ErrBadCursor) {
				t.Errorf("decodeCursor(%q): %v, want ErrBadCursor", cursor, err)
			}
			return
		}
		if again, err := decodeCursor(encodeCursor(branchCursor, key), branchCursor); err != nil || again != key {
			t.Errorf("decodeCursor(encodeCursor(%q)) = %q, %v", key, again, err)
		}
		if _, err := decodeCursor(cursor, repoCursor); !errors.Is(err, ErrBadCursor) {
			t.Errorf("a cursor of branches taken for one of repos: %v, want ErrBadCursor", err)
		}
	})
}
