package client

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/sessions/snapshot"
)

// fakeGate is a server that keeps one snapshot in memory, by the routes that a client
// uses, with faults that tests ask for.
type fakeGate struct {
	*httptest.Server

	mu       sync.Mutex // guards what follows
	spec     map[string]any
	parts    []PartSpec
	leaves   map[string]map[int]snapshot.Leaf
	blobs    map[snapshot.Hash][]byte
	contents map[snapshot.Hash][]byte
	asked    map[string]int // requests by what they were for
	chunks   int            // records that were sent
	sealed   map[string]any
	dropped  bool
	base     string // what uploads are said to build on
	// fault may answer a request in the server's place; it says whether it did.
	fault func(what string, n int, w http.ResponseWriter, r *http.Request) bool
	// bend changes a record before it is told.
	bend  func(n int, r *snapshot.Record)
	coder *snapshot.Coder
}

const fakeSHA = "00112233445566778899aabbccddeeff00112233"

func newFakeGate(t *testing.T) *fakeGate {
	g := &fakeGate{
		leaves: map[string]map[int]snapshot.Leaf{}, blobs: map[snapshot.Hash][]byte{}, contents: map[snapshot.Hash][]byte{},
		asked: map[string]int{}, coder: snapshot.NewCoder(),
	}
	g.Server = httptest.NewServer(g)
	t.Cleanup(g.Close)
	return g
}

func (g *fakeGate) client(t *testing.T) *Snapshots {
	t.Helper()
	api, err := NewAPI(g.URL, "a-token")
	if err != nil {
		t.Fatal(err)
	}
	return api.Snapshots("team/site")
}

func (g *fakeGate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer a-token" || !strings.HasPrefix(r.URL.EscapedPath(), "/api/repos/team%2Fsite/") {
		http.Error(w, "{}", http.StatusUnauthorized)
		return
	}
	tail := strings.TrimPrefix(r.URL.Path, "/api/repos/team/site/")
	what := r.Method + " " + tail[strings.LastIndexByte(tail, '/')+1:]
	g.mu.Lock()
	g.asked[what]++
	n, fault := g.asked[what], g.fault
	g.mu.Unlock()
	if fault != nil && fault(what, n, w, r) {
		return
	}
	switch what {
	case "POST uploads":
		g.begin(w, r)
	case "GET u1":
		g.answer(w, http.StatusOK, g.upload())
	case "DELETE u1":
		g.mu.Lock()
		g.dropped = true
		g.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	case "POST missing":
		g.missing(w, r)
	case "POST content":
		g.content(w, r)
	case "POST chunks":
		g.take(w, r)
	case "POST seal":
		g.seal(w, r)
	case "GET " + fakeSHA:
		g.answer(w, http.StatusOK, g.told())
	case "GET image":
		g.image(w, r)
	default:
		http.Error(w, "{}", http.StatusNotFound)
	}
}

func (g *fakeGate) answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (g *fakeGate) begin(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Parts []PartSpec `json:"parts"`
	}
	text, _ := io.ReadAll(r.Body)
	g.mu.Lock()
	_ = json.Unmarshal(text, &g.spec)
	_ = json.Unmarshal(text, &body)
	g.parts = nil
	for _, p := range body.Parts {
		whole, err := snapshot.PartSpec{Name: p.Name, Kind: p.Kind, Layout: p.Layout, ChunkBytes: p.ChunkBytes, Size: p.Size}.Complete()
		if err != nil {
			g.mu.Unlock()
			g.answer(w, http.StatusUnprocessableEntity, map[string]string{"error": err.Error(), "code": "invalid_field"})
			return
		}
		g.parts = append(g.parts, PartSpec{Name: whole.Name, Kind: whole.Kind, Layout: whole.Layout, ChunkBytes: whole.ChunkBytes, Size: whole.Size})
	}
	g.mu.Unlock()
	g.answer(w, http.StatusCreated, g.upload())
}

func (g *fakeGate) upload() Upload {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Upload{ID: "u1", Session: "s", Parts: g.parts, Base: g.base}
}

func (g *fakeGate) missing(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	part := r.URL.Query().Get("part")
	var answer []byte
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leaves[part] == nil {
		g.leaves[part] = map[int]snapshot.Leaf{}
	}
	told := map[snapshot.Hash]bool{}
	for len(text) > 0 {
		leaf := snapshot.Leaf{Index: int(binary.BigEndian.Uint32(text))}
		size := int(binary.BigEndian.Uint16(text[4:])) * snapshot.EntryBytes
		leaf.Chunks, _ = snapshot.DecodeList(text[6 : 6+size])
		text = text[6+size:]
		g.leaves[part][leaf.Index] = leaf
		for _, c := range leaf.Chunks {
			if !c.Hash.IsZero() && g.blobs[c.Hash] == nil && !told[c.Hash] {
				told[c.Hash] = true
				answer = append(answer, c.Hash[:]...)
			}
		}
	}
	_, _ = w.Write(answer)
}

// content takes whole leaves and answers with their lists.
func (g *fakeGate) content(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	part := r.URL.Query().Get("part")
	first, _ := strconv.Atoi(r.URL.Query().Get("first"))
	var chunks []snapshot.Chunk
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(text) > 0 {
		head := binary.BigEndian.Uint32(text)
		n := int(head &^ (1 << 31))
		text = text[4:]
		c := snapshot.Chunk{Length: uint32(n)}
		if head>>31 == 0 {
			c = snapshot.ChunkOf(text[:n])
			g.blobs[c.Hash], g.contents[c.Hash] = text[:n], text[:n]
			text = text[n:]
		}
		chunks = append(chunks, c)
	}
	if g.leaves[part] == nil {
		g.leaves[part] = map[int]snapshot.Leaf{}
	}
	var answer []byte
	for list := range slices.Chunk(chunks, snapshot.LeafChunks) {
		g.leaves[part][first] = snapshot.Leaf{Index: first, Chunks: list}
		answer = binary.BigEndian.AppendUint32(answer, uint32(first))
		answer = binary.BigEndian.AppendUint16(answer, uint16(len(list)))
		answer = snapshot.AppendList(answer, list)
		first++
	}
	_, _ = w.Write(answer)
}

func (g *fakeGate) take(w http.ResponseWriter, r *http.Request) {
	in := snapshot.NewSparseReader(r.Body)
	for {
		rec, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			g.answer(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		content, err := g.coder.Decode(rec.Chunk(), rec.Blob, nil)
		if err != nil {
			g.answer(w, http.StatusUnprocessableEntity, map[string]string{"error": err.Error(), "code": "hash_mismatch"})
			return
		}
		g.mu.Lock()
		g.blobs[rec.Hash] = append([]byte{}, rec.Blob...)
		g.contents[rec.Hash] = append([]byte{}, content...)
		g.chunks++
		g.mu.Unlock()
	}
	g.answer(w, http.StatusOK, map[string]int{"stored": 1})
}

func (g *fakeGate) seal(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	_ = json.NewDecoder(r.Body).Decode(&g.sealed)
	g.mu.Unlock()
	got := g.told()
	roots, _ := g.sealed["roots"].(map[string]any)
	for _, p := range g.manifest().Parts {
		if roots[p.Name] != p.Root {
			g.answer(w, http.StatusUnprocessableEntity, map[string]string{"error": "root", "code": "hash_mismatch"})
			return
		}
	}
	got.Status = "saved"
	g.answer(w, http.StatusCreated, got)
}

// manifest is that of what has been told so far.
func (g *fakeGate) manifest() snapshot.Manifest {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := snapshot.Manifest{Format: snapshot.FormatVersion, Session: "s", Workspace: fakeSHA}
	first := 0
	for _, spec := range g.parts {
		p := snapshot.Part{Name: spec.Name, Kind: spec.Kind, Layout: spec.Layout, ChunkBytes: spec.ChunkBytes, FirstLeaf: first}
		var hashes []snapshot.Hash
		for i := range len(g.leaves[spec.Name]) {
			leaf := g.leaves[spec.Name][i]
			p.Size += leaf.Size()
			hashes = append(hashes, leaf.Hash(p.Layout))
		}
		if spec.Layout == snapshot.Pages && spec.Size >= 0 {
			p.Size = spec.Size // which is not what sealed chunks add up to
		}
		p.Leaves = len(hashes)
		first += p.Leaves
		p.Root = snapshot.ImageRoot(p, hashes).String()
		m.Parts = append(m.Parts, p)
		m.Size += p.Size
	}
	m.Root = snapshot.SnapshotRoot(m.Parts).String()
	return m
}

func (g *fakeGate) told() Snapshot {
	m := g.manifest()
	text, err := m.Encode()
	if err != nil {
		panic(err)
	}
	return Snapshot{SHA: fakeSHA, Session: "s", State: "ready", Size: m.Size, Root: m.Root, Manifest: text}
}

// image answers with the sparse form of a range.
func (g *fakeGate) image(w http.ResponseWriter, r *http.Request) {
	m := g.manifest()
	part := m.Parts[0]
	for _, p := range m.Parts {
		if p.Name == r.URL.Query().Get("part") {
			part = p
		}
	}
	from, to := int64(0), part.Size
	if text := r.Header.Get("Range"); text != "" {
		if _, err := fmt.Sscanf(text, "bytes=%d-%d", &from, &to); err != nil {
			http.Error(w, "{}", http.StatusBadRequest)
			return
		}
		to++
	}
	w.Header().Set("X-Restore-Id", "an-id")
	w.Header().Set("X-Restore-Seed", "a-seed")
	w.Header().Set("Content-Type", sparseMedia)
	out := snapshot.NewSparseWriter(w)
	_ = out.Header(snapshot.SparseHeader{Part: part, Offset: from, Length: to - from, Commit: fakeSHA})
	g.mu.Lock()
	defer g.mu.Unlock()
	at, n := int64(0), 0
	for i := range part.Leaves {
		for _, c := range g.leaves[part.Name][i].Chunks {
			if at < to && at+int64(c.Length) > from {
				rec := snapshot.Record{Offset: at, Length: int64(c.Length), Hash: c.Hash, Blob: g.blobs[c.Hash]}
				if g.bend != nil {
					g.bend(n, &rec)
				}
				n++
				if err := out.Write(rec); err != nil {
					panic(http.ErrAbortHandler)
				}
			}
			at += int64(c.Length)
		}
	}
	root, _ := snapshot.ParseHash(part.Root)
	_ = out.End(root)
}
