package httpapi

import (
	"fmt"
	"net/http"
	"time"
)

// A limitError refuses a request that is over a limit.
type limitError struct {
	text  string        // names the limit; may be shown
	retry time.Duration // when it may be tried again
}

func (e *limitError) Error() string { return e.text }

func (e *limitError) problem() problem {
	return problem{http.StatusTooManyRequests, codeTooMany, e.text}
}

// limitNames are the settings of the limits on supplies.
var limitNames = [supplies][levels]string{
	places:       {"token_requests", "org_requests", "requests"},
	gitPlaces:    {"token_git_requests", "org_git_requests", "git_requests"},
	streamPlaces: {"token_streams", "org_streams", "streams"},
	bodyBytes:    {"token_upload_bytes", "org_upload_bytes", "upload_bytes"},
	turns:        {"turns", "turns", "turns"},
}

var (
	levelNames  = [levels]string{"a token", "an org", "the server"}
	supplyTexts = [supplies]string{
		"have %d requests running at once", "have %d requests that need git running at once", "have %d streams open at once",
		"have %d bytes of large bodies at once", "work on %d requests at once",
	}
)

// over is the refusal for want of s on a level; -1 is who would have been next.
func (f *fairness) over(level int, s supply) error {
	if level < 0 {
		level = ofAll
	}
	return f.refuse(limitNames[s][level], retrySoon, levelNames[level]+" may "+supplyTexts[s], f.limits[level][s])
}

func (f *fairness) refuse(limit string, retry time.Duration, format string, most int64) error {
	f.metrics.limited(limit)
	return &limitError{text: fmt.Sprintf("too many requests: "+format+" (%s)", most, limit), retry: retry}
}
