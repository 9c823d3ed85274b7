package packs

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"

	"github.com/headgate/headgate/refpolicy"
)

// Finish completes and syncs the pack, reads all of it again from the file, where each
// entry must be the one that was written when its object's id was made (see entryPrint),
// and names pack and idx. The pack exists for nobody until
// the caller registers the name. An entry that is not as it was written is a
// *BrokenError. On an error everything is removed.
func (w *StoredWriter) Finish(ctx context.Context) (Info, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done {
		return Info{}, ErrWriterDone
	}
	info, err := w.finish(ctx)
	if err != nil {
		return Info{}, errors.Join(fmt.Errorf("finish pack: %w", err), w.abort())
	}
	w.done = true
	return info, nil
}

func (w *StoredWriter) finish(ctx context.Context) (Info, error) {
	if err := w.ready(); err != nil {
		return Info{}, err
	}
	if len(w.entries) == 0 {
		return Info{}, ErrEmptyPack
	}
	if err := w.flush(); err != nil {
		return Info{}, err
	}
	h := packHeader(uint32(len(w.entries)))
	if _, err := w.f.WriteAt(h[:], 0); err != nil {
		return Info{}, err
	}
	// The disk works while the file is read again.
	synced := make(chan error, 1)
	go func() { synced <- w.f.Sync() }()
	sum, err := w.reread(ctx)
	if err := cmpErr(<-synced, err); err != nil {
		return Info{}, err
	}
	if _, err := w.f.WriteAt(sum[:], w.flushed); err != nil {
		return Info{}, err
	}
	if err := w.writeIdx(sum); err != nil {
		return Info{}, err
	}
	if err := w.f.Sync(); err != nil {
		return Info{}, err
	}
	err = w.f.Close()
	w.f = nil
	if err != nil {
		return Info{}, err
	}
	info := Info{Name: newName(), Size: w.flushed + packTrailLen, Objects: len(w.entries), Kind: KindSnapshot}
	return info, w.d.moveIn(info.Name, w.tmp, w.tmp+".idx")
}

// cmpErr gives the first error there is.
func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// reread reads the file once: its bytes make the checksum of the pack while each entry
// is held to its print.
func (w *StoredWriter) reread(ctx context.Context) (sum [sha1.Size]byte, err error) {
	blocks, free := make(chan []byte, 1), make(chan []byte, 2)
	free <- nil
	free <- nil
	summed := make(chan hash.Hash, 1)
	go func() {
		h := sha1.New()
		for b := range blocks {
			h.Write(b)
			free <- b
		}
		summed <- h
	}()
	err = w.rereadBlocks(ctx, blocks, free)
	close(blocks)
	(<-summed).Sum(sum[:0])
	return sum, err
}

// rereadBlocks passes on the file in blocks of whole entries.
func (w *StoredWriter) rereadBlocks(ctx context.Context, blocks chan<- []byte, free <-chan []byte) error {
	for i, at := 0, int64(0); at < w.flushed; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		next, end := w.blockFrom(i)
		b := slices.Grow((<-free)[:0], int(end-at))[:end-at]
		if _, err := w.f.ReadAt(b, at); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return w.rereadError(fmt.Errorf("read entry at %d: %w", at, err))
		}
		blocks <- b // which changes nothing in it
		for ; i < next; i++ {
			e := w.entries[i]
			if printOf(b[e.off-at:w.endOf(i)-at]) != e.print {
				return w.rereadError(fmt.Errorf("entry at %d, object %s: %w", e.off, e.id, errObject))
			}
		}
		at = end
	}
	return nil
}

func (w *StoredWriter) rereadError(err error) error {
	return &BrokenError{Name: "being finished", Err: err}
}

// blockFrom is how many entries, from i on, are read at once: it gives the entry behind
// them and where they end.
func (w *StoredWriter) blockFrom(i int) (next int, end int64) {
	start := w.entries[i].off
	for next = i; next < len(w.entries) && (next == i || w.endOf(next)-start <= storedBuffer); next++ {
		end = w.endOf(next)
	}
	return next, end
}

func (w *StoredWriter) endOf(i int) int64 {
	if i+1 < len(w.entries) {
		return w.entries[i+1].off
	}
	return w.size()
}

// checkStored holds a stored entry to its object's id.
func checkStored(raw []byte, want refpolicy.OID) error {
	id, err := storedID(raw)
	if err == nil && id != want {
		err = fmt.Errorf("object %s: %w", want, errObject)
	}
	return err
}

// storedID hashes the object in a stored entry.
func storedID(raw []byte) (id refpolicy.OID, err error) {
	head, err := parseHead(raw)
	if err != nil {
		return id, err
	}
	h := sha1.New()
	fmt.Fprintf(h, "%s %d\x00", head.typ, head.size)
	_, ok, err := eachStored(raw, func(block []byte) { h.Write(block) })
	if err == nil && !ok {
		err = errNotStored
	}
	h.Sum(id[:0])
	return id, err
}

// writeIdx writes the version 2 idx and syncs it.
func (w *StoredWriter) writeIdx(sum [sha1.Size]byte) error {
	f, err := w.d.fs.Create(w.tmp + ".idx")
	if err != nil {
		return err
	}
	err = encodeIdx(f, w.entries, sum)
	if err == nil {
		err = f.Sync()
	}
	return cmpErr(err, f.Close())
}

// encodeIdx writes the idx of a pack (see idx) that has these entries.
func encodeIdx(f io.Writer, entries []storedAt, sum [sha1.Size]byte) error {
	order := make([]uint32, len(entries))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int { return bytes.Compare(entries[a].id[:], entries[b].id[:]) })
	h := sha1.New()
	out := bufio.NewWriterSize(io.MultiWriter(f, h), 256<<10)
	_, _ = out.Write(idxMagic) // the first error stays in out
	var fan [256]uint32
	for _, e := range entries {
		fan[e.id[0]]++
	}
	put := func(v uint32) { _, _ = out.Write(binary.BigEndian.AppendUint32(out.AvailableBuffer(), v)) }
	total := uint32(0)
	for _, n := range fan {
		total += n
		put(total)
	}
	for _, i := range order {
		_, _ = out.Write(entries[i].id[:])
	}
	for _, i := range order {
		put(entries[i].crc)
	}
	var far []int64
	for _, i := range order {
		off := entries[i].off
		if off < 1<<31 {
			put(uint32(off))
			continue
		}
		put(1<<31 | uint32(len(far)))
		far = append(far, off)
	}
	for _, off := range far {
		_, _ = out.Write(binary.BigEndian.AppendUint64(out.AvailableBuffer(), uint64(off)))
	}
	_, _ = out.Write(sum[:])
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := f.Write(h.Sum(nil))
	return err
}
