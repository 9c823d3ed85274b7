package gitstore

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// chain adds a blob and n deltas on top of each other, by place or by id, each with
// one byte more than the one below it.
func (p *rawPack) chain(n int, byID bool) {
	data := "base"
	at := p.entry(BlobObject, len(data), nil, []byte(data))
	for range n {
		delta, here := deltaOf(len(data), len(data), "+"), p.Len()
		if byID {
			p.refDelta(hashObject(BlobObject, []byte(data)), delta)
		} else {
			p.ofsDelta(at, delta)
		}
		data, at = data+"+", here
	}
}

// backward is chain with every base behind what is made of it.
func (p *rawPack) backward(n int) {
	for i := n; i > 0; i-- {
		base := "base" + strings.Repeat("+", i-1)
		p.refDelta(hashObject(BlobObject, []byte(base)), deltaOf(len(base), len(base), "+"))
	}
	p.add(BlobObject, "base")
}

// Each bound of a push holds on both roads: what is at the limit passes, what is just
// over it is refused with the limit named, no ref moves and nothing is left.
func TestPushLimits(t *testing.T) {
	blobs := func(n, size int) func(p *rawPack) {
		return func(p *rawPack) {
			for i := range n {
				p.add(BlobObject, fmt.Sprintf("%0*d", size, i))
			}
		}
	}
	chain := func(n int, byID bool) func(p *rawPack) { return func(p *rawPack) { p.chain(n, byID) } }
	for _, tc := range []struct {
		name      string
		limits    Limits
		largeOnly bool
		at, over  func(p *rawPack)
		want      string
	}{
		{"depth", Limits{PushLimits: PushLimits{DeltaDepth: 50}}, false, chain(50, false), chain(51, false), "bad object: pack: deltas stand on each other over the limit of 50"},
		{"depth by id", Limits{PushLimits: PushLimits{DeltaDepth: 50}}, false, chain(50, true), chain(51, true), "deltas stand on each other over the limit of 50"},
		{"depth backward", Limits{PushLimits: PushLimits{DeltaDepth: 50}}, false, func(p *rawPack) { p.backward(50) }, func(p *rawPack) { p.backward(51) }, "deltas stand on each other over the limit of 50"},
		{"objects", Limits{PushLimits: PushLimits{PackObjects: 10}}, false, blobs(8, 5), blobs(9, 5), "pack has 11 objects, over the limit of 10"},
		{"file", Limits{FileBytes: 1000}, false, blobs(1, 1000), blobs(1, 1001), "a file is over the limit of 1000 bytes"},
		{"file by a delta", Limits{FileBytes: 1000}, false,
			func(p *rawPack) {
				p.refDelta(p.add(BlobObject, "0123456789"), deltaOf(10, 10, strings.Repeat("x", 990)))
			},
			func(p *rawPack) {
				p.refDelta(p.add(BlobObject, "0123456789"), deltaOf(10, 10, strings.Repeat("x", 991)))
			},
			"an object is over the limit of 1000 bytes"},
		{"inflated", Limits{PushLimits: PushLimits{PackInflated: 100_000}}, true, blobs(9, 10_000), blobs(10, 10_000), "pack inflates to over the limit of 100000 bytes"},
		{"pack", Limits{PackBytes: 3000}, true, func(p *rawPack) { p.add(BlobObject, string(randomBytes(1, 2000))) }, func(p *rawPack) { p.add(BlobObject, string(randomBytes(1, 3000))) }, "pack is over the limit of 3000 bytes"},
	} {
		for _, road := range []string{"small", "large"} {
			if road == "small" && tc.largeOnly {
				continue
			}
			t.Run(tc.name+"/"+road, func(t *testing.T) {
				limits := tc.limits
				if road == "large" {
					limits.HotPackBytes = 1
				}
				p := newPushTarget(t, limits)
				p.w.git("push", "-q", "origin", "main")
				first := p.w.git("rev-parse", "HEAD")
				if report := p.pushPack(t, first, "refs/heads/over", tc.over); !strings.Contains(report, "unpack ") || !strings.Contains(report, tc.want) || !strings.Contains(report, "ng refs/heads/over unpacker error") {
					t.Errorf("a push over the limit is told %q, want %q", report, tc.want)
				}
				p.at("refs/heads/over", "")
				nothingLeft(t, p.r)
				if report := p.pushPack(t, first, "refs/heads/at", tc.at); !strings.Contains(report, "ok refs/heads/at") {
					t.Errorf("a push at the limit is told %q, want it taken", report)
				}
			})
		}
	}
}

// pushPack pushes a new ref to a commit on first, in a pack with what fill adds, and
// gives the report. The pack has two objects more.
func (p *pushTarget) pushPack(t *testing.T, first, ref string, fill func(*rawPack)) string {
	var pack rawPack
	fill(&pack)
	pack.add(BlobObject, "of "+ref)
	tree := p.w.git("rev-parse", first+"^{tree}")
	id := pack.add(CommitObject, fmt.Sprintf("tree %s\nparent %s\n%s%s\n", tree, first, author13, ref))
	return p.s.post(t, someone, MainRemote, "git-receive-pack", "", pkts(zeros40+" "+id.String()+" "+ref+"\x00report-status", "")+pack.pack())
}

// A push whose unpacking takes too long is ended, with the limit named.
func TestPushTimeout(t *testing.T) {
	p := newPushTarget(t, Limits{HotPackBytes: 1, PushLimits: PushLimits{PushTimeout: time.Nanosecond}})
	out := p.w.refused("push", "origin", "main")
	contains(t, out, "unpacking takes longer than the limit of 1ns", "[remote rejected] main -> main (unpacker error)")
	p.at("refs/heads/main", "")
	nothingLeft(t, p.r)
}
