package httpapi

import (
	_ "embed"
	"net/http"
)

// health tells that the process answers; nothing below is asked.
func (s *Server) health(x *exchange, _ *http.Request) error {
	x.Header().Set("Cache-Control", "no-store")
	x.plain(http.StatusOK, "ok\n")
	return nil
}

// ready tells whether requests can be served. The reason of a no is in the log.
func (s *Server) ready(x *exchange, r *http.Request) error {
	x.Header().Set("Cache-Control", "no-store")
	if err := s.Ready(r.Context()); err != nil {
		s.Logger.WarnContext(r.Context(), "not ready", "error", err)
		return &requestError{kind: kindNotReady, text: "not ready"}
	}
	x.plain(http.StatusOK, "ready\n")
	return nil
}

//go:embed openapi.json
var openapiDocument []byte

func (s *Server) openapi(x *exchange, _ *http.Request) error {
	x.Header()["Content-Type"] = jsonType
	_, _ = x.Write(openapiDocument)
	return nil
}
