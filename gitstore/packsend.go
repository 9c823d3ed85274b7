package gitstore

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/gitstore/wire"
	"github.com/headgate/headgate/refpolicy"
)

// A packOrder is all that git pack-objects is told of a fetch for which git
// upload-pack would do nothing but start it and frame what it says: no haves to
// negotiate, no shallow commits. A process and a copy of the pack are saved.
type packOrder struct {
	options []string
	wants   []refpolicy.OID
}

// orderOf is the order for a v2 request, of which what the caller may not read was
// taken out; nil if it takes more than that.
func orderOf(q *wire.FetchRequest) *packOrder {
	if !q.EndsInPack() || len(q.Haves)+len(q.Shallow) > 0 || q.Deepens() || q.DeepenRelative {
		return nil
	}
	o := &packOrder{wants: q.Wants}
	add := func(asked bool, option string) {
		if asked {
			o.options = append(o.options, option)
		}
	}
	add(q.ThinPack, "--thin")
	add(!q.NoProgress, "--progress")
	add(q.OFSDelta, "--delta-base-offset")
	add(q.IncludeTag, "--include-tag")
	add(q.Filter != "", "--filter="+q.Filter)
	return o
}

func (o *packOrder) args() []string {
	return append([]string{"pack-objects", "--revs", "--stdout"}, o.options...)
}

// revs is what pack-objects reads: the wants, and that nothing is left out.
func (o *packOrder) revs() string {
	var b strings.Builder
	for _, oid := range o.wants {
		b.WriteString(oid.String() + "\n")
	}
	b.WriteString("--not\n\n")
	return b.String()
}

// packFailed is what git's upload-pack tells a client when pack-objects has failed.
const packFailed = "aborting due to possible repository corruption on the remote side."

// sendPack has git pack-objects answer a fetch: cmd tells where its objects are. The
// pack ends with a flush-pkt only if git has ended well; else with a text on band 3,
// as upload-pack does it, and the error.
func (r *Repo) sendPack(ctx context.Context, cmd gitcmd.Cmd, order *packOrder, out io.Writer) error {
	band := wire.NewSideband(out, wire.Sideband64k)
	talk := newPackTalk(band)
	cmd.Args, cmd.Stdin, cmd.Stderr = order.args(), strings.NewReader(order.revs()), talk
	p, err := r.store.git.Start(ctx, cmd)
	if err != nil {
		return err
	}
	lost := wire.NewWriter(out).WriteString("packfile\n")
	pipe := &packPipe{in: p.StdoutPipe()}
	if lost == nil {
		talk.begin(pipe, keepAliveEvery)
		_, lost = band.ReadFrom(pipe)
	}
	if lost != nil {
		p.Kill() // nobody is there any more to pack for
	}
	err = p.Wait()
	talk.end()
	switch {
	case lost != nil:
		return sendError(lost)
	case err != nil:
		r.doubtIndex(err)
		var exit *gitcmd.ExitError
		if errors.As(err, &exit) {
			err = errors.Join(err, band.Fatal(packFailed))
		}
		return err
	}
	return sendError(band.Flush())
}

// pipePause is for how long git is let write on after a read that has found little. It
// writes in pieces of 8 KiB, and to wake up for each costs more than to pass it on.
const pipePause = 500 * time.Microsecond

// packPipe is what a git process writes, as it comes, in pieces worth passing on. That
// it ends badly is told by the process.
type packPipe struct {
	in    io.Reader
	moved atomic.Bool // something came since it was last asked
	short bool        // the last read has not filled its buffer
}

func (p *packPipe) Read(buf []byte) (int, error) {
	if p.short {
		time.Sleep(pipePause)
	}
	n, err := p.in.Read(buf)
	p.short = n < len(buf)
	if n > 0 {
		p.moved.Store(true)
		return n, nil
	}
	if err != nil {
		err = io.EOF
	}
	return n, err
}

// A packTalk passes on to a client how git gets on with a pack, and gives a sign of
// life when git says nothing for long. It never holds git up: what is said while the
// client takes nothing is kept, and too much of it dropped.
type packTalk struct {
	band *wire.Sideband
	text talkBuffer
	done chan struct{}
	gone chan struct{} // closed when the goroutine has ended; nil before there is one
}

func newPackTalk(band *wire.Sideband) *packTalk {
	return &packTalk{band: band, text: talkBuffer{more: make(chan struct{}, 1)}, done: make(chan struct{})}
}

// Write takes what git says on its error output.
func (t *packTalk) Write(p []byte) (int, error) { return t.text.Write(p) }

// begin passes on from now on, with a sign of life when for so long neither git has
// said anything nor pipe has moved. end must be called.
func (t *packTalk) begin(pipe *packPipe, every time.Duration) {
	t.gone = make(chan struct{})
	go func() {
		defer close(t.gone)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			var err error
			select {
			case <-t.done:
				_ = t.band.Told(t.text.take()) // who sends the end finds out the same
				return
			case <-t.text.more:
				err = t.band.Told(t.text.take())
			case <-tick.C:
				if !pipe.moved.Swap(false) {
					err = t.band.KeepAlive()
				}
			}
			if err != nil {
				return // who sends the pack finds out the same
			}
		}
	}()
}

// end passes on the rest, after the process has ended.
func (t *packTalk) end() {
	close(t.done)
	if t.gone != nil {
		<-t.gone
	}
}
