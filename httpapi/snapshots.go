package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/headgate/headgate/sessions"
	"github.com/headgate/headgate/sessions/snapshot"
	"github.com/headgate/headgate/tokens"
)

// A snapshotBody is a snapshot in lists and answers.
type snapshotBody struct {
	SHA          string              `json:"sha,omitempty"` // none while it is captured, and if that failed
	UploadID     string              `json:"upload_id,omitempty"`
	RepoName     string              `json:"repo_name"`
	SessionID    string              `json:"session_id"`
	WorkspaceSHA string              `json:"workspace_sha"`
	Name         string              `json:"name,omitempty"`
	Kind         string              `json:"kind"`
	State        snapshot.State      `json:"state"`
	Status       string              `json:"status,omitempty"` // of the answer to a save
	Reason       string              `json:"reason,omitempty"`
	SizeBytes    int64               `json:"size_bytes"`
	StoredBytes  int64               `json:"stored_bytes"`
	NewBytes     int64               `json:"new_bytes"`
	ZeroBytes    int64               `json:"zero_bytes"`
	ChunkBytes   int                 `json:"chunk_bytes"`
	ImageSHA256  string              `json:"image_sha256,omitempty"`
	VerifiedAt   string              `json:"verified_at,omitempty"`
	Usable       bool                `json:"usable"`
	Sealed       bool                `json:"sealed"`
	Excluded     []snapshot.Excluded `json:"excluded"`
	Boundary     string              `json:"boundary,omitempty"`
	Machine      map[string]string   `json:"machine,omitempty"`
	ParentSHA    string              `json:"parent_sha,omitempty"`
	Children     []string            `json:"children"`
	CreatedAt    string              `json:"created_at"`
	CreatedBy    string              `json:"created_by"`
	UsedAt       string              `json:"used_at,omitempty"`
	IdleTimeoutS int64               `json:"idle_timeout_s,omitempty"`
	TTLUnusedS   int64               `json:"ttl_unused_s,omitempty"`
	EndsAt       string              `json:"ends_at,omitempty"`
	Type         string              `json:"type"` // base or saved
	Base         string              `json:"base,omitempty"`
	Manifest     json.RawMessage     `json:"manifest,omitempty"`
	Pointer      *pointerBody        `json:"pointer,omitempty"`
}

func snapshotBodyOf(s snapshot.Snapshot) snapshotBody {
	b := snapshotBody{
		SHA: s.Commit.String(), UploadID: s.Upload, RepoName: s.Repo.Name, SessionID: s.Session, WorkspaceSHA: s.Workspace.String(),
		Name: s.Name, Kind: s.Kind, State: s.State, Reason: s.Reason,
		SizeBytes: s.Size, StoredBytes: s.Stored, NewBytes: s.New, ZeroBytes: s.Zero, ChunkBytes: s.ChunkBytes,
		VerifiedAt: timeOrNone(s.VerifiedAt), Usable: s.Usable, Sealed: s.Sealed, Boundary: s.Boundary, Machine: s.Machine,
		Excluded: append([]snapshot.Excluded{}, s.Excluded...), Children: append([]string{}, s.Children...),
		ParentSHA: s.Parent.String(), CreatedAt: wireTime(s.CreatedAt.UTC()), CreatedBy: s.CreatedBy.Subject,
		UsedAt: timeOrNone(s.UsedAt), EndsAt: timeOrNone(s.EndsAt), Type: "saved", Base: s.Base,
		IdleTimeoutS: int64(s.IdleTimeout / time.Second), TTLUnusedS: int64(s.TTLUnused / time.Second),
	}
	if !s.Root.IsZero() {
		b.ImageSHA256 = s.Root.String()
	}
	if s.Base != "" {
		b.Type = "base"
	}
	if b.SHA != "" {
		b.Pointer = &pointerBody{s.Repo.Name, b.SHA}
	}
	return b
}

func snapshotBodiesOf(all []snapshot.Snapshot) []snapshotBody {
	bodies := make([]snapshotBody, len(all))
	for i, one := range all {
		bodies[i] = snapshotBodyOf(one)
	}
	return bodies
}

var errNoSnapshots = &requestError{kind: kindNotSupported, text: "this server keeps no snapshots"}

// snapshots is the repo of a request as snapshots see and move it.
func (q *request) snapshots() snapshot.Repo { return NewSnapshotRepo(q.repo, q.caller()) }

func (q *request) snapshotRepoID() snapshot.RepoID {
	info := q.repo.Info()
	return snapshot.RepoID{ID: info.ID, Org: info.Org, Name: info.Name}
}

// snapshotID is the snapshot that the path names. What is no id is not there.
func (q *request) snapshotID() (snapshot.OID, error) {
	id, err := snapshot.ParseOID(q.id)
	if err != nil || id.IsZero() {
		return snapshot.OID{}, snapshot.ErrNotFound
	}
	return id, nil
}

func (s *Server) listSnapshots(q *request) error {
	v := q.query()
	cursor, limit := v.text("cursor"), v.limit(pageDefault, pageMost)
	if v.err != nil {
		return v.err
	}
	list, next, err := s.Snapshots.List(q.ctx(), q.snapshots(), q.id, limit, cursor)
	if err != nil {
		return err
	}
	return q.x.json(http.StatusOK, snapshotsBody{snapshotBodiesOf(list), pageOf(next)})
}

type snapshotsBody struct {
	Snapshots []snapshotBody `json:"snapshots"`
	pageBody
}

// listLaunchable lists bases and saved states that the caller may make a session of.
func (s *Server) listLaunchable(q *request) error {
	v := q.query()
	cursor, limit, arch := v.text("cursor"), v.limit(pageDefault, pageMost), v.text("arch")
	if v.err != nil {
		return v.err
	}
	list, next, err := s.Snapshots.Launchable(q.ctx(), q.snapshots(), arch, limit, cursor)
	if err != nil {
		return err
	}
	return q.x.json(http.StatusOK, snapshotsBody{snapshotBodiesOf(list), pageOf(next)})
}

// getSnapshot tells of a snapshot, with its manifest while that can be read.
func (s *Server) getSnapshot(q *request) error {
	id, err := q.snapshotID()
	if err != nil {
		return err
	}
	got, err := s.Snapshots.Get(q.ctx(), q.snapshots(), id)
	if err != nil {
		return err
	}
	b := snapshotBodyOf(got)
	if got.State == snapshot.Ready || got.State == snapshot.Failed {
		b.Manifest = s.manifest(q.ctx(), q.snapshots(), id)
	}
	return q.x.json(http.StatusOK, b)
}

// manifest is manifest.json as it is stored; nil where it cannot be read, of which a
// restore tells.
func (s *Server) manifest(ctx context.Context, repo snapshot.Repo, id snapshot.OID) json.RawMessage {
	m, err := snapshot.ReadManifest(ctx, repo, id)
	if err != nil {
		return nil
	}
	text, err := m.Encode()
	if err != nil {
		return nil
	}
	return text
}

func (s *Server) getLineage(q *request) error {
	id, err := q.snapshotID()
	if err != nil {
		return err
	}
	got, err := s.Snapshots.Get(q.ctx(), q.snapshots(), id)
	if err != nil {
		return err
	}
	before, after, err := s.Snapshots.Lineage(q.ctx(), q.snapshots(), id)
	if err != nil {
		return err
	}
	return q.x.json(http.StatusOK, struct {
		Snapshot    snapshotBody   `json:"snapshot"`
		Ancestors   []snapshotBody `json:"ancestors"`
		Descendants []snapshotBody `json:"descendants"`
	}{snapshotBodyOf(got), snapshotBodiesOf(before), snapshotBodiesOf(after)})
}

// A deletionBody tells what deleting a snapshot frees, or would free.
type deletionBody struct {
	SHA        string       `json:"sha"`
	BytesFreed int64        `json:"bytes_freed"`
	DryRun     bool         `json:"dry_run"`
	Snapshot   snapshotBody `json:"snapshot"`
}

func (s *Server) deleteSnapshot(q *request) error {
	v := q.query()
	dryRun := v.flag("dry_run")
	if v.err != nil {
		return v.err
	}
	id, err := q.snapshotID()
	if err != nil {
		return err
	}
	answer := func(d snapshot.Deletion) any {
		return deletionBody{id.String(), d.Freed, dryRun, snapshotBodyOf(d.Snapshot)}
	}
	admin := q.who.Scopes.Has(tokens.RepoWrite)
	done, err := s.Snapshots.Delete(q.ctx(), q.snapshots(), id, dryRun, admin, onceOf(q, http.StatusOK, answer))
	if err != nil {
		return err
	}
	return q.x.json(http.StatusOK, answer(done))
}

func (s *Server) putHotOrder(q *request) error {
	var body struct {
		Part   string `json:"part"`
		Chunks []int  `json:"chunks"`
	}
	if err := s.readJSON(q, &body); err != nil {
		return err
	}
	id, err := q.snapshotID()
	if err != nil {
		return err
	}
	if body.Part == "" {
		if body.Part, err = s.firstPart(q, id); err != nil {
			return err
		}
	}
	if err := s.Snapshots.HotOrder(q.ctx(), q.snapshots(), id, body.Part, body.Chunks); err != nil {
		return err
	}
	q.x.WriteHeader(http.StatusNoContent)
	return nil
}

// firstPart is the name of the part that is meant where none is named.
func (s *Server) firstPart(q *request, id snapshot.OID) (string, error) {
	if _, err := s.Snapshots.Get(q.ctx(), q.snapshots(), id); err != nil {
		return "", err
	}
	m, err := snapshot.ReadManifest(q.ctx(), q.snapshots(), id)
	if err != nil {
		return "", err
	}
	return m.Parts[0].Name, nil
}

// A noticeBody tells that a session's last save was over the cap: an older state is
// what would be restored.
type noticeBody struct {
	Code      string `json:"code"`
	CapBytes  int64  `json:"cap_bytes"`
	SizeBytes int64  `json:"size_bytes"`
	At        string `json:"at,omitempty"`
}

// stale is the durability of a session whose last save was over the cap.
const stale = "stale"

// stand tells sessions how they stand with their saves.
func (s *Server) stand(q *request, bodies ...*sessionBody) error {
	if s.Snapshots == nil || len(bodies) == 0 {
		return nil
	}
	ids := make([]string, len(bodies))
	for i, b := range bodies {
		ids[i] = b.ID
	}
	all, err := s.Snapshots.Standing(q.ctx(), q.snapshotRepoID(), ids...)
	if err != nil {
		return err
	}
	for i, st := range all {
		bodies[i].stand(st)
	}
	return nil
}

func (b *sessionBody) stand(st snapshot.Standing) {
	b.SnapshotSHA = st.Last.String()
	if !st.Last.IsZero() && !st.Usable {
		b.Usable = false
	}
	if st.Stale {
		b.Durability = stale
		b.Notice = &noticeBody{Code: codeOverCap, CapBytes: st.Cap, SizeBytes: st.Bytes, At: timeOrNone(st.At)}
	}
}

// fromSnapshot is what a session begins from that is made of a snapshot; nil for no id.
// What the caller may not read is not there.
func (s *Server) fromSnapshot(q *request, sha string) (*sessions.SnapshotState, error) {
	if sha == "" {
		return nil, nil
	}
	if s.Snapshots == nil {
		return nil, errNoSnapshots
	}
	id, err := snapshot.ParseOID(sha)
	if err != nil || id.IsZero() {
		return nil, snapshot.ErrNotFound
	}
	got, err := s.Snapshots.Get(q.ctx(), q.snapshots(), id)
	switch {
	case err != nil:
		return nil, err
	case got.State == snapshot.Failed || got.State == snapshot.Ready && !got.Usable:
		return nil, &snapshot.DamagedError{Commit: id, What: got.Reason, Err: snapshot.ErrDamaged}
	case got.State != snapshot.Ready:
		return nil, &snapshot.StateError{Commit: id, State: got.State}
	}
	return &sessions.SnapshotState{
		SHA: sha, Workspace: got.Workspace.String(), Session: got.Session, Ready: snapshot.ReadyCheck(id),
	}, nil
}

// startingDoor is the door of a call that makes sessions of a snapshot, which the caller
// was found to be able to read: it leads to the snapshot's workspace as well.
func (q *request) startingDoor(from *sessions.SnapshotState) sessions.Door {
	if from == nil {
		return q.door()
	}
	return door{repo: q.repo, c: q.caller(), kept: from.SHA}
}
