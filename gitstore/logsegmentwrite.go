package gitstore

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/packs"
)

// segmentLine is a line of a segment, of whatever kind.
type segmentLine struct {
	Form  string          `json:"form,omitempty"`
	Repo  string          `json:"repo,omitempty"`
	First uint64          `json:"first,omitempty"`
	Seq   uint64          `json:"seq,omitempty"`
	At    time.Time       `json:"at,omitzero"`
	Data  json.RawMessage `json:"data,omitempty"`
	Raw   []byte          `json:"raw,omitempty"`
	Last  uint64          `json:"last,omitempty"`
}

// segmentIncoming is what the name of a segment begins with while it is written.
const segmentIncoming = "incoming-"

// segmentWriter writes a segment to a file that nobody knows yet.
type segmentWriter struct {
	fs    packs.FS
	dir   string
	tmp   string
	file  packs.File
	sum   hash.Hash
	buf   *bufio.Writer
	zip   *gzip.Writer
	lines *json.Encoder
	rec   segmentRecord
	count int
	bytes int
	line  []byte
	most  int // entries
}

// newSegment begins a segment of a repo whose first entry is numbered first. The caller
// calls close, whatever comes of it.
func (s *Store) newSegment(id string, first uint64) (*segmentWriter, error) {
	w := &segmentWriter{fs: s.fs, most: s.segmentEntries, dir: s.segmentDir(id), sum: sha256.New(), rec: segmentRecord{First: first, Last: first - 1}}
	err := w.fs.Mkdir(w.dir)
	if err == nil {
		err = w.fs.SyncDir(filepath.Dir(w.dir))
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make folder of old log: %w", err)
	}
	w.tmp = filepath.Join(w.dir, segmentIncoming+randomName())
	if w.file, err = w.fs.Create(w.tmp); err != nil {
		return nil, fmt.Errorf("write old log: %w", err)
	}
	w.buf = bufio.NewWriterSize(io.MultiWriter(w.file, w.sum), 64<<10)
	w.zip = gzip.NewWriter(w.buf)
	w.lines = json.NewEncoder(w.zip)
	w.lines.SetEscapeHTML(false) // data stays as it is
	if err := w.lines.Encode(segmentLine{Form: segmentForm, Repo: id, First: first}); err != nil {
		w.close()
		return nil, fmt.Errorf("write old log: %w", err)
	}
	return w, nil
}

// randomName is a name that was never given before.
func randomName() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// full reports whether no further entry belongs into the segment.
func (w *segmentWriter) full() bool { return w.count >= w.most || w.bytes >= segmentBytes }

// add writes the next entry.
func (w *segmentWriter) add(e ledger.Entry) error {
	if e.Seq != w.rec.Last+1 {
		return fmt.Errorf("write old log: entry %d where %d was due", e.Seq, w.rec.Last+1)
	}
	// Data is put into the line as it is: an encoder would read it once more, and change it.
	at, err := e.At.MarshalJSON()
	w.line = fmt.Appendf(w.line[:0], `{"seq":%d,"at":%s,`, e.Seq, at)
	if fitsLine(e.Data) {
		w.line = append(append(w.line, `"data":`...), e.Data...)
	} else {
		w.line = append(base64.StdEncoding.AppendEncode(append(w.line, `"raw":"`...), e.Data), '"')
	}
	if err == nil {
		_, err = w.zip.Write(append(w.line, "}\n"...))
	}
	if err != nil {
		return fmt.Errorf("write old log: %w", err)
	}
	w.rec.Last, w.rec.At = e.Seq, e.At
	w.count++
	w.bytes += len(e.Data)
	return nil
}

// fitsLine reports whether data comes back from a line of JSON byte by byte.
func fitsLine(data []byte) bool {
	return !bytes.ContainsRune(data, '\n') && len(bytes.TrimSpace(data)) == len(data) && json.Valid(data)
}

// finish makes the segment durable under a name of its own.
func (w *segmentWriter) finish() (segmentRecord, error) {
	err := w.lines.Encode(segmentLine{Last: w.rec.Last})
	for _, step := range []func() error{w.zip.Close, w.buf.Flush, w.file.Sync} {
		if err == nil {
			err = step()
		}
	}
	w.rec.Name = fmt.Sprintf("log-%020d-%020d-%s", w.rec.First, w.rec.Last, randomName())
	w.rec.SHA256 = hex.EncodeToString(w.sum.Sum(nil))
	if info, serr := w.file.Stat(); err == nil && serr == nil {
		w.rec.Size = info.Size()
	} else {
		err = errors.Join(err, serr)
	}
	if err == nil {
		err = w.fs.Rename(w.tmp, filepath.Join(w.dir, w.rec.Name+segmentEnding))
	}
	if err == nil {
		w.tmp = ""
		err = w.fs.SyncDir(w.dir)
	}
	if err != nil {
		return segmentRecord{}, fmt.Errorf("write old log: %w", err)
	}
	return w.rec, nil
}

// close lets go of the file. One that was not finished is removed.
func (w *segmentWriter) close() error {
	err := w.file.Close()
	if w.tmp != "" {
		err = errors.Join(err, w.fs.Remove(w.tmp))
	}
	return err
}
