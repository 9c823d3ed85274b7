package sessions

import (
	"bytes"
	"testing"
	"time"
)

// A cursor that is taken is the one that the list would give for its place.
func FuzzCursor(f *testing.F) {
	repo := Repo{ID: "r1"}
	good := makeCursor(place(time.UnixMicro(1), "s1"), repo, Filter{})
	f.Add(good)
	f.Add("")
	f.Add(good[:len(good)-1])
	f.Add(makeCursor(place(time.UnixMicro(1), "s1"), repo, Filter{State: Active}))
	f.Add("AQ==")
	f.Fuzz(func(t *testing.T, cursor string) {
		at, err := parseCursor(cursor, repo, Filter{})
		if err != nil || cursor == "" {
			return
		}
		if again := makeCursor(at, repo, Filter{}); again != cursor {
			t.Errorf("cursor %q names the place of %q", cursor, again)
		}
	})
}

func FuzzFence(f *testing.F) {
	f.Add([]byte("1 7 view_only s1"))
	f.Add((&record{ID: "s1", Epoch: 1, State: Active}).fence().encode())
	f.Add([]byte("2 7 active s1"))
	f.Add([]byte("1 -1 active s1"))
	f.Add([]byte("1 1"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		fence, err := decodeFence(raw)
		if err != nil {
			return
		}
		again, err := decodeFence(fence.encode())
		if err != nil || again != fence {
			t.Errorf("fence %q becomes %+v, then %+v, %v", raw, fence, again, err)
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add((&record{ID: "s1", Branch: "b", Epoch: 3, State: Active, Lease: &leaseRecord{Holder: "h", Until: time.UnixMicro(9).UTC()}}).encode())
	f.Add([]byte(`{"v":2}`))
	f.Add([]byte(`{"v":1,"labels":{"a":"b"}}`))
	f.Add([]byte(`nothing`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := decodeRecord(raw)
		if err != nil || raw == nil {
			return
		}
		again, err := decodeRecord(s.encode())
		if err != nil || !bytes.Equal(again.encode(), again.raw) {
			t.Errorf("record %q does not keep its form: %v", raw, err)
		}
	})
}

// Ids, holders and labels that are taken never lead from one list into another.
func FuzzNames(f *testing.F) {
	f.Add("s1", "holder", "key", "value")
	f.Add("a/b", "a\x00b", "k\x00", "v\x00\x00")
	f.Fuzz(func(t *testing.T, id, holder, key, val string) {
		if validID(id) != nil || validHolder(holder) != nil || validLabels(map[string]string{key: val}) != nil {
			return
		}
		r := record{ID: id, State: Active, Labels: map[string]string{key: val}, Lease: &leaseRecord{Holder: holder}, Parent: id}
		lists := []string{byAll(), byState(Active), byLabel(key, val), byHolder(holder), byParent(id)}
		at := place(r.CreatedAt, id)
		for _, list := range lists {
			for _, other := range lists {
				if list != other && len(list) <= len(other) && other[:len(list)] == list {
					t.Errorf("list %q lies in %q", other, list)
				}
			}
			found := false
			for _, p := range r.places() {
				found = found || p == list+at
			}
			if !found {
				t.Errorf("session %q is not in list %q", id, list)
			}
		}
	})
}
