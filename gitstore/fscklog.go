package gitstore

import (
	"context"
	"errors"
	"io/fs"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
)

// The kinds of damage of a repo's log.
const (
	FindLogMissing FindingKind = "log-missing" // a part of the log whose file is not there
	FindLogBroken  FindingKind = "log-broken"  // a part of the log that cannot be read, or is not what its record says
	FindLogRecord  FindingKind = "log-record"  // a part's record that cannot be read
	FindLogGap     FindingKind = "log-gap"     // entries that are in no part and not in the ledger
	FindLogUnknown FindingKind = "log-unknown" // a file of the log that no record names; harmless, removed by upkeep when old
)

// Harmless reports whether what was found is left over and no damage.
func (k FindingKind) Harmless() bool { return k == FindPackUnknown || k == FindLogUnknown }

// log looks at every part of the repo's log: each whole, one after the other, and the
// ledger's own log behind the last. They may overlap.
func (f *fsck) log(ctx context.Context) error {
	known := map[string]bool{}
	last := uint64(0) // of the parts so far; 0: none yet
	err := f.r.eachPage(ctx, segmentKeys, func(items []ledger.Item) error {
		for _, it := range items {
			rec, err := decodeSegmentRecord(it.Value)
			if err != nil || segmentKey(rec.Last) != it.Key || rec.First == 0 || rec.First > rec.Last {
				f.find(FindLogRecord, it.Key, "it cannot be read, or is of another part: %v", err)
				continue
			}
			known[rec.Name] = true
			if last > 0 && rec.First > last+1 {
				f.find(FindLogGap, rec.Name, "it begins at %d, the part before it ends at %d", rec.First, last)
			}
			last = rec.Last
			if err := f.segment(ctx, rec, it); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = f.newestLog(ctx)
	}
	if err != nil {
		return err
	}
	return f.unknownLog(ctx, known)
}

// segment reads a part of the log from its file, whatever is cached.
func (f *fsck) segment(ctx context.Context, rec segmentRecord, it ledger.Item) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	_, err := f.store.readSegment(f.id, rec)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if raw, rerr := readKey(ctx, f.r.ledger.ReadKeys, f.r.space, it.Key); rerr != nil || raw != nil {
			f.find(FindLogMissing, rec.Name, "its file is not there")
		}
	case errors.Is(err, errBadSegment):
		f.find(FindLogBroken, rec.Name, "%v", err)
	case err != nil:
		return err
	}
	return nil
}

// newestLog wants the ledger's log to begin where the parts end, both as of one moment.
func (f *fsck) newestLog(ctx context.Context) error {
	for try := 1; ; try++ {
		before, err := f.r.logState(ctx)
		if err != nil {
			return err
		}
		page, err := f.r.logPage(ctx, before.archived, 1)
		if err != nil && !errors.Is(err, ledger.ErrLogTrimmed) {
			return err
		}
		after, serr := f.r.logState(ctx)
		if serr != nil {
			return serr
		}
		if after.archived != before.archived && try < listTries {
			continue // parts are being made
		}
		switch {
		case err != nil, len(page) == 0 && before.archived < before.newest, len(page) > 0 && page[0].Seq != before.archived+1:
			f.find(FindLogGap, f.id, "the ledger's log does not begin after %d, where the parts of the log end", before.archived)
		case before.archived > before.newest:
			f.find(FindLogGap, f.id, "the parts of the log end at %d, the ledger's log at %d", before.archived, before.newest)
		}
		return f.lastSegment(ctx, before)
	}
}

// lastSegment wants the number up to which the log is in parts to be that of one.
func (f *fsck) lastSegment(ctx context.Context, st logState) error {
	if st.archived == 0 {
		return nil
	}
	raw, err := readKey(ctx, f.r.ledger.ReadKeys, f.r.space, segmentKey(st.archived))
	if err != nil || raw != nil {
		return err
	}
	v, err := f.r.ledger.Read(ctx, f.r.space)
	if err != nil {
		return err
	}
	defer v.Close()
	some, err := v.Scan(ctx, segmentKeys, "", 1)
	if err == nil && len(some) > 0 { // else all of them were too old
		f.find(FindLogGap, f.id, "no part of the log ends at %d", st.archived)
	}
	return err
}

// unknownLog tells of files without a record.
func (f *fsck) unknownLog(ctx context.Context, known map[string]bool) error {
	files, err := f.store.segmentFiles(f.id)
	if err != nil {
		return err
	}
	var names []string
	for _, e := range files {
		name := strings.TrimSuffix(e.Name(), segmentEnding)
		if checkSegmentName(name) == nil && !known[name] {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	v, err := f.r.ledger.Read(ctx, f.r.space)
	if err != nil {
		return err
	}
	defer v.Close()
	registered, err := segmentRecords(ctx, v)
	if err != nil {
		return nil //nolint:nilerr // which record cannot be read has been told
	}
	for _, name := range names {
		if !registered[name] {
			f.find(FindLogUnknown, name, "no record names it")
		}
	}
	return nil
}
