package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	listeners        = 100
	listenersCommand = "listeners"
	toldCommits      = 1000 // a second
	toldWithin       = 100 * time.Millisecond
	toldIdle         = 20 * time.Millisecond
	idlePause        = 30 * time.Millisecond // between commits of an idle repo: more than events are gathered for
)

// eventsRows measure how long it takes from the answer to a commit until its event is
// at a client, 99 times of 100, while many clients follow the repo, and what those cost
// the commits. The many are a process of their own that gets what processor time is
// left and counts what it is told: in life they are elsewhere. The figures of time have
// limits for references.
func eventsRows(_ context.Context, w *workshop) ([]row, error) {
	r, root, err := w.newBranchedRepo("told")
	if err != nil {
		return nil, err
	}
	all := w.committers(r, r.server.address, root)
	crowded := func(work side) side {
		return func(ctx context.Context, rep int) (float64, error) {
			crowd, err := w.listen(ctx, r)
			if err != nil {
				return 0, err
			}
			figure, err := work(ctx, rep)
			return figure, errors.Join(err, crowd.stop())
		}
	}
	told := func(pause time.Duration, clients int) side {
		return func(ctx context.Context, _ int) (float64, error) {
			p99, err := w.told(ctx, r, all[:clients], pause)
			return 1 / p99.Seconds(), err
		}
	}
	within := func(d time.Duration) side {
		return func(context.Context, int) (float64, error) { return 1 / d.Seconds(), nil }
	}
	work := fmt.Sprintf("p99 from a commit's answer to its event, %d streams", listeners)
	return []row{
		{name: "events-busy", work: work + fmt.Sprintf(", %d commits a second", toldCommits), reference: "limit", goal: 1, figure: perOperation,
			ours: crowded(told(time.Second/toldCommits, manyClients)), theirs: within(toldWithin)},
		{name: "events-idle", work: work + ", one commit at a time", reference: "limit", goal: 1, figure: perOperation,
			ours: crowded(told(idlePause, 1)), theirs: within(toldIdle)},
		{name: "events-commit", work: fmt.Sprintf("commit-pack, 32 clients on 32 branches, while %d streams tell of them", listeners), reference: "without streams", goal: 0.8, figure: perSecond,
			ours: crowded(w.commits(all, manyClients)), theirs: w.commits(all, manyClients)},
	}, nil
}

// told lets clients commit, one commit each pause, and gives the time within which 99
// of 100 were told to a client that follows the repo.
func (w *workshop) told(ctx context.Context, r *repo, all []*committer, pause time.Duration) (time.Duration, error) {
	f, err := follow(r.server.address, r.path("/events"), r.bearer(), r.lastSeq)
	if err != nil {
		return 0, err
	}
	defer f.conn.Close()
	arrived := make(map[string]time.Time) // by commit; the reader's own until it has ended
	var count atomic.Int64
	reader := make(chan error, 1)
	go func() {
		reader <- f.each(func(line []byte) {
			if at := bytes.Index(line, newMember); at >= 0 {
				arrived[string(line[at+len(newMember):][:40])] = time.Now()
				count.Add(1)
			}
		})
	}()
	answered, err := commitAtPace(ctx, all, pause, w.span)
	for deadline := time.Now().Add(10 * time.Second); err == nil && int(count.Load()) < len(answered); {
		if time.Now().After(deadline) {
			err = fmt.Errorf("%d of %d commits were told", count.Load(), len(answered))
		}
		time.Sleep(time.Millisecond)
	}
	f.conn.Close()
	<-reader // its error is that of the closed connection
	if err != nil {
		return 0, err
	}
	took := make([]time.Duration, 0, len(answered))
	for commit, at := range answered {
		told, ok := arrived[commit]
		if !ok {
			return 0, fmt.Errorf("commit %s was not told", commit)
		}
		took = append(took, max(told.Sub(at), time.Microsecond))
	}
	return percentile(took, 99), nil
}

var newMember = []byte(`"new_sha":"`)

// commitAtPace commits for d, at least 100 times, and gives when each was answered.
func commitAtPace(ctx context.Context, all []*committer, pause, d time.Duration) (map[string]time.Time, error) {
	var mu sync.Mutex
	answered := make(map[string]time.Time)
	due := make(chan struct{}, 1<<16)
	work, ctx := errgroup.WithContext(ctx)
	for _, c := range all {
		work.Go(func() error {
			for range due {
				if err := errors.Join(ctx.Err(), c.step()); err != nil {
					return err
				}
				now := time.Now()
				mu.Lock()
				answered[string(c.guard)] = now
				mu.Unlock()
			}
			return nil
		})
	}
	tick := time.NewTicker(max(pause, time.Millisecond))
	defer tick.Stop()
	for n := max(100, int(d/pause)); n > 0 && ctx.Err() == nil; n-- {
		<-tick.C
		due <- struct{}{}
	}
	close(due)
	return answered, work.Wait()
}

// A follower is an open stream of events.
type follower struct {
	conn net.Conn
	in   *bufio.Reader // of the answer's body
}

// follow opens a stream of what comes after a number.
func follow(address, path, authorization string, after func() (uint64, error)) (*follower, error) {
	seq, err := after()
	if err != nil {
		return nil, err
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	request := message("GET", path, authorization, "", nil, "Accept: text/event-stream", fmt.Sprintf("Last-Event-ID: %d", seq))
	if _, err = conn.Write(request); err == nil {
		var answer *http.Response
		if answer, err = http.ReadResponse(bufio.NewReaderSize(conn, 64<<10), nil); err == nil && answer.StatusCode != http.StatusOK {
			err = fmt.Errorf("follow: %s", answer.Status)
		}
		if err == nil {
			return &follower{conn, bufio.NewReaderSize(answer.Body, 64<<10)}, nil
		}
	}
	conn.Close()
	return nil, err
}

// each gives the lines of the stream to see until it ends.
func (f *follower) each(see func(line []byte)) error {
	for {
		line, err := f.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		see(line)
	}
}

// lastSeq is the number of the newest event.
func (r *repo) lastSeq() (uint64, error) {
	request, err := http.NewRequest(http.MethodGet, "http://"+r.server.address+r.path("/events?after=18446744073709551615"), nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", r.bearer())
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	at := bytes.LastIndex(text, []byte(`"last_seq":`))
	if at < 0 {
		return 0, fmt.Errorf("events: %s: %.300s", answer.Status, text)
	}
	var seq uint64
	_, err = fmt.Sscanf(string(text[at:]), `"last_seq":%d`, &seq)
	return seq, err
}

// A crowd is a running process of listeners.
type crowd struct {
	*process
	r      *repo
	before uint64
	said   *bufio.Reader
}

// listen has many follow what happens from now on.
func (w *workshop) listen(ctx context.Context, r *repo) (*crowd, error) {
	before, err := r.lastSeq()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "nice", "-n", "19", filepath.Join(w.dir, "bench"), listenersCommand, r.server.address, r.path("/events"), r.bearer(), fmt.Sprint(before))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &crowd{process: &process{cmd: cmd}, r: r, before: before, said: bufio.NewReader(out)}
	w.onStop(c.process.stop)
	if _, err := c.said.ReadString('\n'); err != nil {
		return nil, fmt.Errorf("listeners did not begin: %w", err)
	}
	return c, nil
}

// stop waits until every listener has been told everything.
func (c *crowd) stop() error {
	defer c.process.stop()
	last, err := c.r.lastSeq()
	if err != nil {
		return err
	}
	for {
		line, err := c.said.ReadString('\n')
		if err != nil {
			return fmt.Errorf("listeners have ended: %w", err)
		}
		var least uint64
		if _, err := fmt.Sscanf(line, "told %d", &least); err != nil {
			return fmt.Errorf("listeners say %q", line)
		}
		if c.before+least >= last {
			return nil
		}
	}
}

// runListeners follows what happens with many clients, each of which counts, until ctx
// ends. It says when all have begun, and then all the time how many events each of them
// has been told at least.
func runListeners(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 4 {
		return fmt.Errorf("%s: want ADDRESS PATH AUTHORIZATION AFTER; it is the bench program that starts this one", listenersCommand)
	}
	after := func() (seq uint64, err error) { _, err = fmt.Sscan(args[3], &seq); return seq, err }
	var counts [listeners]atomic.Uint64
	work, ctx := errgroup.WithContext(ctx)
	for i := range listeners {
		f, err := follow(args[0], args[1], args[2], after)
		if err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, func() { f.conn.Close() })
		defer stop()
		work.Go(func() error {
			return f.each(func(line []byte) {
				if bytes.HasPrefix(line, []byte("data:")) {
					counts[i].Add(1)
				}
			})
		})
	}
	fmt.Fprintln(out, "listeners are told")
	work.Go(func() error {
		for ctx.Err() == nil {
			least := counts[0].Load()
			for i := range counts {
				least = min(least, counts[i].Load())
			}
			fmt.Fprintf(out, "told %d\n", least)
			time.Sleep(20 * time.Millisecond)
		}
		return ctx.Err()
	})
	if err := work.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}
