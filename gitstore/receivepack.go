package gitstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/headgate/headgate/gitstore/wire"
)

// keepAliveEvery is how often a client whose push is being worked on hears a sign of life.
const keepAliveEvery = 5 * time.Second

// ReceivePack answers one POST to git-receive-pack. Refusals of single refs are in
// the report and are no error. Nothing is written before the whole request was read.
func (r *Repo) ReceivePack(ctx context.Context, c Caller, q GitRequest) error {
	end, err := r.store.begin()
	if err != nil {
		return err
	}
	defer end()
	in := bufio.NewReader(q.In) // small: a pack is read past it, in large pieces
	req, err := wire.ReadReceiveRequest(in, wire.Limits{RefUpdates: r.store.limits.RefsPerPush})
	if err != nil {
		text, ok := wire.ErrorText(err)
		if !ok {
			return endsEarly(err)
		}
		// What the client understands is not known; all that push today ask for this sideband.
		return wire.NewSideband(q.Out, wire.Sideband64k).Fatal(text)
	}
	if len(req.Updates) == 0 {
		return nil
	}
	p := &push{
		r: r, c: c, q: q, req: req, band: wire.NewSideband(q.Out, req.Sideband()),
		verdicts: make([]verdict, len(req.Updates)), every: keepAliveEvery,
	}
	defer p.quieten()
	if err := p.run(ctx, in); err != nil {
		return err
	}
	p.quieten()
	return p.answer()
}

// push is one request of receive-pack on its way to the report.
type push struct {
	r    *Repo
	c    Caller
	q    GitRequest
	req  *wire.ReceiveRequest
	band *wire.Sideband

	verdicts []verdict // by update
	unpack   string    // why the pack could not be taken; empty: it could

	every     time.Duration  // between two signs of life
	alive     sync.WaitGroup // the goroutine that gives them
	stopAlive context.CancelFunc
}

func (p *push) run(ctx context.Context, in io.Reader) error {
	open := p.judgeNames()
	if len(open) == 0 {
		return nil
	}
	var got incoming
	if p.req.ExpectsPack() {
		var err error
		got, err = p.r.receivePack(ctx, p.c, in, func() { p.keepAlive(ctx) })
		var lost *lostError
		switch {
		case errors.As(err, &lost), err != nil && ctx.Err() != nil:
			return err // nobody is there to read a report
		case err != nil:
			p.refusePack(err)
			return nil
		}
	}
	p.update(ctx, open, got)
	return nil
}

// judgeNames gives the verdicts that need nothing but the commands: names, and
// refs that the policy closes to every change of that kind. It returns the updates
// that are left.
func (p *push) judgeNames() []int {
	var open []int
	for i, u := range p.req.Updates {
		v := &p.verdicts[i]
		name, refusal := p.q.Remote.stored(u.Ref)
		if refusal != "" {
			v.refuse(refusal, "")
			continue
		}
		v.change = Change{Ref: name, Old: u.Old, New: u.New}
		if err := p.c.Policy.Check(name, kindBefore(v.change)); err != nil {
			v.judge(err, p)
			continue
		}
		open = append(open, i)
	}
	if !p.req.Atomic() || len(open) == len(p.verdicts) {
		return open
	}
	for _, i := range open {
		p.verdicts[i].judge(ErrAtomic, p)
	}
	return nil
}

// refusePack refuses all refs with the pack.
func (p *push) refusePack(err error) {
	var fault *unpackError
	if errors.As(err, &fault) {
		p.unpack = fault.text
	} else {
		p.r.store.log.Warn("push not unpacked", "repo", p.r.id, "err", err)
		p.unpack = failureReason(err)
	}
	for i := range p.verdicts {
		if v := &p.verdicts[i]; v.reason == "" {
			v.refuse("unpacker error", p.unpack)
		}
	}
}

// update sends what is left through the door. What keeps the door from judging is
// told to every ref: the conversation has begun and there is no status any more.
func (p *push) update(ctx context.Context, open []int, got incoming) {
	u := Update{Caller: p.c, Atomic: p.req.Atomic(), Objects: got.objects, Bases: got.bases, Pack: got.pack}
	for _, i := range open {
		u.Changes = append(u.Changes, p.verdicts[i].change)
	}
	res, err := p.r.Update(ctx, u)
	if err != nil {
		p.r.store.log.Warn("push not applied", "repo", p.r.id, "err", err)
		for _, i := range open {
			p.verdicts[i].refuse(failureReason(err), "")
		}
		return
	}
	for n, i := range open {
		p.verdicts[i].take(res.Refs[n], p)
	}
	if p.unpack == "" && got.pack == nil {
		p.hideBases(ctx, got)
	}
}

// hideBases takes back what was said of objects that deltas made out of bases the
// caller may not read: it would speak of the base.
func (p *push) hideBases(ctx context.Context, got incoming) {
	bad := false
	for i := range p.verdicts {
		bad = bad || errors.Is(p.verdicts[i].err, ErrBadObject)
	}
	if !bad || len(got.bases) == 0 {
		return
	}
	ok, err := p.r.allReadable(ctx, p.c, oidSet(got.bases))
	if ok && err == nil {
		return
	}
	for i := range p.verdicts {
		if v := &p.verdicts[i]; errors.Is(v.err, ErrBadObject) {
			v.judge(ErrUnreachable, p)
		}
	}
}

// keepAlive lets the client hear something now and then until quieten.
func (p *push) keepAlive(ctx context.Context) {
	if p.stopAlive != nil || p.req.Sideband() == wire.NoSideband {
		return
	}
	ctx, p.stopAlive = context.WithCancel(ctx)
	p.alive.Go(func() {
		tick := time.NewTicker(p.every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if p.band.KeepAlive() != nil {
					return // whoever writes next is told
				}
			}
		}
	})
}

func (p *push) quieten() {
	if p.stopAlive != nil {
		p.stopAlive()
		p.alive.Wait()
	}
}

// answer writes what the user should know and the report.
func (p *push) answer() error {
	for _, line := range p.lines() {
		if err := p.band.Progress(line); err != nil {
			return fmt.Errorf("send report: %w", err)
		}
	}
	report := wire.Report{Unpack: p.unpack}
	for i, u := range p.req.Updates {
		report.Refs = append(report.Refs, wire.RefReport{Ref: u.Ref, Reason: p.verdicts[i].reason})
	}
	if err := report.Encode(p.band, p.req.ReportForm()); err != nil {
		return fmt.Errorf("send report: %w", err)
	}
	if err := p.band.Flush(); err != nil {
		return fmt.Errorf("send report: %w", err)
	}
	return nil
}
