package gitstore

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/klauspost/compress/gzip"

	"github.com/headgate/headgate/gitstore/ledger"
)

// errBadSegment is damage of a segment.
var errBadSegment = errors.New("damaged part of the log")

func badSegment(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errBadSegment, fmt.Sprintf(format, args...))
}

// parseSegment reads a whole segment of a repo.
func parseSegment(r io.Reader, repo string) ([]ledger.Entry, error) {
	zip, err := gzip.NewReader(r)
	if err != nil {
		return nil, badSegment("%v", err)
	}
	p := segmentParser{in: bufio.NewReaderSize(io.LimitReader(zip, segmentMost), 64<<10)}
	head, err := p.line()
	if err != nil {
		return nil, err
	}
	if head.Form != segmentForm || head.Repo != repo || head.First == 0 {
		return nil, badSegment("it begins as %.40q of %.80q", head.Form, head.Repo)
	}
	var entries []ledger.Entry
	for next := head.First; ; next++ {
		line, err := p.line()
		switch {
		case err != nil:
			return nil, err
		case line.Last != 0:
			return entries, p.end(line.Last == next-1 && len(entries) > 0)
		case line.Seq != next:
			return nil, badSegment("entry %d where %d was due", line.Seq, next)
		}
		data := []byte(line.Data)
		if data == nil {
			data = line.Raw
		}
		entries = append(entries, ledger.Entry{Seq: line.Seq, At: line.At, Data: data})
	}
}

type segmentParser struct{ in *bufio.Reader }

func (p *segmentParser) line() (line segmentLine, err error) {
	text, err := p.in.ReadBytes('\n')
	if err != nil {
		return line, badSegment("cut: %v", err)
	}
	if err := json.Unmarshal(text, &line); err != nil {
		return line, badSegment("%v", err)
	}
	return line, nil
}

// end wants nothing behind the last line; what is compressed is checked by it as well.
func (p *segmentParser) end(fits bool) error {
	if _, err := p.in.ReadByte(); err != io.EOF || !fits {
		return badSegment("it does not end where it says")
	}
	return nil
}

// segment reads a registered segment. What is wrong with the file is errBadSegment, or
// fs.ErrNotExist.
func (s *Store) segment(id string, rec segmentRecord) ([]ledger.Entry, error) {
	if entries, ok := s.segments.get(rec.Name); ok {
		return entries, nil
	}
	entries, err := s.readSegment(id, rec)
	if err != nil {
		return nil, err
	}
	cost := int64(64 * len(entries))
	for _, e := range entries {
		cost += int64(len(e.Data))
	}
	s.segments.put(rec.Name, entries, cost)
	return entries, nil
}

func (s *Store) readSegment(id string, rec segmentRecord) ([]ledger.Entry, error) {
	f, err := s.fs.Open(s.segmentPath(id, rec.Name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	file, err := io.ReadAll(io.LimitReader(f, rec.Size+1))
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(file); int64(len(file)) != rec.Size || hex.EncodeToString(sum[:]) != rec.SHA256 {
		return nil, badSegment("it does not have its size or its checksum")
	}
	entries, err := parseSegment(bytes.NewReader(file), id)
	if err != nil {
		return nil, err
	}
	if entries[0].Seq != rec.First || entries[len(entries)-1].Seq != rec.Last {
		return nil, badSegment("it holds %d to %d", entries[0].Seq, entries[len(entries)-1].Seq)
	}
	return entries, nil
}

// logAfter reads entries of the log after a number, at most limit (at least 1), from the
// ledger or from the segment that has the next one. None is the end. It is
// ledger.ErrLogTrimmed when the next one is not kept any more, or is lost.
func (r *Repo) logAfter(ctx context.Context, v ledger.View, after uint64, limit int) ([]ledger.Entry, error) {
	entries, err := v.Log(ctx, after, limit)
	if !errors.Is(err, ledger.ErrLogTrimmed) {
		return entries, err
	}
	rec, err := segmentWith(ctx, v, after+1)
	if err != nil {
		return nil, err
	}
	entries, err = r.store.segment(r.id, rec)
	if errors.Is(err, errBadSegment) || errors.Is(err, fs.ErrNotExist) {
		r.store.log.Warn("read old log", "repo", r.id, "part", rec.Name, "err", err)
		return nil, fmt.Errorf("%w: part %s cannot be read", ledger.ErrLogTrimmed, rec.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("read part %s of the log: %w", rec.Name, err)
	}
	entries = entries[after+1-rec.First:]
	return entries[:min(limit, len(entries))], nil
}

// segmentWith is the segment that has the entry numbered seq.
func segmentWith(ctx context.Context, v ledger.View, seq uint64) (segmentRecord, error) {
	from, to := segmentsFrom(seq)
	items, err := v.Range(ctx, from, to, 1)
	if err != nil {
		return segmentRecord{}, err
	}
	if len(items) == 0 {
		return segmentRecord{}, ledger.ErrLogTrimmed
	}
	rec, err := decodeSegmentRecord(items[0].Value)
	if err == nil && (seq < rec.First || seq > rec.Last) {
		err = ledger.ErrLogTrimmed
	}
	return rec, err
}
