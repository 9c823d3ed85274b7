package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// An Event is something that happened in a repo, as the token may read it.
type Event struct {
	Seq   uint64    `json:"seq"`
	At    time.Time `json:"at"`
	Type  string    `json:"type"`
	Actor struct {
		Subject string `json:"sub"`
		TokenID string `json:"jti"`
		Session string `json:"session"`
	} `json:"actor"`
	Changes []EventChange   `json:"changes"`
	Session string          `json:"session"`
	Data    json.RawMessage `json:"data"`
}

// An EventChange is a ref's movement.
type EventChange struct {
	Ref       string `json:"ref"`
	Branch    string `json:"branch"`
	Ephemeral bool   `json:"ephemeral"`
	Old       string `json:"old_sha"`
	New       string `json:"new_sha"`
	Kind      string `json:"kind"`
	Session   string `json:"session"`
}

// resync is the type of the event that tells the state instead of what led to it.
const resync = "resync"

const (
	comeBack     = time.Second      // before a lost stream is opened again
	comeBackMost = 15 * time.Second // when that has failed for longer
)

// Follow gives the events of a repo, or of one session in it, that are numbered above
// after to see, in order, as they happen. A stream that is lost is opened again where
// it was. It ends with ctx, with what see fails with, or when the server does not let
// it go on: *ServerError. Texts are as the server sent them; see Printable.
func (a *API) Follow(ctx context.Context, repo, session string, after uint64, see func(Event) error) error {
	path := Path("api", "repos", repo, "events")
	if session != "" {
		path += "?" + url.Values{"session": {session}}.Encode()
	}
	f := follower{api: a, path: path, after: after, see: see}
	pause := comeBack
	for {
		before := f.heard
		err := f.once(ctx)
		var refused *ServerError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case f.failed != nil:
			return f.failed
		case errors.As(err, &refused) && refused.Status != http.StatusTooManyRequests && refused.Status < http.StatusInternalServerError:
			return err
		case errors.Is(err, ErrBadAnswer):
			return err
		}
		if pause = min(2*pause, comeBackMost); f.heard != before {
			pause = comeBack
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// A follower is a Follow at work.
type follower struct {
	api    *API
	path   string
	after  uint64 // what was seen last
	see    func(Event) error
	failed error // what see gave
	heard  int   // reads that brought something
}

// once follows one stream to its end.
func (f *follower) once(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(idleLimit, func() { cancel(ErrSilent) })
	defer silence.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.api.base+f.path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+f.api.token)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", strconv.FormatUint(f.after, 10))
	resp, err := f.api.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return refusal(resp)
	}
	if media := resp.Header.Get("Content-Type"); !strings.HasPrefix(media, "text/event-stream") {
		return fmt.Errorf("%w: %.40q is no stream of events", ErrBadAnswer, media)
	}
	return f.read(bufio.NewReaderSize(&watched{r: resp.Body, heard: func() { f.heard++; silence.Reset(idleLimit) }}, 64<<10))
}

// read takes events from a stream until it ends. An event counts when the blank line
// behind it has come.
func (f *follower) read(r *bufio.Reader) error {
	lines := events{r: r}
	var data []byte
	for {
		line, err := lines.line()
		if err != nil {
			return err
		}
		if len(line) > 0 {
			if text, ok := bytes.CutPrefix(line, []byte("data:")); ok {
				data = append(data, bytes.TrimPrefix(text, []byte(" "))...)
			}
			if len(data) > maxLine {
				return fmt.Errorf("%w: an event without an end", ErrBadAnswer)
			}
			continue
		}
		if data == nil {
			continue
		}
		if err := f.take(data); err != nil {
			return err
		}
		data = nil
	}
}

func (f *follower) take(data []byte) error {
	var e Event
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("%w: an event is no JSON", ErrBadAnswer)
	}
	if e.Seq <= f.after && e.Type != resync {
		return fmt.Errorf("%w: event %d after %d", ErrBadAnswer, e.Seq, f.after)
	}
	if f.failed = f.see(e); f.failed != nil {
		return f.failed
	}
	f.after = e.Seq
	return nil
}
