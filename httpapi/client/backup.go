package client

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/gitstore/ledger"
)

// Backup has the server back up everything into a sink. have tells the packs that the
// sink has already; their names go to the server. With skipDamaged the server goes on
// without a repo that it cannot read, and the sink is told.
func (c *Client) Backup(ctx context.Context, have func(tell func(pack string)), to gitstore.BackupSink, skipDamaged bool) error {
	names, w := io.Pipe()
	told := make(chan struct{})
	go func() {
		defer close(told)
		out := bufio.NewWriter(w)
		have(func(pack string) { _, _ = out.WriteString(pack + "\n") })
		w.CloseWithError(out.Flush())
	}()
	what := "backup"
	if skipDamaged {
		what += "?skip_damaged=true"
	}
	err := c.ask(ctx, what, names, backupOf(to))
	names.Close()
	<-told
	return err
}

// backupOf gives the events of a backup to a sink. A file is not read by itself: a
// server may drop it in the middle.
func backupOf(to gitstore.BackupSink) func(*events, event) error {
	sum, open := sha256.New(), false
	return func(s *events, e event) error {
		switch {
		case e.Type == "drop":
			open = false
			return to.Drop(ledger.Space(e.Space))
		case e.Type == "keep" && !open:
			return to.Keep(e.Repo, e.Pack)
		case e.Type == "damaged" && !open:
			return to.Damaged(gitstore.DamagedRepo{ID: e.ID, Org: e.Org, Name: e.Repo, Err: &ServerError{Text: e.Error}})
		case e.Type == "file" && !open:
			open = true
			sum.Reset()
			f := e.File
			return to.Begin(gitstore.BackupFile{Kind: f.Kind, Space: ledger.Space(f.Space), Repo: f.Repo, Pack: f.Pack, Size: f.Size})
		case e.Type == "data" && open:
			return s.data(e.Bytes, io.MultiWriter(to, sum))
		case e.Type == "end" && open:
			open = false
			if e.SHA256 != hex.EncodeToString(sum.Sum(nil)) {
				return fmt.Errorf("%w: a file does not have its checksum", ErrBadAnswer)
			}
			return to.End()
		}
		return errOutOfPlace
	}
}
