package snapshottest

import (
	"fmt"
	"io"
	"iter"
	"slices"
)

// PageBytes is the size of a page, in bytes.
const PageBytes = 4 << 10

const (
	// Pages come in runs of one kind: zero pages of a real memory mostly lie together.
	runPages = 32
	// strewn is the share of zero pages within the other runs, at most.
	strewn = 0.05
	// clusterPages is how many pages that follow each other a clustered change has.
	clusterPages = 64
)

// An Image is an image that looks like the memory of a machine. It never changes and is
// safe for concurrent use.
type Image struct {
	seed     uint64
	size     int64
	zeroRuns float64 // share of runs that are zeros
	zeroElse float64 // share of zero pages in the others
	changes  uint32  // how many mutations it has seen
	versions []uint32
}

var _ io.ReaderAt = (*Image)(nil)

// NewImage makes an image of size bytes of which about zeroShare (0 to 1) are zero pages.
// The others look like text, code, heaps full of pointers and random bytes, and some are
// equal to another page.
func NewImage(seed uint64, size int64, zeroShare float64) *Image {
	im := &Image{seed: mix(seed), size: size, zeroElse: min(zeroShare, strewn)}
	if im.zeroElse < 1 {
		im.zeroRuns = (zeroShare - im.zeroElse) / (1 - im.zeroElse)
	}
	return im
}

// Size is the image's size in bytes.
func (im *Image) Size() int64 { return im.size }

// Pages is how many pages it has; the last one may be cut.
func (im *Image) Pages() int { return int((im.size + PageBytes - 1) / PageBytes) }

// How says where pages change.
type How int

// The ways there are.
const (
	Scattered How = iota // each on its own, anywhere
	Clustered            // in runs of 64 pages
)

// Mutate is the image after share (0 to 1) of its pages were written, other ones for each
// seed: none of those is a zero page afterwards.
func (im *Image) Mutate(seed uint64, share float64, how How) *Image {
	pages := im.Pages()
	next := *im
	next.changes++
	if next.versions = slices.Clone(im.versions); next.versions == nil {
		next.versions = make([]uint32, pages)
	}
	run := 1
	if how == Clustered {
		run = clusterPages
	}
	places := (pages + run - 1) / run
	r := random(mix(seed) ^ mix(im.seed+uint64(next.changes)))
	// Rounded twice, so that no machine fuses the two steps into one.
	for left := min(int(float64(share*float64(pages))+0.5), pages); left > 0; {
		first := int(r.below(uint64(places))) * run
		if next.versions[first] == next.changes {
			continue
		}
		for p := first; p < min(first+run, pages) && left > 0; p++ {
			next.versions[p] = next.changes
			left--
		}
	}
	return &next
}

// ChangedPages are the numbers of the pages that were written since before, an image that
// im came of.
func (im *Image) ChangedPages(before *Image) iter.Seq[int] {
	return func(yield func(int) bool) {
		for p := range im.versions {
			if im.version(p) > before.changes && !yield(p) {
				return
			}
		}
	}
}

// Changed is how many pages those are.
func (im *Image) Changed(before *Image) (n int) {
	for range im.ChangedPages(before) {
		n++
	}
	return n
}

func (im *Image) version(page int) uint32 {
	if im.versions == nil {
		return 0
	}
	return im.versions[page]
}

// ReadAt reads as any io.ReaderAt.
func (im *Image) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("read image: offset %d", off)
	}
	for n < len(p) && off < im.size {
		in := int(off % PageBytes)
		want := p[n:min(int64(len(p)), int64(n)+PageBytes-int64(in), int64(n)+im.size-off)]
		if in == 0 && len(want) == PageBytes {
			im.fill((*[PageBytes]byte)(want), int(off/PageBytes))
		} else {
			var page [PageBytes]byte
			im.fill(&page, int(off/PageBytes))
			copy(want, page[in:])
		}
		n += len(want)
		off += int64(len(want))
	}
	if n < len(p) {
		err = io.EOF
	}
	return n, err
}

// Reader reads the image from its beginning.
func (im *Image) Reader() io.Reader { return io.NewSectionReader(im, 0, im.size) }

// WriteTo writes all of it.
func (im *Image) WriteTo(w io.Writer) (int64, error) { return writeTo(w, im, im.size) }

func writeTo(w io.Writer, r io.ReaderAt, size int64) (n int64, err error) {
	buf := make([]byte, 256<<10)
	for n < size {
		part := buf[:min(int64(len(buf)), size-n)]
		if _, err := r.ReadAt(part, n); err != nil {
			return n, err
		}
		m, err := w.Write(part)
		n += int64(m)
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// fill makes a page.
func (im *Image) fill(page *[PageBytes]byte, number int) {
	version := im.version(number)
	if version == 0 {
		im.original(page, number)
		return
	}
	r := random(mix(im.seed^uint64(version)<<40) ^ mix(uint64(number)))
	if r.below(10) == 0 { // moved here from elsewhere
		im.original(page, int(r.below(uint64(im.Pages()))))
		if *page != [PageBytes]byte{} {
			return
		}
	}
	fillAs(kindOf(&r), page, r)
}

// original makes a page as it was before any change.
func (im *Image) original(page *[PageBytes]byte, number int) {
	run := random(mix(im.seed + uint64(number/runPages)))
	r := random(im.seed ^ mix(uint64(number)+1<<48))
	if run.share() < im.zeroRuns || r.share() < im.zeroElse {
		clear(page[:])
		return
	}
	if r.below(50) == 0 { // one of few pages that are in many places
		r = random(im.seed ^ mix(r.below(64)+1<<52))
		fillAs(kindOf(&r), page, r)
		return
	}
	fillAs(kindOf(&run), page, r)
}
