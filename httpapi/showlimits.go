package httpapi

import (
	"maps"
	"net/http"
	"time"
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
		"token_upload_bytes": l.TokenUpload, "org_upload_bytes": l.OrgUpload, "upload_bytes": l.Upload,
		"turns": l.Turns, "limit_wait": l.LimitWait,
	}
	maps.Copy(all, s.InForce)
	for name, v := range all {
		if d, ok := v.(time.Duration); ok {
			delete(all, name)
			all[name+"_s"] = d.Seconds()
		}
	}
	return q.x.json(http.StatusOK, limitsBody{all})
}
