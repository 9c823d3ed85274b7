package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/headgate/headgate/httpapi/client"
)

// sessionCmd are the commands about sessions of a running server. They need a token
// of the repo, as a backend has one.
type sessionCmd struct {
	Create  sessionCreateCmd  `cmd:"" help:"Make a session with its branch."`
	List    sessionListCmd    `cmd:"" help:"List sessions, newest first."`
	Show    sessionShowCmd    `cmd:"" help:"Show one session."`
	End     sessionEndCmd     `cmd:"" help:"Delete a session with its branch, and tell what that frees."`
	Lease   sessionLeaseCmd   `cmd:"" help:"Acquire, renew, release or take over the lease."`
	Token   sessionTokenCmd   `cmd:"" help:"Issue a token for the session's sandbox and print it."`
	Tokens  sessionTokensCmd  `cmd:"" help:"List the tokens that were issued."`
	Revoke  sessionRevokeCmd  `cmd:"" help:"Revoke an issued token with all that were renewed from it."`
	Fork    sessionForkCmd    `cmd:"" help:"Make children of the session's present state."`
	Compare sessionCompareCmd `cmd:"" help:"Compare the children of a fork, file by file."`
	Pick    sessionPickCmd    `cmd:"" help:"Let the parent go on from one child of a fork."`
	Close   sessionCloseCmd   `cmd:"" help:"End the children of a fork."`
}

// repoFlags say which repo of which server, and with whose token.
type repoFlags struct {
	Server string `default:"http://127.0.0.1:8080" placeholder:"URL" help:"The server."`
	Repo   string `required:"" placeholder:"REPO" help:"The repo."`
	Token  string `required:"" placeholder:"TOKEN" help:"A token of the repo, best given as HEADGATE_TOKEN."`
	JSON   bool   `name:"json" help:"Print the server's answer as it is."`
}

// call asks below the repo and gives the answer's bytes.
func (f repoFlags) call(ctx context.Context, method, tail string, in any, wait time.Duration) (json.RawMessage, error) {
	api, err := client.NewAPI(f.Server, f.Token)
	if err != nil {
		return nil, err
	}
	var out json.RawMessage
	err = api.Do(ctx, method, "/api"+client.Path("repos", f.Repo)+tail, in, &out, wait)
	return out, err
}

// show asks, then prints the answer: as it is, or what say makes of it.
func show[T any](ctx context.Context, f repoFlags, out io.Writer, method, tail string, in any, wait time.Duration, say func(io.Writer, T)) error {
	raw, err := f.call(ctx, method, tail, in, wait)
	if err != nil {
		return err
	}
	if f.JSON {
		_, err := fmt.Fprintln(out, strings.TrimSpace(string(raw)))
		return err
	}
	var answer T
	if err := json.Unmarshal(raw, &answer); err != nil {
		return fmt.Errorf("%w: %w", client.ErrBadAnswer, err)
	}
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	say(table, answer)
	return table.Flush()
}

// seconds is a duration in an API's whole seconds; nil for none.
func seconds(d time.Duration) (*int64, error) {
	if d == 0 {
		return nil, nil
	}
	if d < time.Second || d%time.Second != 0 {
		return nil, errors.New("times are whole seconds, at least one")
	}
	n := int64(d / time.Second)
	return &n, nil
}

// secondsOf puts durations that are not zero under their names into body.
func secondsOf(body map[string]any, times map[string]time.Duration) error {
	for name, d := range times {
		n, err := seconds(d)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if n != nil {
			body[name] = *n
		}
	}
	return nil
}

// textsOf puts texts that are not empty under their names into body.
func textsOf(body map[string]any, texts map[string]string) {
	for name, s := range texts {
		if s != "" {
			body[name] = s
		}
	}
}

// shownSession is what is printed of a session.
type shownSession struct {
	ID        string    `json:"id"`
	Branch    string    `json:"branch"`
	HeadSHA   string    `json:"head_sha"`
	Epoch     uint64    `json:"epoch"`
	State     string    `json:"state"`
	ParentID  string    `json:"parent_id"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	EndCause  string    `json:"end_cause"`
	Lease     *struct {
		Holder    string    `json:"holder"`
		ExpiresAt time.Time `json:"expires_at"`
	} `json:"lease"`
	Labels map[string]string `json:"labels"`
}

func (s shownSession) lines(w io.Writer) {
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, client.Printable(value))
		}
	}
	line("session", s.ID)
	line("state", strings.TrimSuffix(s.State+" ("+s.EndCause+")", " ()"))
	line("branch", s.Branch)
	line("head", s.HeadSHA)
	line("epoch", strconv.FormatUint(s.Epoch, 10))
	line("parent", s.ParentID)
	if s.Lease != nil {
		line("lease", s.Lease.Holder+" until "+s.Lease.ExpiresAt.Format(time.RFC3339))
	}
	if !s.ExpiresAt.IsZero() {
		line("expires", s.ExpiresAt.Format(time.RFC3339))
	}
	for _, k := range slices.Sorted(maps.Keys(s.Labels)) {
		line("label", k+":"+s.Labels[k])
	}
}

func sayLines(w io.Writer, s shownSession) { s.lines(w) }

func parseLabels(list []string) (map[string]string, error) {
	labels := make(map[string]string, len(list))
	for _, l := range list {
		k, v, ok := strings.Cut(l, ":")
		if !ok {
			return nil, fmt.Errorf("label %q: want KEY:VALUE", l)
		}
		labels[k] = v
	}
	return labels, nil
}

type sessionCreateCmd struct {
	repoFlags
	ID        string        `name:"id" placeholder:"ID" help:"The session's id; one is made by default."`
	Base      string        `placeholder:"REF" help:"Branch, tag or commit to begin at; the default branch by default."`
	Ephemeral bool          `help:"The base is an ephemeral branch."`
	From      string        `placeholder:"SESSION" help:"Begin at another session's present state."`
	Snapshot  string        `name:"from-snapshot" placeholder:"SHA" help:"Begin at the workspace of a memory snapshot, which it then uses."`
	Capture   string        `name:"capture-key" placeholder:"FILE" type:"existingfile" help:"The customer's public key, to which all saves must be sealed."`
	Branch    string        `placeholder:"BRANCH" help:"The ephemeral branch; sessions/ID by default."`
	Label     []string      `sep:"none" placeholder:"KEY:VALUE" help:"A label. Can be repeated."`
	Holder    string        `placeholder:"NAME" help:"Who takes the lease at once."`
	TTL       time.Duration `name:"ttl" help:"When its time is up."`
	Idle      time.Duration `help:"It ends when it was not used for so long."`
	Unused    time.Duration `help:"It ends so long after nothing uses it any more."`
}

// Run prints the session.
func (c *sessionCreateCmd) Run(ctx context.Context, out io.Writer) error {
	body := map[string]any{}
	textsOf(body, map[string]string{"id": c.ID, "base_ref": c.Base, "from_session": c.From, "from_snapshot": c.Snapshot, "branch": c.Branch, "holder": c.Holder})
	if err := secondsOf(body, map[string]time.Duration{"ttl_s": c.TTL, "idle_timeout_s": c.Idle, "ttl_unused_s": c.Unused}); err != nil {
		return err
	}
	if c.Capture != "" {
		key, err := os.ReadFile(c.Capture)
		if err != nil {
			return err
		}
		body["capture_key"] = string(key)
	}
	labels, err := parseLabels(c.Label)
	if err != nil {
		return err
	}
	if len(labels) > 0 {
		body["labels"] = labels
	}
	if c.Ephemeral {
		body["base_is_ephemeral"] = true
	}
	return show(ctx, c.repoFlags, out, http.MethodPost, "/sessions", body, 0, sayLines)
}

type sessionListCmd struct {
	repoFlags
	State  string `placeholder:"STATE" help:"Only those in this state."`
	Label  string `placeholder:"KEY:VALUE" help:"Only those with this label."`
	Holder string `placeholder:"NAME" help:"Only those whose lease this one holds."`
	Parent string `placeholder:"SESSION" help:"Only children of this one."`
	Limit  int    `default:"100" help:"How many at most."`
	Cursor string `placeholder:"CURSOR" help:"Where the page before has ended."`
}

// Run prints a line for each session, and the cursor of the next page on the last.
func (c *sessionListCmd) Run(ctx context.Context, out io.Writer) error {
	q := url.Values{"limit": {strconv.Itoa(c.Limit)}}
	for name, value := range map[string]string{"state": c.State, "label": c.Label, "holder": c.Holder, "parent": c.Parent, "cursor": c.Cursor} {
		if value != "" {
			q.Set(name, value)
		}
	}
	type page struct {
		Sessions   []shownSession `json:"sessions"`
		NextCursor string         `json:"next_cursor"`
	}
	return show(ctx, c.repoFlags, out, http.MethodGet, "/sessions?"+q.Encode(), nil, 0, func(w io.Writer, p page) {
		fmt.Fprintln(w, "SESSION\tSTATE\tEPOCH\tHEAD\tHOLDER\tCREATED")
		for _, s := range p.Sessions {
			holder := "-"
			if s.Lease != nil {
				holder = s.Lease.Holder
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%.12s\t%s\t%s\n", client.Printable(s.ID), client.Printable(s.State), s.Epoch,
				client.Printable(s.HeadSHA), client.Printable(holder), s.CreatedAt.Format(time.RFC3339))
		}
		if p.NextCursor != "" {
			fmt.Fprintf(w, "more: --cursor %s\n", client.Printable(p.NextCursor))
		}
	})
}

// sessionArg is the session that a command is about.
type sessionArg struct {
	repoFlags
	Session string `arg:"" help:"The session's id."`
}

func (a sessionArg) tail(more ...string) string {
	return client.Path(append([]string{"sessions", a.Session}, more...)...)
}

type sessionShowCmd struct{ sessionArg }

// Run prints the session.
func (c *sessionShowCmd) Run(ctx context.Context, out io.Writer) error {
	return show(ctx, c.repoFlags, out, http.MethodGet, c.tail(), nil, 0, sayLines)
}

type sessionEndCmd struct {
	sessionArg
	DryRun bool   `help:"Only tell what would be freed."`
	Holder string `placeholder:"NAME" help:"The lease of this holder does not stand in the way."`
}

// Run ends the session.
func (c *sessionEndCmd) Run(ctx context.Context, out io.Writer) error {
	q := url.Values{}
	if c.DryRun {
		q.Set("dry_run", "true")
	}
	if c.Holder != "" {
		q.Set("holder", c.Holder)
	}
	type ending struct {
		BytesFreed int64 `json:"bytes_freed"`
	}
	return show(ctx, c.repoFlags, out, http.MethodDelete, c.tail()+"?"+q.Encode(), nil, 0, func(w io.Writer, e ending) {
		verb := "frees"
		if c.DryRun {
			verb = "would free"
		}
		fmt.Fprintf(w, "%s %d bytes\n", verb, e.BytesFreed)
	})
}

type sessionLeaseCmd struct {
	sessionArg
	Action string        `arg:"" enum:"acquire,renew,release,takeover" help:"acquire, renew, release or takeover."`
	Holder string        `required:"" placeholder:"NAME" help:"Who holds the lease, or wants it."`
	TTL    time.Duration `name:"ttl" help:"How long it lasts unless it is renewed."`
	Wait   time.Duration `help:"How long to wait for it to become free."`
}

// Run prints the lease.
func (c *sessionLeaseCmd) Run(ctx context.Context, out io.Writer) error {
	body := map[string]any{"action": c.Action, "holder": c.Holder}
	if err := secondsOf(body, map[string]time.Duration{"ttl_s": c.TTL, "wait_s": c.Wait}); err != nil {
		return err
	}
	type lease struct {
		Epoch     uint64    `json:"epoch"`
		Holder    string    `json:"holder"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	return show(ctx, c.repoFlags, out, http.MethodPost, c.tail("lease"), body, c.Wait, func(w io.Writer, l lease) {
		fmt.Fprintf(w, "epoch\t%d\nholder\t%s\n", l.Epoch, client.Printable(l.Holder))
		if !l.ExpiresAt.IsZero() {
			fmt.Fprintf(w, "expires\t%s\n", l.ExpiresAt.Format(time.RFC3339))
		}
	})
}
