package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/headgate/headgate/sessions/snapshot"
	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

// sweepCommand begins a command line that asks for the sweep of chunk sizes.
const sweepCommand = "sweep"

// runSweep writes what saves of a memory image cost for each chunk size, in one table.
// Times are those of one processor, in its own time; bytes are those of pack and idx, as
// the format of package snapshot has them.
func runSweep(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet(sweepCommand, flag.ContinueOnError)
	mib := flags.Int("image", 256, "MiB of the memory image")
	share := flags.Float64("zero", 0.6, "share of its pages that are zeros")
	if err := flags.Parse(args); err != nil {
		return err
	}
	first := snapshottest.NewImage(1, int64(*mib)<<20, *share)
	images := map[string]*snapshottest.Image{
		"first": first, "clustered": first.Mutate(1, 0.01, snapshottest.Clustered), "scattered": first.Mutate(2, 0.01, snapshottest.Scattered),
	}
	contents := map[string][]byte{}
	for name, image := range images {
		var all bytes.Buffer
		all.Grow(int(image.Size()))
		if _, err := image.WriteTo(&all); err != nil {
			return err
		}
		contents[name] = all.Bytes()
	}
	changed := float64(images["scattered"].Changed(first) * snapshottest.PageBytes)
	fmt.Fprintf(out, "%d MiB, %.0f%% zero pages; 1%% of the pages are %.2f MiB\n\n", *mib, 100**share, changed/(1<<20))
	fmt.Fprintln(out, "| chunk | hash and encode | first save | of it lists and trees | 1% clustered | of the changed | 1% scattered | of the changed | decode and hash | one page |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|")
	for chunk := snapshot.MinChunk; chunk <= 256<<10; chunk *= 2 {
		if err := ctx.Err(); err != nil {
			return err
		}
		s, err := sweepOf(contents, chunk)
		if err != nil {
			return err
		}
		speed := func(d time.Duration) string {
			return fmt.Sprintf("%.0f MB/s", float64(len(contents["first"]))/1e6/d.Seconds())
		}
		fmt.Fprintf(out, "| %d KiB | %s | %.1f MiB | %.1f%% | %.2f MiB | %.2fx | %.2f MiB | %.2fx | %s | %s |\n", chunk>>10,
			speed(s.encode), mebi(s.first.all), 100*float64(s.first.all-s.first.chunks)/float64(s.first.all),
			mebi(s.clustered.all), float64(s.clustered.all)/changed, mebi(s.scattered.all), float64(s.scattered.all)/changed,
			speed(s.decode), s.page.Round(100*time.Nanosecond))
	}
	return nil
}

func mebi(n int64) float64 { return float64(n) / (1 << 20) }

// A swept chunk size is what saves cost with it.
type swept struct {
	encode, decode              time.Duration // of the whole image
	page                        time.Duration // to decode a chunk for one of its pages
	first, clustered, scattered stored
}

// stored is what a save adds on disk, in bytes.
type stored struct{ all, chunks int64 }

// sweepOf saves the first image and the two that came of it, each after the first.
func sweepOf(contents map[string][]byte, chunk int) (s swept, err error) {
	a := &accounts{coder: snapshot.NewCoder(), chunk: chunk, blobs: map[snapshot.Hash][]byte{}}
	first, took := a.leaves(contents["first"])
	s.encode = took
	s.first = a.save(first, nil)
	if s.decode, s.page, err = a.decode(first, contents["first"]); err != nil {
		return s, err
	}
	for name, to := range map[string]*stored{"clustered": &s.clustered, "scattered": &s.scattered} {
		next, _ := a.leaves(contents[name])
		*to = a.save(next, first)
	}
	return s, nil
}

// accounts tell what is stored of images cut into chunks of one size.
type accounts struct {
	coder *snapshot.Coder
	chunk int
	blobs map[snapshot.Hash][]byte
}

// leaves cuts, hashes and encodes an image, and tells how long that took.
func (a *accounts) leaves(content []byte) (all []snapshot.Leaf, took time.Duration) {
	buf := make([]byte, 2*a.chunk)
	begun := processorTime()
	for len(content) > 0 {
		leaf := snapshot.Leaf{Index: len(all)}
		for len(content) > 0 && len(leaf.Chunks) < snapshot.LeafChunks {
			n := min(a.chunk, len(content))
			c := snapshot.ChunkOf(content[:n])
			if _, there := a.blobs[c.Hash]; !there && !c.Hash.IsZero() {
				a.blobs[c.Hash] = bytes.Clone(a.coder.Encode(content[:n], buf))
			}
			leaf.Chunks = append(leaf.Chunks, c)
			content = content[n:]
		}
		leaf.Hash(snapshot.Pages)
		all = append(all, leaf)
	}
	return all, processorTime() - begun
}

// processorTime is what this program has used of it.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// save tells what is added for an image after another one: chunks that are nowhere in
// it, lists and trees of leaves that are other than its, and what each snapshot has.
func (a *accounts) save(leaves, before []snapshot.Leaf) (s stored) {
	known := map[snapshot.Hash]bool{{}: true}
	for _, leaf := range before {
		for _, c := range leaf.Chunks {
			known[c.Hash] = true
		}
	}
	trees := 0
	for i, leaf := range leaves {
		for _, c := range leaf.Chunks {
			if !known[c.Hash] {
				known[c.Hash] = true
				s.chunks += packed(len(a.blobs[c.Hash]))
			}
		}
		if leaf.Zeros() {
			continue
		}
		trees++
		if i < len(before) && leaf.Hash(snapshot.Pages) == before[i].Hash(snapshot.Pages) {
			continue
		}
		s.all += packed(len(leaf.Chunks)*snapshot.EntryBytes) + packed(leafTreeBytes(leaf))
	}
	const imageTreeEntry, rootTree, manifest, commit = len("40000 000000\x00") + 20, 80, 700, 250
	s.all += s.chunks + packed(trees*imageTreeEntry) + packed(rootTree) + packed(manifest) + packed(commit)
	return s
}

// leafTreeBytes is the length of a leaf's tree: its list, and the chunks that have a blob.
func leafTreeBytes(leaf snapshot.Leaf) int {
	n := len("100644 h\x00") + 20
	for _, c := range leaf.Chunks {
		if !c.Hash.IsZero() {
			n += len("100644 00\x00") + 20
		}
	}
	return n
}

// packed is what an object of n bytes takes in a pack of stored entries and its idx.
func packed(n int) int64 {
	const head, zlib, block, idx = 3, 2 + 4, 5, 20 + 4 + 4
	return int64(head + zlib + block*max(1, (n+65_534)/65_535) + n + idx)
}

var errOtherContent = errors.New("decoding gave another content")

// decode restores an image and tells how long that took, and how long one page of it did.
func (a *accounts) decode(leaves []snapshot.Leaf, want []byte) (took, page time.Duration, err error) {
	buf := make([]byte, a.chunk)
	begun, n, at := processorTime(), 0, 0
	for _, leaf := range leaves {
		for _, c := range leaf.Chunks {
			if !c.Hash.IsZero() {
				content, err := a.coder.Decode(c, a.blobs[c.Hash], buf)
				if err != nil {
					return 0, 0, err
				}
				if !bytes.Equal(content[:16], want[at:at+16]) {
					return 0, 0, errOtherContent
				}
				n++
			}
			at += int(c.Length)
		}
	}
	took = processorTime() - begun
	return took, took / time.Duration(max(1, n)), nil
}
