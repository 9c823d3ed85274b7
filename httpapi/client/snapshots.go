package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate/headgate/sessions/snapshot"
)

// Snapshots asks the routes of snapshots of one repo.
type Snapshots struct {
	api  *API
	repo string
}

// Snapshots are those of the repo, which the API's token must name.
func (a *API) Snapshots(repo string) *Snapshots { return &Snapshots{a, repo} }

// A Snapshot is a snapshot as the server tells it.
type Snapshot struct {
	SHA       string `json:"sha"` // empty while it is captured, and if that failed
	Upload    string `json:"upload_id"`
	Session   string `json:"session_id"`
	Workspace string `json:"workspace_sha"`
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	State     string `json:"state"`
	Status    string `json:"status"` // of the answer to a save: saved, skipped, dry_run
	Reason    string `json:"reason"` // why it failed

	Size       int64               `json:"size_bytes"`
	Stored     int64               `json:"stored_bytes"`
	New        int64               `json:"new_bytes"`
	Zero       int64               `json:"zero_bytes"`
	ChunkBytes int                 `json:"chunk_bytes"`
	Root       string              `json:"image_sha256"`
	VerifiedAt time.Time           `json:"verified_at,omitzero"`
	Usable     bool                `json:"usable"`
	Sealed     bool                `json:"sealed"`
	Excluded   []snapshot.Excluded `json:"excluded"`
	Boundary   string              `json:"boundary"`
	Machine    map[string]string   `json:"machine"`
	Parent     string              `json:"parent_sha"`
	Children   []string            `json:"children"`
	CreatedAt  time.Time           `json:"created_at,omitzero"`
	CreatedBy  string              `json:"created_by"`
	UsedAt     time.Time           `json:"used_at,omitzero"`
	EndsAt     time.Time           `json:"ends_at,omitzero"`
	Base       string              `json:"base"`

	// Manifest is manifest.json, of Get alone: see snapshot.DecodeManifest.
	Manifest json.RawMessage `json:"manifest"`
}

// path is a path below the repo's.
func (s *Snapshots) path(segments ...string) string {
	return Path(append([]string{"api", "repos", s.repo}, segments...)...)
}

func withQuery(path string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return path
}

// List gives the snapshots of a session, newest first, a page after the other to
// tell, with saves that are under way.
func (s *Snapshots) List(ctx context.Context, session string, tell func(Snapshot) error) error {
	return s.pages(ctx, s.path("sessions", session, "snapshots"), nil, tell)
}

// Launchable gives what the token may make a session of: bases and saved states, of one
// architecture if arch is not empty.
func (s *Snapshots) Launchable(ctx context.Context, arch string, tell func(Snapshot) error) error {
	return s.pages(ctx, "/api/launchable", []string{"arch", arch}, tell)
}

func (s *Snapshots) pages(ctx context.Context, path string, pairs []string, tell func(Snapshot) error) error {
	seen := map[string]bool{}
	for cursor := ""; ; {
		var page struct {
			Snapshots []Snapshot `json:"snapshots"`
			Next      string     `json:"next_cursor"`
		}
		ask := withQuery(path, append(append([]string{}, pairs...), "cursor", cursor, "limit", "100")...)
		if err := s.api.Do(ctx, http.MethodGet, ask, nil, &page, 0); err != nil {
			return err
		}
		for _, one := range page.Snapshots {
			if err := tell(one); err != nil {
				return err
			}
		}
		if page.Next == "" {
			return nil
		}
		if seen[page.Next] { // it would not end
			return ErrBadAnswer
		}
		seen[page.Next] = true
		cursor = page.Next
	}
}

// Get tells of a snapshot, with its manifest.
func (s *Snapshots) Get(ctx context.Context, sha string) (got Snapshot, err error) {
	return got, s.api.Do(ctx, http.MethodGet, s.path("snapshots", sha), nil, &got, 0)
}

// A Lineage is what a snapshot came from, nearest first, and what came of it.
type Lineage struct {
	Snapshot    Snapshot   `json:"snapshot"`
	Ancestors   []Snapshot `json:"ancestors"`
	Descendants []Snapshot `json:"descendants"`
}

// Lineage tells where a snapshot stands.
func (s *Snapshots) Lineage(ctx context.Context, sha string) (got Lineage, err error) {
	return got, s.api.Do(ctx, http.MethodGet, s.path("snapshots", sha, "lineage"), nil, &got, 0)
}

// A Deletion tells what deleting a snapshot freed, or would free.
type Deletion struct {
	SHA      string   `json:"sha"`
	Freed    int64    `json:"bytes_freed"`
	DryRun   bool     `json:"dry_run"`
	Snapshot Snapshot `json:"snapshot"`
}

// Delete deletes a snapshot, or tells what that would free.
func (s *Snapshots) Delete(ctx context.Context, sha string, dryRun bool) (got Deletion, err error) {
	path := withQuery(s.path("snapshots", sha), "dry_run", map[bool]string{true: "true"}[dryRun])
	return got, s.api.Do(ctx, http.MethodDelete, path, nil, &got, answerLimit)
}

// HotOrder reports which chunks of a part a restore touched first, by number.
func (s *Snapshots) HotOrder(ctx context.Context, sha, part string, chunks []int) error {
	body := struct {
		Part   string `json:"part,omitempty"`
		Chunks []int  `json:"chunks"`
	}{part, chunks}
	return s.api.Do(ctx, http.MethodPost, s.path("snapshots", sha, "hot-order"), body, nil, 0)
}

// Key is the data key of a sealed snapshot in the customer's layer alone: the server
// takes off its own.
func (s *Snapshots) Key(ctx context.Context, sha string) (wrapped []byte, err error) {
	var got struct {
		Wrapped []byte `json:"wrapped"`
	}
	err = s.api.Do(ctx, http.MethodPost, s.path("snapshots", sha, "key"), struct{}{}, &got, 0)
	return got.Wrapped, err
}

// Export writes a snapshot and all that it leads to as a git bundle. What was written
// is whole only if there is no error.
func (s *Snapshots) Export(ctx context.Context, sha string, w io.Writer) error {
	resp, err := s.send(ctx, http.MethodGet, s.path("snapshots", sha, "bundle"), nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body := &source{r: resp.Body}
	if _, err := io.Copy(w, body); err != nil {
		if body.err != nil && body.err != io.EOF {
			return cut(body.err)
		}
		return err
	}
	return nil
}

// Import makes the snapshot of a bundle the newest of a session, with the same id.
func (s *Snapshots) Import(ctx context.Context, session string, bundle io.Reader) (got Snapshot, err error) {
	header := http.Header{"Content-Type": {"application/x-git-bundle"}}
	resp, err := s.send(ctx, http.MethodPost, s.path("sessions", session, "snapshots", "import"), header, bundle)
	if err != nil {
		return got, err
	}
	defer resp.Body.Close()
	return got, decodeAnswer(resp.Body, &got)
}

// send asks with a body that is no JSON. The answer is a good one, and its body is the
// caller's to read and to close, for as long as ctx lasts.
func (s *Snapshots) send(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.api.base+path, body)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Authorization", "Bearer "+s.api.token)
	resp, err := s.api.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	return resp, nil
}

func decodeAnswer(body io.Reader, out any) error {
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(out); err != nil {
		return fmt.Errorf("%w: %w", ErrBadAnswer, err)
	}
	return nil
}

func retryAfter(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || n < 0 || n > 3600 {
		return 0
	}
	return time.Duration(n) * time.Second
}
