package main

import (
	"errors"
	"os"

	"github.com/headgate/headgate/sessions/snapshot/snapshottest"
)

// zeroShare is the share of zero pages of images that are saved once or a few times.
const zeroShare = 0.6

// An imageFile is a file that looks like the memory of a machine, and changes. No byte
// of it is a hole: whoever writes a memory down writes its zeros too.
type imageFile struct {
	path    string
	image   *snapshottest.Image // as the file is
	changed int64               // bytes of the pages that were written last
	times   uint64              // that it was changed
}

func newImageFile(path string, size int64, zeros float64) (*imageFile, error) {
	f := &imageFile{path: path, image: snapshottest.NewImage(1, size, zeros)}
	return f, writeImage(path, f.image)
}

func writeImage(path string, image *snapshottest.Image) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = image.WriteTo(file)
	return errors.Join(err, file.Close())
}

// change writes one page in a hundred.
func (f *imageFile) change(how snapshottest.How) error {
	f.times++
	next := f.image.Mutate(f.times, 0.01, how)
	file, err := os.OpenFile(f.path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	f.changed = 0
	page := make([]byte, snapshottest.PageBytes)
	for p := range next.ChangedPages(f.image) {
		at := int64(p) * snapshottest.PageBytes
		if _, err = next.ReadAt(page, at); err != nil {
			break
		}
		if _, err = file.WriteAt(page, at); err != nil {
			break
		}
		f.changed += snapshottest.PageBytes
	}
	f.image = next
	return errors.Join(err, file.Close())
}
