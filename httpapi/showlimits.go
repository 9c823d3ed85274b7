package httpapi

import (
	"maps"
	"net/http"
	"time"

	"github.com/headgate/headgate/sessions/snapshot"
)

// A limitsBody holds every limit in force under the name of its setting: numbers
// as they are, sizes in bytes, times in seconds under a name that ends in _s.
type limitsBody struct {
	Limits map[string]any `json:"limits"`
}

func (s *Server) limits(q *request) error {
	l := s.Limits
	all := map[string]any{
		"header_bytes": l.HeaderBytes, "body_bytes": l.BodyBytes, "line_bytes": l.LineBytes, "chunk_bytes": l.ChunkBytes,
		"commit_files": l.CommitFiles, "fetch_bytes": l.FetchBytes, "push_bytes": l.PushBytes,
		"header_timeout": l.HeaderTimeout, "idle_timeout": l.IdleTimeout, "keep_alive": l.KeepAlive,
		"page_entries": pageMost, "page_files": filesMost,

		"token_rate": l.TokenRate, "token_burst": l.TokenBurst,
		"token_requests": l.TokenRequests, "org_requests": l.OrgRequests, "requests": l.Requests,
		"token_git_requests": l.TokenGit, "org_git_requests": l.OrgGit, "git_requests": l.Git,
		"token_streams": l.TokenStreams, "org_streams": l.OrgStreams, "streams": l.Streams,
		"token_upload_bytes": l.TokenUpload, "org_upload_bytes": l.OrgUpload, "upload_bytes": l.Upload,
		"turns": l.Turns, "limit_wait": l.LimitWait,
	}
	s.sessionLimits(all)
	maps.Copy(all, s.InForce)
	s.snapshotLimits(all) // of which the keeper knows what 0 stands for
	for name, v := range all {
		if d, ok := v.(time.Duration); ok {
			delete(all, name)
			all[name+"_s"] = d.Seconds()
		}
	}
	return q.x.json(http.StatusOK, limitsBody{all})
}

// sessionLimits adds the settings of sessions.
func (s *Server) sessionLimits(all map[string]any) {
	if s.Sessions == nil {
		return
	}
	l := s.Sessions.Limits
	maps.Copy(all, map[string]any{
		"sessions.max_fork_n": l.MaxForkN, "sessions.max_live": l.MaxLive,
		"sessions.lease_ttl": l.LeaseDefault, "sessions.lease_max_ttl": l.LeaseMax, "sessions.lease_max_wait": l.LeaseWaitMax,
		"sessions.token_ttl": l.TokenDefault, "sessions.token_max_ttl": l.TokenMax,
		"sessions.idle_timeout": l.IdleTimeout, "sessions.loser_ttl": l.LoserTTL, "sessions.state_idle": l.StateIdle,
		"sessions.reap_every": l.ReapEvery, "sessions.ended_for": l.EndedMemory,
	})
}

// snapshotLimits adds the settings of snapshots.
func (s *Server) snapshotLimits(all map[string]any) {
	if s.Snapshots == nil {
		return
	}
	l := s.Snapshots.Limits
	maps.Copy(all, map[string]any{
		"snapshots.cap_bytes": l.Cap, "snapshots.quota_bytes": l.Quota, "snapshots.max_count": l.MaxCount,
		"snapshots.upload_ttl": l.UploadTTL, "snapshots.uploads": l.Uploads, "snapshots.keep_last": l.KeepLast,
		"snapshots.idle_timeout": l.IdleTimeout, "snapshots.memory_for": l.Memory, "snapshots.workers": l.Workers,
		"snapshots.image_bytes": int64(snapshot.MaxImage), "snapshots.chunk_bytes": snapshot.DefaultChunk,
	})
}
