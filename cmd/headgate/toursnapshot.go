package main

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/headgate/headgate/httpapi/client"
)

// tourImage is what the walk saves for a memory image: mostly zeros, as memory is.
func tourImage(generation byte) []byte {
	image := make([]byte, 8<<20)
	for at := 0; at < len(image); at += 5 * 4096 {
		copy(image[at:], bytes.Repeat(fmt.Appendf(nil, "what the agent remembers, page %d. ", at/4096), 64))
	}
	image[0] = generation
	return image
}

// saveMemory saves an image twice, of which one page has changed between, and restores it.
func (t *tour) saveMemory(ctx context.Context) error {
	api, err := client.NewAPI(t.base, t.backend)
	if err != nil {
		return err
	}
	snapshots := api.Snapshots(t.repo)
	var last client.Snapshot
	for _, save := range []struct {
		title      string
		generation byte
	}{
		{"The sandbox's memory is saved beside the workspace commit it belongs to: zeros are told, the rest is sent once", 'w'},
		{"The next save costs what has changed since, and is ready when all of it was read back", 'W'},
	} {
		t.title("%s", save.title)
		t.typed(fmt.Sprintf("headgate snapshot save --server %s --repo %s --session %s core.mem", t.base, t.repo, t.id))
		image := tourImage(save.generation)
		last, err = snapshots.Save(ctx, client.SaveOptions{Session: t.id, Parts: []client.SavePart{{
			Size: int64(len(image)),
			Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(image)), nil },
		}}})
		if err != nil {
			return err
		}
		t.shown(fmt.Sprintf("snapshot %s: %s, of which %s zeros; new %s", last.SHA, byteCount(last.Size), byteCount(last.Zero), byteCount(last.New)))
	}
	t.title("It comes back anywhere, every chunk verified, and no clone of the workspace ever downloads it")
	t.typed(fmt.Sprintf("headgate snapshot restore --server %s --repo %s %s restored.mem", t.base, t.repo, last.SHA))
	var restored bytes.Buffer
	got, err := snapshots.Restore(ctx, last.SHA, client.RestoreOptions{To: &restored})
	if err != nil {
		return err
	}
	if !bytes.Equal(restored.Bytes(), tourImage('W')) {
		return fmt.Errorf("snapshot %s came back as something else", last.SHA)
	}
	t.shown(fmt.Sprintf("%s, byte for byte; restore id %s", byteCount(got.Bytes), got.ID))
	return nil
}
