package httpapi

import (
	"net/http"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/sessions"
	"github.com/headgate/headgate/tokens"
)

// A sessionBody is a session in lists and answers.
type sessionBody struct {
	ID           string            `json:"id"`
	RepoName     string            `json:"repo_name"`
	Branch       string            `json:"branch"`
	Ref          string            `json:"ref"`
	BaseSHA      string            `json:"base_sha"`
	HeadSHA      string            `json:"head_sha"`
	Epoch        uint64            `json:"epoch"`
	State        sessions.State    `json:"state"`
	Holder       string            `json:"holder,omitempty"`
	Labels       map[string]string `json:"labels"`
	ParentID     string            `json:"parent_id,omitempty"`
	GroupID      string            `json:"group_id,omitempty"`
	CreatedAt    string            `json:"created_at"`
	CreatedBy    string            `json:"created_by"`
	UsedAt       string            `json:"used_at,omitempty"`
	ExpiresAt    string            `json:"expires_at,omitempty"`
	IdleTimeoutS int64             `json:"idle_timeout_s,omitempty"`
	TTLUnusedS   int64             `json:"ttl_unused_s,omitempty"`
	EndsAt       string            `json:"ends_at,omitempty"`
	Lease        *leaseBody        `json:"lease,omitempty"`
	Usable       bool              `json:"usable"`
	Durability   string            `json:"durability"`
	EndedAt      string            `json:"ended_at,omitempty"`
	EndCause     sessions.Cause    `json:"end_cause,omitempty"`
	CaptureKey   string            `json:"capture_key,omitempty"`
	FromSnapshot string            `json:"from_snapshot,omitempty"`
	SnapshotSHA  string            `json:"snapshot_sha,omitempty"` // its last saved state
	Notice       *noticeBody       `json:"notice,omitempty"`
	Pointer      pointerBody       `json:"pointer"`
}

// A pointerBody is what services hand each other.
type pointerBody struct {
	RepoName string `json:"repo_name"`
	SHA      string `json:"sha"`
}

// durable is the durability of a session whose head is its last valid state: what
// was acknowledged is on disk.
const durable = "durable"

func sessionBodyOf(s sessions.Session) sessionBody {
	b := sessionBody{
		ID: s.ID, RepoName: s.Repo.Name, Branch: s.Branch, Ref: s.Ref,
		BaseSHA: s.BaseSHA, HeadSHA: s.HeadSHA, Epoch: s.Epoch, State: s.State,
		Holder: s.Holder, Labels: s.Labels, ParentID: s.ParentID, GroupID: s.GroupID,
		CreatedAt: wireTime(s.CreatedAt.UTC()), CreatedBy: s.CreatedBy.Subject,
		UsedAt: timeOrNone(s.UsedAt), ExpiresAt: timeOrNone(s.ExpiresAt), EndsAt: timeOrNone(s.EndsAt), EndedAt: timeOrNone(s.EndedAt),
		IdleTimeoutS: int64(s.IdleTimeout / time.Second), TTLUnusedS: int64(s.TTLUnused / time.Second),
		Usable: s.State != sessions.Ended && s.State != sessions.ViewOnly, Durability: durable,
		EndCause: s.EndCause, CaptureKey: s.CaptureKey, FromSnapshot: s.FromSnapshot,
		Pointer: pointerBody{s.Repo.Name, s.HeadSHA},
	}
	if b.Labels == nil {
		b.Labels = map[string]string{}
	}
	if s.Lease != nil {
		lease := leaseBodyOf(*s.Lease)
		b.Lease = &lease
	}
	return b
}

func answerSession(s sessions.Session) any { return sessionBodyOf(s) }

// timeOrNone is t on the wire, or nothing for the zero time.
func timeOrNone(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return wireTime(t.UTC())
}

// mostSeconds is the longest time that a time.Duration holds.
const mostSeconds = int64(1<<63-1) / int64(time.Second)

// seconds is the time that an optional field gives, at least least seconds; 0
// without the field.
func seconds(name string, v *int64, least int64) (time.Duration, error) {
	if v == nil {
		return 0, nil
	}
	if *v < least || *v > mostSeconds {
		return 0, invalid("%s is not a number of seconds from %d on", name, least)
	}
	return time.Duration(*v) * time.Second, nil
}

// optionalSeconds is seconds that tells whether the field was given.
func optionalSeconds(name string, v *int64) (*time.Duration, error) {
	if v == nil {
		return nil, nil
	}
	d, err := seconds(name, v, 0)
	return &d, err
}

// keepersRepo is the open repo as the Keeper knows it.
func keepersRepo(r *gitstore.Repo) sessions.Repo {
	info := r.Info()
	return sessions.Repo{ID: info.ID, Org: info.Org, Name: info.Name}
}

func (q *request) session() sessions.Repo { return keepersRepo(q.repo) }

func (q *request) actor() sessions.Actor { return actorOf(q.who) }

func (q *request) door() sessions.Door { return NewDoor(q.repo, q.caller()) }

// actorOf is what the Keeper knows of who asks.
func actorOf(p *tokens.Principal) sessions.Actor {
	return sessions.Actor{
		Org: p.Org, Subject: p.Subject, KeyID: p.KeyID, TokenID: p.TokenID,
		Session: p.Session, Epoch: p.Epoch,
	}
}

type createSessionBody struct {
	ID            string            `json:"id"`
	BaseRef       string            `json:"base_ref"`
	BaseEphemeral bool              `json:"base_is_ephemeral"`
	FromSession   string            `json:"from_session"`
	FromSnapshot  string            `json:"from_snapshot"`
	Branch        string            `json:"branch"`
	Labels        map[string]string `json:"labels"`
	Holder        string            `json:"holder"`
	LeaseTTL      *int64            `json:"lease_ttl_s"`
	TTL           *int64            `json:"ttl_s"`
	IdleTimeout   *int64            `json:"idle_timeout_s"`
	TTLUnused     *int64            `json:"ttl_unused_s"`
	CaptureKey    string            `json:"capture_key"`
}

func (b createSessionBody) spec() (spec sessions.CreateSpec, err error) {
	spec = sessions.CreateSpec{
		ID: b.ID, Branch: b.Branch, BaseRef: b.BaseRef, BaseEphemeral: b.BaseEphemeral, FromSession: b.FromSession,
		Labels: b.Labels, Holder: b.Holder, CaptureKey: b.CaptureKey,
	}
	if b.Branch != "" { // by the rules of every other call that names one
		ref, err := branchRef(b.Branch, true)
		if err != nil {
			return spec, err
		}
		spec.Branch = ref.Short()
	}
	if spec.TTL, err = seconds("ttl_s", b.TTL, 1); err != nil {
		return spec, err
	}
	if spec.TTLUnused, err = seconds("ttl_unused_s", b.TTLUnused, 1); err != nil {
		return spec, err
	}
	if spec.LeaseTTL, err = seconds("lease_ttl_s", b.LeaseTTL, 1); err != nil {
		return spec, err
	}
	spec.IdleTimeout, err = optionalSeconds("idle_timeout_s", b.IdleTimeout)
	return spec, err
}

func (s *Server) createSession(q *request) error {
	var body createSessionBody
	if err := s.readJSON(q, &body); err != nil {
		return err
	}
	spec, err := body.spec()
	if err != nil {
		return err
	}
	if err := s.checkCaptureKey(spec.CaptureKey); err != nil {
		return err
	}
	if spec.FromSnapshot, err = s.fromSnapshot(q, body.FromSnapshot); err != nil {
		return err
	}
	spec.Once = onceOf(q, http.StatusCreated, answerSession)
	made, err := s.Sessions.Create(q.ctx(), q.session(), q.startingDoor(spec.FromSnapshot), q.actor(), spec)
	if err != nil {
		return err
	}
	return q.x.json(http.StatusCreated, sessionBodyOf(made))
}

func (s *Server) getSession(q *request) error {
	got, err := s.Sessions.Get(q.ctx(), q.session(), q.door(), q.id)
	if err != nil {
		return err
	}
	body := sessionBodyOf(got)
	if err := s.stand(q, &body); err != nil {
		return err
	}
	return q.x.json(http.StatusOK, body)
}

func (s *Server) listSessions(q *request) error {
	v := q.query()
	f := sessions.Filter{State: v.state(), Holder: v.text("holder"), ParentID: v.text("parent")}
	f.LabelKey, f.LabelVal = v.label()
	cursor, limit := v.text("cursor"), v.limit(pageDefault, pageMost)
	if v.err != nil {
		return v.err
	}
	page, err := s.Sessions.List(q.ctx(), q.session(), q.door(), f, cursor, limit)
	if err != nil {
		return err
	}
	list := make([]sessionBody, len(page.Sessions))
	told := make([]*sessionBody, len(list))
	for i, one := range page.Sessions {
		list[i] = sessionBodyOf(one)
		told[i] = &list[i]
	}
	if err := s.stand(q, told...); err != nil {
		return err
	}
	return q.x.json(http.StatusOK, struct {
		Sessions []sessionBody `json:"sessions"`
		pageBody
	}{list, pageOf(page.Next)})
}

// state is the parameter state, if it is one that sessions have.
func (q *query) state() sessions.State {
	switch state := sessions.State(q.text("state")); state {
	case "", sessions.Active, sessions.Stopping, sessions.Stopped, sessions.Paused, sessions.Leaving, sessions.ViewOnly, sessions.Ended:
		return state
	}
	if q.err == nil {
		q.err = invalid("query parameter state is none that a session has")
	}
	return ""
}

// label is the parameter label=key:value.
func (q *query) label() (key, value string) {
	labels := q.list("label")
	if len(labels) == 0 {
		return "", ""
	}
	key, value, ok := strings.Cut(labels[0], ":")
	if q.err == nil && (!ok || key == "") {
		q.err = invalid("query parameter label is not key:value")
	}
	if q.err == nil && len(labels) > 1 {
		q.err = invalid("query parameter label stands more than once")
	}
	return key, value
}

func (s *Server) updateSession(q *request) error {
	var body struct {
		Labels      map[string]*string `json:"labels"`
		TTL         *int64             `json:"ttl_s"`
		IdleTimeout *int64             `json:"idle_timeout_s"`
		TTLUnused   *int64             `json:"ttl_unused_s"`
	}
	if err := s.readJSON(q, &body); err != nil {
		return err
	}
	p := sessions.Patch{Labels: body.Labels}
	var err error
	if p.TTL, err = optionalSeconds("ttl_s", body.TTL); err != nil {
		return err
	}
	if p.IdleTimeout, err = optionalSeconds("idle_timeout_s", body.IdleTimeout); err != nil {
		return err
	}
	if p.TTLUnused, err = optionalSeconds("ttl_unused_s", body.TTLUnused); err != nil {
		return err
	}
	if len(p.Labels) == 0 && p.TTL == nil && p.IdleTimeout == nil && p.TTLUnused == nil {
		return invalid("nothing to update: neither labels nor a timeout is given")
	}
	p.Once = onceOf(q, http.StatusOK, answerSession)
	got, err := s.Sessions.Patch(q.ctx(), q.session(), q.door(), q.actor(), q.id, p)
	if err != nil {
		return err
	}
	return q.x.json(http.StatusOK, sessionBodyOf(got))
}

// An endingBody tells what the end of a session frees, or would free.
type endingBody struct {
	ID         string      `json:"id"`
	BytesFreed int64       `json:"bytes_freed"`
	DryRun     bool        `json:"dry_run"`
	Session    sessionBody `json:"session"`
}

func endingBodyOf(e sessions.Ending, dryRun bool) endingBody {
	return endingBody{ID: e.Session.ID, BytesFreed: e.BytesFreed, DryRun: dryRun, Session: sessionBodyOf(e.Session)}
}

func (s *Server) deleteSession(q *request) error {
	v := q.query()
	spec := sessions.EndSpec{DryRun: v.flag("dry_run"), Holder: v.text("holder"), Admin: q.who.Scopes.Has(tokens.RepoWrite)}
	if v.err != nil {
		return v.err
	}
	spec.Once = onceOf(q, http.StatusOK, func(e sessions.Ending) any { return endingBodyOf(e, spec.DryRun) })
	ending, err := s.Sessions.End(q.ctx(), q.session(), q.door(), q.actor(), q.id, spec)
	if err != nil {
		return err
	}
	return q.x.json(http.StatusOK, endingBodyOf(ending, spec.DryRun))
}
