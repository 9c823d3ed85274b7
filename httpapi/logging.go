package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"
)

// slowRequest is from when on a request that went well is logged like one that did not.
const slowRequest = 5 * time.Second

// end closes an exchange: it turns a panic into an answer or a cut connection,
// counts, and writes the one log line. The line holds names and numbers; never a
// token, a header or a URL.
func (s *Server) end(x *exchange, r *http.Request) {
	defer x.pass.leave()
	cut := false
	if p := recover(); p != nil {
		cut = s.recovered(x, r, p)
	}
	if !cut {
		x.finish()
	}
	took := time.Since(x.start)
	s.Metrics.observe(x, took)
	if level := x.level(took); s.Logger.Enabled(r.Context(), level) {
		s.logLine(r.Context(), level, x, took)
	}
	if cut {
		panic(http.ErrAbortHandler)
	}
}

// recovered reports whether the connection has to be cut.
func (s *Server) recovered(x *exchange, r *http.Request, p any) bool {
	if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so, too
		return true
	}
	s.Logger.ErrorContext(r.Context(), "panic", "request_id", x.id, "route", x.route, "panic", p, "stack", string(debug.Stack()))
	if x.started() {
		return true
	}
	x.problem(r, problem{status: http.StatusInternalServerError, code: codeInternal, text: internalText}, moreBody{})
	return false
}

func (x *exchange) level(took time.Duration) slog.Level {
	switch {
	case x.status >= 500:
		return slog.LevelError
	case x.status >= 400 || x.failure != nil || took > slowRequest:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

func (s *Server) logLine(ctx context.Context, level slog.Level, x *exchange, took time.Duration) {
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs,
		slog.String("request_id", x.id),
		slog.String("method", x.method),
		slog.String("route", x.route),
		slog.Int("status", x.status),
		slog.Int64("bytes", x.bytes),
		slog.Duration("took", took),
	)
	if x.who != nil {
		attrs = append(attrs, slog.String("org", x.who.Org), slog.String("sub", x.who.Subject), slog.String("token", x.who.TokenHash))
	} else if x.token != "" {
		attrs = append(attrs, slog.String("token", x.token))
	}
	if x.repo != "" {
		attrs = append(attrs, slog.String("repo", x.repo))
	}
	if x.failure != nil {
		attrs = append(attrs, slog.String("error", x.failure.Error()))
	}
	s.Logger.LogAttrs(ctx, level, "request", attrs...)
}
