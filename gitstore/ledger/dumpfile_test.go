package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// memDump is a dump of what a test has in memory, a chunk of one at a time.
type memDump struct {
	state   State
	items   []Item
	entries []Entry
}

func (m *memDump) State() State { return m.state }
func (m *memDump) Close() error { return nil }

func (m *memDump) Items(_ context.Context, start string) ([]Item, string, error) {
	for _, it := range m.items {
		if it.Key >= start {
			return []Item{it}, it.Key + "\x00", nil
		}
	}
	return nil, "", nil
}

func (m *memDump) Log(_ context.Context, after uint64) ([]Entry, error) {
	for _, en := range m.entries {
		if en.Seq > after {
			return []Entry{en}, nil
		}
	}
	return nil, nil
}

func sample() *memDump {
	at := time.UnixMicro(1_900_000_000_000_000).UTC()
	return &memDump{
		state:   State{LastSeq: 4, Trimmed: 2, At: at},
		items:   []Item{{"a", []byte("1")}, {"b\x00", nil}, {"\xff", bytes.Repeat([]byte("x"), 300)}},
		entries: []Entry{{3, at, []byte("three")}, {4, at, nil}},
	}
}

func written(t testing.TB, d Dump) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := WriteDump(context.Background(), &b, "repo/x", d, nil); err != nil {
		t.Fatalf("WriteDump = %v", err)
	}
	return b.Bytes()
}

// readAll reads a dump file to its end.
func readAll(file []byte) (*memDump, error) {
	r, err := NewDumpReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	m := &memDump{}
	for {
		c, err := r.Next()
		if err == io.EOF {
			return m, nil
		}
		if err != nil {
			return nil, err
		}
		m.items, m.entries = append(m.items, c.Items...), append(m.entries, c.Log...)
		if c.State != nil {
			m.state = *c.State
		}
	}
}

func TestDumpFileComesBack(t *testing.T) {
	file := written(t, sample())
	got, err := readAll(file)
	if err != nil {
		t.Fatalf("read = %v", err)
	}
	if again := written(t, got); !bytes.Equal(again, file) {
		t.Errorf("what was read is written as %q, want %q", again, file)
	}
	if got, want := fmt.Sprint(got.items), fmt.Sprint(sample().items); got != want {
		t.Errorf("items = %s, want %s", got, want)
	}
}

// A dump that was cut anywhere is never taken for a whole one.
func TestDumpFileThatWasCut(t *testing.T) {
	file := written(t, sample())
	for n := range len(file) {
		if got, err := readAll(file[:n]); !errors.Is(err, ErrBadDump) {
			t.Errorf("first %d of %d bytes = %+v, %v; want ErrBadDump", n, len(file), got, err)
		}
	}
	if _, err := readAll(append(file, 0)); !errors.Is(err, ErrBadDump) {
		t.Errorf("a byte too many = %v, want ErrBadDump", err)
	}
}

// A reader's own error is not hidden behind ErrBadDump.
func TestDumpReaderTellsWhatFailed(t *testing.T) {
	lost := errors.New("disk is gone")
	file := written(t, sample())
	r, err := NewDumpReader(io.MultiReader(bytes.NewReader(file[:60]), brokenReader{lost}))
	for err == nil {
		_, err = r.Next()
	}
	if !errors.Is(err, lost) {
		t.Errorf("read = %v, want %v", err, lost)
	}
}

type brokenReader struct{ err error }

func (b brokenReader) Read([]byte) (int, error) { return 0, b.err }

func TestWriteDumpRefusesHoles(t *testing.T) {
	for name, change := range map[string]func(*memDump){
		"an entry is missing": func(m *memDump) { m.entries = m.entries[1:] },
		"the log ends early":  func(m *memDump) { m.entries = m.entries[:1] },
	} {
		m := sample()
		change(m)
		if err := WriteDump(context.Background(), io.Discard, "repo/x", m, nil); err == nil {
			t.Errorf("%s: WriteDump = nil, want an error", name)
		}
	}
	stop := errors.New("stop")
	if err := WriteDump(context.Background(), io.Discard, "repo/x", sample(), func(Item) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("WriteDump with a see that fails = %v", err)
	}
}

// Any two spaces that differ have different files.
func TestDumpFileIsOfOneSpace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) *memDump {
			m := sample()
			m.items = nil
			for i := range rapid.IntRange(0, 3).Draw(t, label+" keys") {
				m.items = append(m.items, Item{fmt.Sprint(i), rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, label+" value")})
			}
			return m
		}
		file := func(m *memDump) string {
			var b bytes.Buffer
			if err := WriteDump(context.Background(), &b, "s", m, nil); err != nil {
				t.Fatalf("WriteDump = %v", err)
			}
			return b.String()
		}
		a, b := draw("a"), draw("b")
		if same := fmt.Sprint(a.items) == fmt.Sprint(b.items); same != (file(a) == file(b)) {
			t.Fatalf("same content: %v, same file: %v", same, !same)
		}
	})
}

func FuzzDumpReader(f *testing.F) {
	file := written(f, sample())
	f.Add(file)
	f.Add(file[:40])
	f.Add([]byte(dumpMagic + "S\x01x\x05\x02\x00E\x00\x03"))
	f.Add([]byte(dumpMagic + "S\x01x\x00\x00\x00K\x01a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, file []byte) {
		m, err := readAll(file)
		if err != nil {
			if !errors.Is(err, ErrBadDump) {
				t.Fatalf("read = %v, want ErrBadDump", err)
			}
			return
		}
		var b bytes.Buffer
		if err := WriteDump(context.Background(), &b, "s", m, nil); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
	})
}
