package snapshot

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"pgregory.net/rapid"
)

// uploadModel sends to one upload as two clients with other contents, that break off and
// go on, with processes that end, and knows what is there.
type uploadModel struct {
	w      *world
	c      *client
	data   [2][]byte
	images [2]*cutImage
	told   map[int]Leaf
	staged map[Hash]bool
	done   bool
}

func (m *uploadModel) who(t *rapid.T) *cutImage { return m.images[rapid.IntRange(0, 1).Draw(t, "who")] }

func (m *uploadModel) wants(leaf Leaf) (hashes []Hash) {
	asked := map[Hash]bool{}
	for _, c := range leaf.Chunks {
		if !c.Hash.IsZero() && !m.staged[c.Hash] && !asked[c.Hash] {
			asked[c.Hash] = true
			hashes = append(hashes, c.Hash)
		}
	}
	return hashes
}

func (m *uploadModel) tell(t *rapid.T) {
	im := m.who(t)
	leaf := im.leaves[rapid.IntRange(0, len(im.leaves)-1).Draw(t, "leaf")]
	got, err := m.c.missing("", leaf)
	if m.done {
		m.wantGone(t, err)
		return
	}
	want := m.wants(leaf)
	if err != nil || len(got) != len(want) {
		t.Fatalf("Missing = %d, %v, want %d", len(got), err, len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("missing is %s, want %s", got[i], want[i])
		}
	}
	m.told[leaf.Index] = leaf
}

// put sends some chunks, and breaks off anywhere.
func (m *uploadModel) put(t *rapid.T) {
	im := m.who(t)
	leaf := im.leaves[rapid.IntRange(0, len(im.leaves)-1).Draw(t, "leaf")]
	var hashes []Hash
	for _, c := range leaf.Chunks {
		if !c.Hash.IsZero() && rapid.Bool().Draw(t, "this one") {
			hashes = append(hashes, c.Hash)
		}
	}
	body := im.body(t, hashes...).Bytes()
	whole := rapid.IntRange(0, 2).Draw(t, "whole") > 0
	if !whole {
		body = body[:rapid.IntRange(0, len(body)-1).Draw(t, "cut")]
	}
	n, err := m.c.put(bytes.NewReader(body))
	switch {
	case m.done:
		m.wantGone(t, err)
	case whole && (err != nil || n != len(hashes)):
		t.Fatalf("Put = %d, %v, want %d", n, err, len(hashes))
	case !whole && !errors.Is(err, io.ErrUnexpectedEOF):
		t.Fatalf("Put of a cut body = %v, want %v", err, io.ErrUnexpectedEOF)
	}
	if m.done {
		return
	}
	stage := m.w.stages[m.c.id]
	for _, h := range hashes {
		if _, ok := stage.chunks[h]; ok {
			m.staged[h] = true
		} else if whole {
			t.Fatalf("chunk %s was taken and is not staged", h)
		}
	}
}

func (m *uploadModel) wantGone(t *rapid.T, err error) {
	if !errors.Is(err, ErrUploadNotFound) {
		t.Fatalf("after the seal: %v, want %v", err, ErrUploadNotFound)
	}
}

func (m *uploadModel) seal(t *rapid.T) {
	n := rapid.IntRange(0, 1).Draw(t, "who")
	im := m.images[n]
	got, err := m.c.seal(rootsOf(im))
	missing, same := false, true
	for i, leaf := range im.leaves {
		told, ok := m.told[i]
		missing = missing || !ok || len(m.wants(told)) > 0
		same = same && ok && told.Hash(Pages) == leaf.Hash(Pages)
	}
	switch {
	case m.done:
		m.wantGone(t, err)
	case missing:
		if !errors.Is(err, ErrMissing) {
			t.Fatalf("Seal = %v, want %v", err, ErrMissing)
		}
	case !same:
		if !errors.Is(err, ErrMismatch) {
			t.Fatalf("Seal = %v, want %v", err, ErrMismatch)
		}
	case err != nil:
		t.Fatalf("Seal: %v", err)
	default:
		m.done = true
		m.w.wantRestored(t, "sealed", got.Commit, "", m.data[n])
	}
	if !m.done && !m.w.head(t, RefPrefix+"s").IsZero() {
		t.Fatalf("a refused seal has moved the ref")
	}
}

// Uploads that break at any point, and go on from two clients at once and after restarts,
// give one of the two images exactly, or nothing (case 14.5).
func TestCase14_5_TwoClientsOfOneUpload(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		inWorld(rt, Limits{}, func(w *world) {
			m := &uploadModel{w: w, told: map[int]Leaf{}, staged: map[Hash]bool{}}
			for i := range m.data {
				m.data[i] = sparseMemory(byte('a'+i), leafBytes+10, 0, 1, 7+i, 255, 256)
				copy(m.data[i][3*MinChunk:], "both have this")
				m.images[i] = cutUp(rt, pagesOf(-1), m.data[i])
			}
			m.c = w.begin(rt, SaveSpec{Parts: []PartSpec{pagesOf(leafBytes + 10)}})
			if _, err := w.as(backend()).OpenStage(rt.Context(), m.c.id); err != nil {
				rt.Fatalf("OpenStage: %v", err)
			}
			rt.Repeat(map[string]func(*rapid.T){
				"tell": m.tell, "tell more": m.tell, "put": m.put, "put more": m.put, "seal": m.seal,
				"restart": func(*rapid.T) { m.c.k = w.keeper(w.k.Limits) },
			})
			if !m.done {
				m.c.send(rt, m.images[1])
				m.w.wantRestored(rt, "in the end", m.c.sealed(rt, m.images[1]).Commit, "", m.data[1])
			}
			w.sound(rt)
		})
	})
}
