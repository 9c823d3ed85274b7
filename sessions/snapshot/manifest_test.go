package snapshot_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/sessions/snapshot"
)

var update = flag.Bool("update", false, "write the golden files anew: only for a new version of the format")

// golden compares got with a file of testdata.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("golden file: %v", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got %d bytes, want the %d of the golden file; got:\n%.2000q", name, len(got), len(want), got)
	}
}

// sample is a manifest with everything in it.
func sample() snapshot.Manifest {
	m := snapshot.Manifest{
		Format: 1, Requires: []string{"sealed", "envelope"}, Session: "s-1", Name: "before <lunch> & after",
		Parent: strings.Repeat("1a", 20), Workspace: strings.Repeat("2b", 20),
		CreatedAt: time.Date(2026, 11, 30, 23, 59, 59, 123456789, time.FixedZone("", 3600)),
		Machine:   map[string]string{"kernel": "6.1", "arch": "amd64"}, Boundary: "manual",
		Excluded: []snapshot.Excluded{{Name: "sock", Reason: "cannot be pickled"}},
		Quiet:    &snapshot.Quiet{Before: "aa", After: "aa"},
		Envelope: json.RawMessage(`{ "version": 1 }`),
		Parts: []snapshot.Part{
			{Name: "ram", Kind: "memory", Layout: snapshot.Pages, ChunkBytes: 4096, Size: 3<<20 + 7, Leaves: 4,
				Regions: []snapshot.Region{{Address: 0, Offset: 0, Size: 1 << 20}, {Address: 1 << 32, Offset: 1 << 20, Size: 2 << 20}},
				Root:    strings.Repeat("3c", 32)},
			{Name: "ns", Kind: "namespace", Layout: snapshot.Stream, ChunkBytes: 16384, Size: 100, FirstLeaf: 4, Leaves: 1,
				Root: strings.Repeat("4d", 32)},
		},
		Size: 3<<20 + 107, Zero: 4096, Stored: 12345,
		Extra: map[string]json.RawMessage{"zeta": json.RawMessage(`[1, 2.50,{"b":1,"a":"<"}]`), "alpha": json.RawMessage(`null`)},
	}
	m.Root = snapshot.SnapshotRoot(m.Parts).String()
	return m
}

func encode(t *testing.T, m snapshot.Manifest) []byte {
	t.Helper()
	data, err := m.Encode()
	if err != nil {
		t.Fatalf("Encode = %v", err)
	}
	return data
}

func TestManifestGolden(t *testing.T) {
	m := sample()
	data := encode(t, m)
	golden(t, "manifest.json", data)
	back, err := snapshot.DecodeManifest(data)
	if err != nil {
		t.Fatalf("DecodeManifest = %v", err)
	}
	m.CreatedAt = m.CreatedAt.UTC()
	m.Envelope = json.RawMessage(`{"version":1}`)
	m.Extra["zeta"] = json.RawMessage(`[1,2.50,{"b":1,"a":"<"}]`)
	if !reflect.DeepEqual(back, m) {
		t.Errorf("DecodeManifest gave\n%+v, want\n%+v", back, m)
	}
	if again := encode(t, back); !bytes.Equal(again, data) {
		t.Errorf("encoded again:\n%s, want\n%s", again, data)
	}
}

// White space and another order of fields come out as the same bytes.
func TestManifestIsCanonical(t *testing.T) {
	data := encode(t, sample())
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	other, err := json.MarshalIndent(fields, "  ", "\t") // by name
	if err != nil {
		t.Fatal(err)
	}
	m, err := snapshot.DecodeManifest(other)
	if err != nil {
		t.Fatalf("DecodeManifest = %v", err)
	}
	want := bytes.ReplaceAll(data, []byte(`"a":"<"`), []byte(`"a":"\u003c"`)) // what is not ours stays as it is written
	if got := encode(t, m); !bytes.Equal(got, want) {
		t.Errorf("encoded again:\n%s, want\n%s", got, want)
	}
}

// edited is the sample with one field set to raw JSON, or taken away by "".
func edited(t *testing.T, name, raw string) []byte {
	t.Helper()
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(encode(t, sample()), &fields); err != nil {
		t.Fatal(err)
	}
	if fields[name] = json.RawMessage(raw); raw == "" {
		delete(fields, name)
	}
	data, err := json.Marshal(fields)
	if err != nil {
		t.Fatalf("field %s: %v", name, err)
	}
	return data
}

func part(edit string) string {
	p := `{"name":"ram","kind":"memory","layout":"pages","chunk_bytes":4096,"size_bytes":100,"first_leaf":0,"leaves":1,` +
		`"image_sha256":"` + strings.Repeat("3c", 32) + `"}`
	from, to, _ := strings.Cut(edit, " -> ")
	if !strings.Contains(p, from) {
		panic("nothing to edit: " + edit)
	}
	return "[" + strings.Replace(p, from, to, 1) + "]"
}

func TestCase14_4_ManifestsAreRefusedByField(t *testing.T) {
	for _, tc := range []struct{ field, raw, want string }{
		{"format", `99`, "format"},
		{"format", `"1"`, "format"},
		{"format", `1.5`, "format"},
		{"format", `null`, "format"},
		{"format", ``, "format"},
		{"requires", `["pagemap"]`, "pagemap"},
		{"requires", `["sealed","zeta"]`, "zeta"},
		{"requires", `"sealed"`, "requires"},
		{"requires", `[1]`, "requires"},
		{"session_id", `7`, "session_id"},
		{"parent_sha", `"main"`, "parent_sha"},
		{"workspace_sha", `"` + strings.Repeat("2B", 20) + `"`, "workspace_sha"},
		{"created_at", `"yesterday"`, "created_at"},
		{"machine", `{"cpus":4}`, "machine"},
		{"excluded", `[{"name":1}]`, "excluded.name"},
		{"quiescence", `[]`, "quiescence"},
		{"envelope", `null`, "envelope"},
		{"image_sha256", `"` + strings.Repeat("00", 32) + `"`, "image_sha256"},
		{"size_bytes", `1`, "size_bytes"},
		{"size_bytes", `1e99`, "size_bytes"},
		{"zero_bytes", `-1`, "zero_bytes"},
		{"zero_bytes", `99999999`, "zero_bytes"},
		{"stored_bytes", `-1`, "stored_bytes"},
		{"stored_bytes", `9223372036854775808`, "stored_bytes"},
		{"parts", ``, "parts"},
		{"parts", `[]`, "parts"},
		{"parts", `{}`, "parts"},
		{"parts", part(`"size_bytes":100 -> "size_bytes":"100"`), "parts.size_bytes"},
		{"parts", part(`"ram" -> "r/m"`), "parts[0].name"},
		{"parts", part(`"ram" -> ""`), "parts[0].name"},
		{"parts", part(`"memory" -> "a\u0000"`), "parts[0].kind"},
		{"parts", part(`"pages" -> "scroll"`), "parts[0].layout"},
		{"parts", part(`4096 -> 4097`), "parts[0].chunk_bytes"},
		{"parts", part(`4096 -> 2048`), "parts[0].chunk_bytes"},
		{"parts", part(`4096 -> 2097152`), "parts[0].chunk_bytes"},
		{"parts", part(`"size_bytes":100 -> "size_bytes":-1`), "parts[0].size_bytes"},
		{"parts", part(`"size_bytes":100 -> "size_bytes":1099511627777`), "parts[0].size_bytes"},
		{"parts", part(`"size_bytes":100 -> "size_bytes":1048577`), "parts[0].leaves"},
		{"parts", part(`"leaves":1 -> "leaves":0`), "parts[0].leaves"},
		{"parts", part(`"first_leaf":0 -> "first_leaf":1`), "parts[0].first_leaf"},
		{"parts", part(`"leaves":1 -> "leaves":1,"regions":[{"address":0,"offset":90,"size_bytes":11}]`), "parts[0].regions"},
		{"parts", part(`"3c3c -> "`), "parts[0].image_sha256"},
	} {
		_, err := snapshot.DecodeManifest(edited(t, tc.field, tc.raw))
		var refused *snapshot.FieldError
		if !errors.As(err, &refused) || refused.Field != tc.want {
			t.Errorf("%s = %s: DecodeManifest = %v, want a FieldError for %s", tc.field, tc.raw, err, tc.want)
		}
	}
}

func TestCase14_4_UnknownOptionalFieldsAreKept(t *testing.T) {
	data := edited(t, "later", `{"deep":[1,{"x":null}]}`)
	m, err := snapshot.DecodeManifest(data)
	if err != nil {
		t.Fatalf("DecodeManifest = %v", err)
	}
	if got := string(m.Extra["later"]); got != `{"deep":[1,{"x":null}]}` {
		t.Errorf("Extra[later] = %s", got)
	}
	text := string(encode(t, m))
	a, l, z := strings.Index(text, `,"alpha":null`), strings.Index(text, `,"later":{"deep"`), strings.Index(text, `,"zeta":[`)
	if a < 0 || l < a || z < l || strings.Index(text, `"stored_bytes"`) > a {
		t.Errorf("unknown fields are not by name behind the known ones: %s", text)
	}
}

func TestDecodeManifestRefusesWhatIsNone(t *testing.T) {
	good := encode(t, sample())
	for name, data := range map[string][]byte{
		"nothing":    nil,
		"an array":   []byte(`[]`),
		"cut":        good[:len(good)-3],
		"more":       append(bytes.Clone(good), "{}"...),
		"too long":   append(bytes.Clone(good), bytes.Repeat([]byte(" "), snapshot.MaxManifest)...),
		"bad syntax": []byte(`{"format":1,}`),
	} {
		if _, err := snapshot.DecodeManifest(data); !errors.Is(err, snapshot.ErrInvalid) {
			t.Errorf("%s: DecodeManifest = %v, want ErrInvalid", name, err)
		}
	}
	var twice *snapshot.FieldError
	if _, err := snapshot.DecodeManifest([]byte(`{"format":1,"format":1}`)); !errors.As(err, &twice) || twice.Field != "format" {
		t.Errorf("a field given twice: DecodeManifest = %v, want a FieldError", err)
	}
}

func TestEncodeRefusesWhatCannotBeRead(t *testing.T) {
	for name, spoil := range map[string]func(*snapshot.Manifest){
		"parts":        func(m *snapshot.Manifest) { m.Parts = nil },
		"image_sha256": func(m *snapshot.Manifest) { m.Root = "" },
		"name":         func(m *snapshot.Manifest) { m.Extra = map[string]json.RawMessage{"name": json.RawMessage(`1`)} },
		"odd":          func(m *snapshot.Manifest) { m.Extra = map[string]json.RawMessage{"odd": json.RawMessage(`{`)} },
	} {
		m := sample()
		spoil(&m)
		var refused *snapshot.FieldError
		if _, err := m.Encode(); !errors.As(err, &refused) || refused.Field != name {
			t.Errorf("Encode = %v, want a FieldError for %s", err, name)
		}
	}
	m := sample()
	m.Boundary = strings.Repeat("x", snapshot.MaxManifest)
	if _, err := m.Encode(); !errors.Is(err, snapshot.ErrInvalid) {
		t.Errorf("Encode of a long manifest = %v, want ErrInvalid", err)
	}
}

func TestManifestsComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := snapshot.Manifest{
			Format: 1, Session: rapid.StringMatching(`[a-z0-9-]{0,20}`).Draw(t, "session"),
			Name:      rapid.StringOf(rapid.RuneFrom([]rune("ab<>&\"\\\n\u2028é世"))).Draw(t, "name"),
			CreatedAt: time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "at"), 0).UTC(),
		}
		if extra := rapid.MapOf(rapid.StringMatching(`x[a-z]{1,5}`), rapid.Int64()).Draw(t, "extra"); len(extra) > 0 {
			m.Extra = map[string]json.RawMessage{}
			for k, v := range extra {
				m.Extra[k], _ = json.Marshal(v)
			}
		}
		leaf := 0
		for i := range rapid.IntRange(1, 5).Draw(t, "parts") {
			p := snapshot.Part{Name: string(rune('a' + i)), Kind: "memory", Layout: snapshot.Pages, FirstLeaf: leaf,
				ChunkBytes: snapshot.MinChunk << rapid.IntRange(0, 8).Draw(t, "chunk"),
				Size:       rapid.Int64Range(0, 1<<34).Draw(t, "size"),
				Root:       snapshot.ChunkOf([]byte{byte(i + 1)}).Hash.String()}
			p.Leaves = snapshot.PageLeaves(p.Size, p.ChunkBytes)
			leaf += p.Leaves
			m.Size += p.Size
			m.Parts = append(m.Parts, p)
		}
		m.Root = snapshot.SnapshotRoot(m.Parts).String()
		data, err := m.Encode()
		if err != nil {
			t.Fatalf("Encode = %v", err)
		}
		back, err := snapshot.DecodeManifest(data)
		if err != nil || !reflect.DeepEqual(back, m) {
			t.Fatalf("DecodeManifest = %+v, %v, want %+v", back, err, m)
		}
	})
}

func FuzzDecodeManifest(f *testing.F) {
	data, err := sample().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"format":99}`))
	f.Add([]byte(`{"format":1,"requires":["x"],"parts":[]}`))
	f.Add([]byte(`{"format":1,"parts":[{"name":"a","kind":"b","layout":"stream","chunk_bytes":4096}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := snapshot.DecodeManifest(data)
		var refused *snapshot.FieldError
		if err != nil {
			if !errors.As(err, &refused) && !errors.Is(err, snapshot.ErrInvalid) {
				t.Fatalf("DecodeManifest = %v, which has no type", err)
			}
			return
		}
		once, err := m.Encode()
		if err != nil {
			// What is written may be longer than what was read, and years end at 9999.
			return
		}
		back, err := snapshot.DecodeManifest(once)
		if err != nil {
			t.Fatalf("DecodeManifest of %s = %v", once, err)
		}
		if twice, err := back.Encode(); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("encoded twice: %s, %v, first %s", twice, err, once)
		}
	})
}
