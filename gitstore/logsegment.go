package gitstore

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// A segment is a file with old entries of a repo's log. It is gzip of lines of JSON:
//
//	segment = head *entry end
//	head    = {"form":"headgate log 1","repo":ID,"first":SEQ} LF
//	entry   = {"seq":SEQ,"at":TIME,"data":JSON} LF / {"seq":SEQ,"at":TIME,"raw":BASE64} LF   ; raw: what is no JSON
//	end     = {"last":SEQ} LF
//
// The numbers of the entries are first, first+1, ... last. It is registered in the
// ledger, under segment/<last>, before the ledger drops what is in it; a file that is
// not registered does not exist for anybody. Names are never used twice.
const (
	segmentForm    = "headgate log 1"
	segmentFolder  = "log"
	segmentEnding  = ".ndjson.gz"
	segmentEntries = 5_000   // of one segment
	segmentBytes   = 2 << 20 // of their data; the entry that goes beyond is the last
	// segmentMost is the most that a segment can be when it is inflated: one entry beyond
	// the limit, all of it in base64.
	segmentMost       = 2 * (segmentBytes + ledger.MaxBatchBytes)
	segmentCacheBytes = 8 * segmentBytes
)

var segmentNameForm = regexp.MustCompile(`^log-[0-9]{20}-[0-9]{20}-[0-9a-f]{16}$`)

// checkSegmentName refuses what is no name of a segment: one that passes is safe in a path.
func checkSegmentName(name string) error {
	if !segmentNameForm.MatchString(name) {
		return fmt.Errorf("%w: %.80q is no name of a part of a log", ErrInvalid, name)
	}
	return nil
}

// segmentRecord is what stands under a segment's key.
type segmentRecord struct {
	Name   string    `json:"name"`
	First  uint64    `json:"first"`
	Last   uint64    `json:"last"`
	At     time.Time `json:"at"` // of the last entry
	Size   int64     `json:"size"`
	SHA256 string    `json:"sha256"` // of the file
}

const segmentKeys = "segment/" // segment/<last> -> segment record

func segmentKey(last uint64) string { return fmt.Sprintf("%s%016x", segmentKeys, last) }

// segmentsFrom are the bounds of the keys of those segments that end at or after seq.
func segmentsFrom(seq uint64) (from, to string) { return segmentKey(seq), segmentKeys + "g" }

func decodeSegmentRecord(b []byte) (segmentRecord, error) {
	var rec segmentRecord
	err := json.Unmarshal(b, &rec)
	if err == nil {
		err = checkSegmentName(rec.Name)
	}
	if err != nil {
		return rec, fmt.Errorf("decode segment record: %w", err)
	}
	return rec, nil
}

func (s *Store) segmentDir(id string) string { return filepath.Join(s.repoDir(id), segmentFolder) }

func (s *Store) segmentPath(id, name string) string { return s.segmentFile(id, name+segmentEnding) }

func (s *Store) segmentFile(id, file string) string { return filepath.Join(s.segmentDir(id), file) }
