package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// amounts are how far a save or a restore has come, in bytes.
type amounts struct {
	total int64 // -1: not known
	done  int64 // read of what is saved, written of what is restored
	sent  int64 // over the wire
	saved int64 // that need not be sent: zeros, and what is stored already
}

// A progress line shows on a terminal how far something has come; elsewhere it shows
// nothing. It may be told of progress by many at once.
type progressLine struct {
	out   io.Writer // nil: nothing is shown
	what  string    // "saving", "restoring"
	begun time.Time
	now   func() time.Time

	mu    sync.Mutex // guards what follows
	shown time.Time
	width int
}

// progressEvery is how often the line is written anew.
const progressEvery = 100 * time.Millisecond

// newProgressLine shows progress on f if that is a terminal and quiet is not set.
func newProgressLine(f *os.File, what string, quiet bool) *progressLine {
	p := &progressLine{what: what, now: time.Now, begun: time.Now()}
	if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 && !quiet && os.Getenv("TERM") != "dumb" {
		p.out = f
	}
	return p
}

// tell shows a, if the line was not written just now.
func (p *progressLine) tell(a amounts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if p.out == nil || now.Sub(p.shown) < progressEvery {
		return
	}
	p.shown = now
	p.write(p.line(a, now.Sub(p.begun)))
}

// end takes the line away.
func (p *progressLine) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.out != nil && p.width > 0 {
		p.write("")
		fmt.Fprint(p.out, "\r")
		p.out = nil
	}
}

func (p *progressLine) write(line string) {
	pad := max(0, p.width-len(line))
	p.width = len(line)
	fmt.Fprint(p.out, "\r"+line+strings.Repeat(" ", pad)) // a line that is lost is no reason to stop
}

func (p *progressLine) line(a amounts, took time.Duration) string {
	speed := float64(a.done) / max(took.Seconds(), 0.001)
	text := fmt.Sprintf("%s %s", p.what, byteCount(a.done))
	if a.total >= 0 {
		text = fmt.Sprintf("%s %s %s of %s", p.what, bar(a), byteCount(a.done), byteCount(a.total))
	}
	text += fmt.Sprintf(", sent %s, saved %s, %s/s", byteCount(a.sent), byteCount(a.saved), byteCount(int64(speed)))
	if a.total > a.done && a.done > 0 {
		left := time.Duration(float64(a.total-a.done) / speed * float64(time.Second))
		text += fmt.Sprintf(", %s left", left.Round(time.Second))
	}
	return text
}

const barWidth = 20

func bar(a amounts) string {
	full := barWidth
	if a.total > 0 {
		full = int(min(a.done, a.total) * barWidth / a.total)
	}
	return "[" + strings.Repeat("=", full) + strings.Repeat(" ", barWidth-full) + "]"
}

// byteCount writes a number of bytes with a binary unit and three digits or so.
func byteCount(n int64) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	value, unit := float64(n), -1
	for value >= 1000 && unit < 4 {
		value /= 1 << 10
		unit++
	}
	unit = max(unit, 0)
	if n < 1000<<10 && unit == 0 {
		value = float64(n) / (1 << 10)
	}
	digits := 2
	switch {
	case value >= 100:
		digits = 0
	case value >= 10:
		digits = 1
	}
	return fmt.Sprintf("%.*f %ciB", digits, value, "KMGTP"[unit])
}
