package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"syscall"

	"github.com/labstack/echo/v4"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/wire"
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/sessions"
	"github.com/headgate/headgate/sessions/seal"
	"github.com/headgate/headgate/sessions/snapshot"
	"github.com/headgate/headgate/tokens"
)

// A requestError is an error of this room: something about the request itself.
type requestError struct {
	kind requestKind
	text string // may be shown
}

func (e *requestError) Error() string { return e.text }

// A requestKind is what is wrong with a request.
type requestKind uint8

const (
	kindInvalid requestKind = iota
	kindNoCredentials
	kindForbidden
	kindTooLarge
	kindMediaType
	kindNotSupported
	kindBodyCut
	kindMethod
	kindNotReady
	kindPrecondition
	kindRange
	kindMismatch
)

// invalid is a malformed request.
func invalid(format string, args ...any) error {
	return &requestError{kind: kindInvalid, text: fmt.Sprintf(format, args...)}
}

// tooLarge is a request over a limit, which the text names.
func tooLarge(format string, args ...any) error {
	return &requestError{kind: kindTooLarge, text: fmt.Sprintf(format, args...)}
}

// statusCanceled is what a request is logged with whose client went away.
const statusCanceled = 499

const (
	internalText = "internal error"
	noRepoText   = "repository not found"
)

// A problem is what a client is told about an error.
type problem struct {
	status int
	code   string
	text   string
}

// retryable reports whether the same request may succeed later, unchanged.
func (p problem) retryable() bool {
	switch p.status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInsufficientStorage,
		http.StatusRequestTimeout, http.StatusGatewayTimeout, http.StatusBadGateway:
		return true
	}
	return false
}

// label is the result.status of an envelope that tells of p.
func (p problem) label() string {
	switch {
	case p.code == codeConflict:
		return "precondition_failed"
	case p.status == http.StatusRequestEntityTooLarge:
		return "payload_too_large"
	}
	switch p.status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return "invalid"
	case http.StatusUnauthorized:
		return "unauthorized"
	case http.StatusForbidden:
		return "forbidden"
	case http.StatusNotFound:
		return "not_found"
	case http.StatusConflict:
		return "conflict"
	case http.StatusPreconditionFailed:
		return "precondition_failed"
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusInsufficientStorage:
		return "unavailable"
	case http.StatusRequestTimeout, statusCanceled, http.StatusGatewayTimeout:
		return "timeout"
	case http.StatusInternalServerError:
		return "internal"
	}
	return "failed"
}

// problemOf decides what a client is told about err. No other function picks a
// status. An error not listed here is our fault: 500, no detail, logged in full.
func problemOf(err error) problem {
	if p, ok := typedProblem(err); ok {
		return p
	}
	for _, row := range sentinels {
		if errors.Is(err, row.err) {
			text := row.text
			if text == "" {
				text = err.Error()
			}
			return problem{row.status, row.code, text}
		}
	}
	if text, ok := wire.ErrorText(err); ok {
		return problem{http.StatusBadRequest, codeInvalid, text}
	}
	return problem{http.StatusInternalServerError, codeInternal, internalText}
}

// typedProblem knows the errors that are structs; their own text is shown, without
// what they were wrapped in.
func typedProblem(err error) (problem, bool) {
	var (
		request *requestError
		limit   *limitError
		moved   *gitstore.RefMovedError
		clash   *gitstore.NameClashError
		denied  *refpolicy.DeniedError
		name    *refpolicy.RefNameError
		scope   *tokens.ScopeError
		claim   *tokens.ClaimError
		route   *echo.HTTPError
	)
	switch {
	case errors.As(err, &request):
		return request.problem(), true
	case errors.As(err, &limit):
		return limit.problem(), true
	case errors.As(err, &moved):
		return problem{http.StatusConflict, codeConflict, moved.Error()}, true
	case errors.As(err, &clash):
		return problem{http.StatusConflict, codeExists, clash.Error()}, true
	case errors.As(err, &denied):
		return problem{http.StatusForbidden, codePolicy, denied.Error()}, true
	case errors.As(err, &name):
		return problem{http.StatusBadRequest, codeInvalid, name.Error()}, true
	case errors.As(err, &scope):
		return problem{http.StatusForbidden, codeForbidden, scope.Error()}, true
	case errors.As(err, &claim):
		return problem{http.StatusUnauthorized, codeUnauthorized, claim.Error()}, true
	case errors.As(err, &route):
		return routeProblem(route.Code), true
	}
	if p, ok := snapshotProblem(err); ok {
		return p, true
	}
	return sessionProblem(err)
}

// snapshotProblem is typedProblem for the errors of snapshots.
func snapshotProblem(err error) (problem, bool) {
	var (
		field   *snapshot.FieldError
		moved   *snapshot.MovedError
		cap     *snapshot.OverCapError
		full    *snapshot.FullError
		damaged *snapshot.DamagedError
		state   *snapshot.StateError
		used    *snapshot.InUseError
	)
	switch {
	case errors.As(err, &field) && field.Conflict:
		return problem{http.StatusConflict, codeField, field.Error()}, true
	case errors.As(err, &field):
		return problem{http.StatusUnprocessableEntity, codeField, field.Error()}, true
	case errors.As(err, &moved):
		return problem{http.StatusConflict, codePrecondition, moved.Error()}, true
	case errors.As(err, &cap):
		return problem{http.StatusRequestEntityTooLarge, codeOverCap, cap.Error()}, true
	case errors.As(err, &full) && full.Slots:
		return problem{http.StatusConflict, codeNoSlots, full.Error()}, true
	case errors.As(err, &full):
		return problem{http.StatusInsufficientStorage, codeFull, full.Error()}, true
	case errors.As(err, &damaged):
		return problem{http.StatusInternalServerError, codeDamaged, "snapshot " + damaged.Commit.String() + " is damaged: " + damaged.What}, true
	case errors.As(err, &state):
		return problem{http.StatusConflict, codeSnapState, state.Error()}, true
	case errors.As(err, &used):
		return problem{http.StatusConflict, codeInUse, used.Error()}, true
	}
	return problem{}, false
}

// sessionProblem is typedProblem for the errors of sessions.
func sessionProblem(err error) (problem, bool) {
	var (
		stale *sessions.StaleEpochError
		state *sessions.StateError
		held  *sessions.LeaseHeldError
		used  *sessions.InUseError
		limit *sessions.LimitError
		part  *sessions.ChildrenFailedError
	)
	switch {
	case errors.As(err, &stale):
		return problem{http.StatusForbidden, codeStaleEpoch, stale.Error()}, true
	case errors.As(err, &state) && state.State == sessions.ViewOnly:
		return problem{http.StatusConflict, codeViewOnly, state.Error()}, true
	case errors.As(err, &state):
		return problem{http.StatusConflict, codeState, state.Error()}, true
	case errors.As(err, &held):
		return problem{http.StatusConflict, codeLeaseHeld, held.Error()}, true
	case errors.As(err, &used):
		return problem{http.StatusConflict, codeInUse, used.Error()}, true
	case errors.As(err, &limit) && limit.What == sessions.LimitLive:
		return problem{http.StatusConflict, codeNoSlots, limit.Error()}, true
	case errors.As(err, &limit): // no waiting helps
		return problem{http.StatusBadRequest, codeInvalid, limit.Error()}, true
	case errors.As(err, &part):
		return problem{http.StatusConflict, codeForkFailed, part.Error()}, true
	}
	return problem{}, false
}

func (e *requestError) problem() problem {
	switch e.kind {
	case kindNoCredentials:
		return problem{http.StatusUnauthorized, codeUnauthorized, e.text}
	case kindForbidden:
		return problem{http.StatusForbidden, codeForbidden, e.text}
	case kindTooLarge:
		return problem{http.StatusRequestEntityTooLarge, codeTooLarge, e.text}
	case kindMediaType:
		return problem{http.StatusUnsupportedMediaType, codeMediaType, e.text}
	case kindNotSupported:
		return problem{http.StatusBadRequest, codeNotSupported, e.text}
	case kindMethod:
		return routeProblem(http.StatusMethodNotAllowed)
	case kindNotReady:
		return problem{http.StatusServiceUnavailable, codeUnavailable, e.text}
	case kindPrecondition:
		return problem{http.StatusPreconditionFailed, codePrecondition, e.text}
	case kindMismatch:
		return problem{http.StatusUnprocessableEntity, codeMismatch, e.text}
	case kindRange:
		return problem{http.StatusRequestedRangeNotSatisfiable, codeRange, e.text}
	}
	return problem{http.StatusBadRequest, codeInvalid, e.text}
}

// routeProblem is for what the router itself answers.
func routeProblem(status int) problem {
	if status == http.StatusMethodNotAllowed {
		return problem{status, codeMethod, "method not allowed"}
	}
	return problem{http.StatusNotFound, codeNoRoute, "no such route"}
}

// sentinels is asked from the top; an empty text means the error's own.
var sentinels = []struct {
	err    error
	status int
	code   string
	text   string
}{
	{tokens.ErrUnauthorized, http.StatusUnauthorized, codeUnauthorized, ""},
	{tokens.ErrNoRepoClaim, http.StatusForbidden, codeForbidden, ""},
	{tokens.ErrMoreAsked, http.StatusForbidden, codeForbidden, ""},
	{tokens.ErrGrantTooLarge, http.StatusBadRequest, codeInvalid, ""},
	{tokens.ErrBadDenial, http.StatusBadRequest, codeInvalid, ""},
	{tokens.ErrDenialNotFound, http.StatusNotFound, codeNoDenial, ""},
	{refpolicy.ErrBadClaim, http.StatusUnauthorized, codeUnauthorized, ""},
	{refpolicy.ErrBadOID, http.StatusBadRequest, codeInvalid, ""},

	// Before all it may be wrapped around: a guard that names nothing is a bad guard.
	{gitstore.ErrInvalid, http.StatusBadRequest, codeInvalid, ""},
	// A repo that is another's and one that is missing get one text.
	{gitstore.ErrRepoNotFound, http.StatusNotFound, codeNoRepo, noRepoText},
	{gitstore.ErrRepoExists, http.StatusConflict, codeRepoExists, "repository already exists"},
	{gitstore.ErrRepoDeleted, http.StatusConflict, codeRepoDeleted, "repository was deleted"},
	{gitstore.ErrBadRepoName, http.StatusBadRequest, codeInvalid, ""},
	{gitstore.ErrRefNotFound, http.StatusNotFound, codeNoRef, ""},
	{gitstore.ErrEmptyRepo, http.StatusNotFound, codeNoRef, ""},
	{gitstore.ErrObjectNotFound, http.StatusNotFound, codeNoObject, ""},
	{gitstore.ErrPinNotFound, http.StatusNotFound, codeNoPin, ""},
	{gitstore.ErrUnreachable, http.StatusNotFound, codeNoObject, ""},
	{gitstore.ErrPathNotFound, http.StatusNotFound, codeNoPath, ""},
	{gitstore.ErrNotAFile, http.StatusNotFound, codeNoPath, ""},
	{gitstore.ErrBadRevision, http.StatusBadRequest, codeInvalid, ""},
	{gitstore.ErrBadPath, http.StatusBadRequest, codeInvalid, ""},
	{gitstore.ErrBadCursor, http.StatusBadRequest, codeInvalid, ""},
	{gitstore.ErrBadObject, http.StatusBadRequest, codeInvalid, ""},
	{gitstore.ErrTooLarge, http.StatusRequestEntityTooLarge, codeTooLarge, ""},
	{gitstore.ErrRefExists, http.StatusConflict, codeExists, ""},
	{gitstore.ErrDefaultBranch, http.StatusConflict, codeDefault, ""},
	{gitstore.ErrNotFastForward, http.StatusConflict, codeNotForward, ""},
	{gitstore.ErrAtomic, http.StatusConflict, codeConflict, ""},
	{gitstore.ErrHiddenRef, http.StatusForbidden, codeForbidden, ""},
	{gitstore.ErrNoChanges, http.StatusPreconditionFailed, codeNoChanges, ""},
	{gitstore.ErrProofTimeout, http.StatusServiceUnavailable, codeTimeout, "reach could not be proved in the time allowed"},
	{gitstore.ErrClosed, http.StatusServiceUnavailable, codeUnavailable, "server is stopping"},

	{sessions.ErrInvalid, http.StatusBadRequest, codeInvalid, ""},
	{sessions.ErrBadCursor, http.StatusBadRequest, codeInvalid, ""},
	{sessions.ErrNotFound, http.StatusNotFound, codeNoSession, ""},
	{sessions.ErrGroupNotFound, http.StatusNotFound, codeNoFork, ""},
	{sessions.ErrTokenNotFound, http.StatusNotFound, codeNoToken, ""},
	{sessions.ErrExists, http.StatusConflict, codeExists, ""},
	{sessions.ErrLeaseLost, http.StatusConflict, codeLeaseLost, ""},
	{sessions.ErrPicked, http.StatusConflict, codePicked, ""},
	{sessions.ErrNotCreator, http.StatusForbidden, codeForbidden, ""},
	{sessions.ErrForeignSession, http.StatusForbidden, codeForbidden, ""},
	{sessions.ErrSnapshotGone, http.StatusConflict, codeSnapState, ""},
	{sessions.ErrTokenDead, http.StatusUnauthorized, codeUnauthorized, ""},

	{snapshot.ErrNotFound, http.StatusNotFound, codeNoSnapshot, "snapshot not found"},
	{snapshot.ErrUploadNotFound, http.StatusNotFound, codeNoUpload, "upload not found"},
	{snapshot.ErrNoSession, http.StatusNotFound, codeNoSession, ""},
	{snapshot.ErrMismatch, http.StatusUnprocessableEntity, codeHash, ""},
	{snapshot.ErrDamaged, http.StatusInternalServerError, codeDamaged, "what is stored of the snapshot is damaged"},
	{snapshot.ErrNoObject, http.StatusNotFound, codeNoObject, "object not found"},
	{snapshot.ErrNotQuiet, http.StatusConflict, codeNotQuiet, ""},
	{snapshot.ErrMissing, http.StatusConflict, codeMissing, ""},
	{snapshot.ErrSealed, http.StatusConflict, codeSealed, ""},
	{snapshot.ErrSealNeeded, http.StatusConflict, codeSealNeeded, ""},
	{errNotSealed, http.StatusConflict, codeNotSealed, ""},
	{seal.ErrUnknownKey, http.StatusConflict, codeNoSealingKey, ""},
	{seal.ErrWrongKey, http.StatusConflict, codeSealBroken, ""},
	{seal.ErrBadEnvelope, http.StatusConflict, codeSealBroken, ""},
	{snapshot.ErrBase, http.StatusForbidden, codeBase, ""},
	{snapshot.ErrByHand, http.StatusForbidden, codeForbidden, ""},
	{snapshot.ErrNotCreator, http.StatusForbidden, codeForbidden, ""},
	{snapshot.ErrBusy, http.StatusConflict, codeBusy, ""},
	{snapshot.ErrRange, http.StatusRequestedRangeNotSatisfiable, codeRange, ""},
	{snapshot.ErrInvalid, http.StatusBadRequest, codeInvalid, ""},

	{ledger.ErrNoSpace, http.StatusInsufficientStorage, codeNoSpace, "no space left on the server"},
	{syscall.ENOSPC, http.StatusInsufficientStorage, codeNoSpace, "no space left on the server"}, // for packs and scratch files
	{syscall.EDQUOT, http.StatusInsufficientStorage, codeNoSpace, "no space left on the server"},
	{ledger.ErrUnavailable, http.StatusServiceUnavailable, codeUnavailable, "storage is unavailable"},
	{ledger.ErrClosed, http.StatusServiceUnavailable, codeUnavailable, "server is stopping"},
	{ledger.ErrTooLarge, http.StatusRequestEntityTooLarge, codeTooLarge, "request has more changes than one write may"},
	{gitcmd.ErrBusy, http.StatusServiceUnavailable, codeUnavailable, "server is busy"},

	{os.ErrDeadlineExceeded, http.StatusRequestTimeout, codeTimeout, "request body made no progress"},
	{context.DeadlineExceeded, http.StatusGatewayTimeout, codeTimeout, "time limit reached"},
	{context.Canceled, statusCanceled, codeCanceled, "request was canceled"},
}
