package httpapi

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/wire"
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/sessions"
	"github.com/headgate/headgate/sessions/snapshot"
	"github.com/headgate/headgate/tokens"

	"github.com/labstack/echo/v4"
)

// errorRows pairs every error that can reach a handler with what the client is
// told. The name is the exported identifier, where there is one.
var errorRows = []struct {
	name      string
	err       error
	status    int
	code      string
	label     string
	retryable bool
}{
	{"gitstore.ErrRepoNotFound", gitstore.ErrRepoNotFound, 404, "repository_not_found", "not_found", false},
	{"gitstore.ErrRepoExists", gitstore.ErrRepoExists, 409, "repository_exists", "conflict", false},
	{"gitstore.ErrRepoDeleted", gitstore.ErrRepoDeleted, 409, "repository_deleted", "conflict", false},
	{"gitstore.ErrBadRepoName", gitstore.ErrBadRepoName, 400, "invalid_request", "invalid", false},
	{"gitstore.ErrRefNotFound", gitstore.ErrRefNotFound, 404, "ref_not_found", "not_found", false},
	{"gitstore.ErrObjectNotFound", gitstore.ErrObjectNotFound, 404, "object_not_found", "not_found", false},
	{"gitstore.ErrPinNotFound", gitstore.ErrPinNotFound, 404, "pin_not_found", "not_found", false},
	{"gitstore.ErrPathNotFound", gitstore.ErrPathNotFound, 404, "path_not_found", "not_found", false},
	{"gitstore.ErrNotAFile", gitstore.ErrNotAFile, 404, "path_not_found", "not_found", false},
	{"gitstore.ErrBadRevision", gitstore.ErrBadRevision, 400, "invalid_request", "invalid", false},
	{"gitstore.ErrBadPath", gitstore.ErrBadPath, 400, "invalid_request", "invalid", false},
	{"gitstore.ErrBadCursor", gitstore.ErrBadCursor, 400, "invalid_request", "invalid", false},
	{"gitstore.ErrEmptyRepo", gitstore.ErrEmptyRepo, 404, "ref_not_found", "not_found", false},
	{"gitstore.ErrRefExists", gitstore.ErrRefExists, 409, "already_exists", "conflict", false},
	{"gitstore.ErrDefaultBranch", gitstore.ErrDefaultBranch, 409, "default_branch", "conflict", false},
	{"gitstore.ErrHiddenRef", gitstore.ErrHiddenRef, 403, "forbidden", "forbidden", false},
	{"gitstore.ErrNoChanges", gitstore.ErrNoChanges, 412, "no_changes", "precondition_failed", false},
	{"gitstore.ErrAtomic", gitstore.ErrAtomic, 409, "ref_conflict", "precondition_failed", false},
	{"gitstore.ErrUnreachable", gitstore.ErrUnreachable, 404, "object_not_found", "not_found", false},
	{"gitstore.ErrProofTimeout", gitstore.ErrProofTimeout, 503, "timeout", "unavailable", true},
	{"gitstore.ErrNotFastForward", gitstore.ErrNotFastForward, 409, "not_fast_forward", "conflict", false},
	{"gitstore.ErrInvalid", gitstore.ErrInvalid, 400, "invalid_request", "invalid", false},
	{"gitstore.ErrTooLarge", gitstore.ErrTooLarge, 413, "payload_too_large", "payload_too_large", false},
	{"gitstore.ErrBadObject", gitstore.ErrBadObject, 400, "invalid_request", "invalid", false},
	{"gitstore.ErrDamaged", gitstore.ErrDamaged, 500, "internal", "internal", false},
	{"gitstore.ErrClosed", gitstore.ErrClosed, 503, "unavailable", "unavailable", true},
	{"gitstore.RefMovedError", &gitstore.RefMovedError{Ref: "refs/heads/main"}, 409, "ref_conflict", "precondition_failed", false},
	{"gitstore.ForeignLedgerError", &gitstore.ForeignLedgerError{Dir: "data", Folder: "store-a"}, 500, "internal", "internal", false},
	{"gitstore.RepoError", &gitstore.RepoError{ID: "repo_x", Err: io.ErrUnexpectedEOF}, 500, "internal", "internal", false},
	{"gitstore.BackupError", &gitstore.BackupError{File: "MANIFEST", Err: io.ErrUnexpectedEOF}, 500, "internal", "internal", false},
	{"gitstore.ReplaceError", &gitstore.ReplaceError{Dir: "backups", Why: "is empty"}, 500, "internal", "internal", false},
	{"gitstore.NameClashError", &gitstore.NameClashError{Ref: "refs/heads/a/b", Existing: "refs/heads/a"}, 409, "already_exists", "conflict", false},

	{"ledger.ErrNotFound", ledger.ErrNotFound, 500, "internal", "internal", false},
	{"ledger.ErrLogTrimmed", ledger.ErrLogTrimmed, 500, "internal", "internal", false},
	{"ledger.ErrInvalidBatch", ledger.ErrInvalidBatch, 500, "internal", "internal", false},
	{"ledger.ErrTooLarge", ledger.ErrTooLarge, 413, "payload_too_large", "payload_too_large", false},
	{"ledger.ErrNoSpace", ledger.ErrNoSpace, 507, "no_space", "unavailable", true},
	{"ledger.ErrUnavailable", ledger.ErrUnavailable, 503, "unavailable", "unavailable", true},
	{"ledger.ErrClosed", ledger.ErrClosed, 503, "unavailable", "unavailable", true},
	{"ledger.ErrBadDump", ledger.ErrBadDump, 500, "internal", "internal", false},
	{"ledger.ErrNotEmpty", ledger.ErrNotEmpty, 500, "internal", "internal", false},
	{"ledger.ErrUnfinished", ledger.ErrUnfinished, 500, "internal", "internal", false},
	{"ledger.CheckError", &ledger.CheckError{}, 500, "internal", "internal", false},
	{"ledger.RepeatedError", &ledger.RepeatedError{}, 500, "internal", "internal", false}, // its answer is given instead

	{"sessions.ErrInvalid", sessions.ErrInvalid, 400, "invalid_request", "invalid", false},
	{"sessions.ErrBadCursor", sessions.ErrBadCursor, 400, "invalid_request", "invalid", false},
	{"sessions.ErrNotFound", sessions.ErrNotFound, 404, "session_not_found", "not_found", false},
	{"sessions.ErrGroupNotFound", sessions.ErrGroupNotFound, 404, "fork_not_found", "not_found", false},
	{"sessions.ErrTokenNotFound", sessions.ErrTokenNotFound, 404, "token_not_found", "not_found", false},
	{"sessions.ErrExists", sessions.ErrExists, 409, "already_exists", "conflict", false},
	{"sessions.ErrLeaseLost", sessions.ErrLeaseLost, 409, "lease_lost", "conflict", false},
	{"sessions.ErrNotCreator", sessions.ErrNotCreator, 403, "forbidden", "forbidden", false},
	{"sessions.ErrTokenDead", sessions.ErrTokenDead, 401, "unauthorized", "unauthorized", false},
	{"sessions.ErrForeignSession", sessions.ErrForeignSession, 403, "forbidden", "forbidden", false},
	{"sessions.ErrPicked", sessions.ErrPicked, 409, "already_picked", "conflict", false},
	{"sessions.StaleEpochError", &sessions.StaleEpochError{Have: 3, Session: 4}, 403, "stale_epoch", "forbidden", false},
	{"sessions.StateError", &sessions.StateError{State: sessions.Ended}, 409, "session_state", "conflict", false},
	{"", &sessions.StateError{State: sessions.ViewOnly}, 409, "view_only", "conflict", false},
	{"sessions.LeaseHeldError", &sessions.LeaseHeldError{}, 409, "lease_held", "conflict", false},
	{"sessions.InUseError", &sessions.InUseError{}, 409, "in_use", "conflict", false},
	{"sessions.LimitError", &sessions.LimitError{What: "max_live"}, 409, "no_slots", "conflict", false},
	{"", &sessions.LimitError{What: "max_fork_n"}, 400, "invalid_request", "invalid", false},
	{"", &sessions.LimitError{What: sessions.LimitBatch}, 400, "invalid_request", "invalid", false},
	{"sessions.ChildrenFailedError", &sessions.ChildrenFailedError{}, 409, "fork_failed", "conflict", false},

	{"sessions.ErrSnapshotGone", sessions.ErrSnapshotGone, 409, "snapshot_state", "conflict", false},

	{"snapshot.ErrInvalid", snapshot.ErrInvalid, 400, "invalid_request", "invalid", false},
	{"snapshot.ErrNotFound", snapshot.ErrNotFound, 404, "snapshot_not_found", "not_found", false},
	{"snapshot.ErrUploadNotFound", snapshot.ErrUploadNotFound, 404, "upload_not_found", "not_found", false},
	{"snapshot.ErrNoSession", snapshot.ErrNoSession, 404, "session_not_found", "not_found", false},
	{"snapshot.ErrNoObject", snapshot.ErrNoObject, 404, "object_not_found", "not_found", false},
	{"snapshot.ErrDamaged", snapshot.ErrDamaged, 500, "snapshot_damaged", "internal", false},
	{"snapshot.ErrNotQuiet", snapshot.ErrNotQuiet, 409, "not_quiescent", "conflict", false},
	{"snapshot.ErrMissing", snapshot.ErrMissing, 409, "chunks_missing", "conflict", false},
	{"snapshot.ErrMismatch", snapshot.ErrMismatch, 422, "hash_mismatch", "invalid", false},
	{"snapshot.ErrSealed", snapshot.ErrSealed, 409, "sealed", "conflict", false},
	{"snapshot.ErrSealNeeded", snapshot.ErrSealNeeded, 409, "seal_needed", "conflict", false},
	{"snapshot.ErrBase", snapshot.ErrBase, 403, "base_image", "forbidden", false},
	{"snapshot.ErrByHand", snapshot.ErrByHand, 403, "forbidden", "forbidden", false},
	{"snapshot.ErrBusy", snapshot.ErrBusy, 409, "busy", "conflict", false},
	{"snapshot.ErrRange", snapshot.ErrRange, 416, "range_not_satisfiable", "failed", false},
	{"snapshot.ErrNotCreator", snapshot.ErrNotCreator, 403, "forbidden", "forbidden", false},
	{"snapshot.FieldError", &snapshot.FieldError{Field: "format"}, 422, "invalid_field", "invalid", false},
	{"", &snapshot.FieldError{Field: "base", Conflict: true}, 409, "invalid_field", "conflict", false},
	{"snapshot.MissingError", &snapshot.MissingError{Chunks: make([]snapshot.Hash, 1)}, 409, "chunks_missing", "conflict", false},
	{"snapshot.MovedError", &snapshot.MovedError{Ref: "refs/x"}, 409, "precondition_failed", "conflict", false},
	{"snapshot.OverCapError", &snapshot.OverCapError{Cap: 1, Size: 2}, 413, "over_cap", "payload_too_large", false},
	{"snapshot.FullError", &snapshot.FullError{What: "quota_bytes"}, 507, "storage_full", "unavailable", true},
	{"", &snapshot.FullError{What: "uploads", Slots: true}, 409, "no_slots", "conflict", false},
	{"snapshot.DamagedError", &snapshot.DamagedError{What: "leaf 1 chunk 2", Err: io.ErrUnexpectedEOF}, 500, "snapshot_damaged", "internal", false},
	{"snapshot.StateError", &snapshot.StateError{State: snapshot.Deleting}, 409, "snapshot_state", "conflict", false},
	{"snapshot.InUseError", &snapshot.InUseError{Holders: []string{"x"}}, 409, "in_use", "conflict", false},
	{"", errNotSealed, 409, "not_sealed", "conflict", false},

	{"refpolicy.ErrBadOID", refpolicy.ErrBadOID, 400, "invalid_request", "invalid", false},
	{"refpolicy.ErrBadClaim", refpolicy.ErrBadClaim, 401, "unauthorized", "unauthorized", false},
	{"refpolicy.RefNameError", &refpolicy.RefNameError{Name: "a..b", Rule: "no"}, 400, "invalid_request", "invalid", false},
	{"refpolicy.PatternError", &refpolicy.PatternError{}, 500, "internal", "internal", false}, // tokens turns it into a ClaimError
	{"refpolicy.DeniedError", &refpolicy.DeniedError{Ref: "refs/heads/main", Op: refpolicy.NoPush}, 403, "policy_denied", "forbidden", false},

	{"tokens.ErrUnauthorized", tokens.ErrUnauthorized, 401, "unauthorized", "unauthorized", false},
	{"tokens.ErrMalformed", tokens.ErrMalformed, 401, "unauthorized", "unauthorized", false},
	{"tokens.ErrBadHeader", tokens.ErrBadHeader, 401, "unauthorized", "unauthorized", false},
	{"tokens.ErrBadAlgorithm", tokens.ErrBadAlgorithm, 401, "unauthorized", "unauthorized", false},
	{"tokens.ErrReservedKeyID", tokens.ErrReservedKeyID, 401, "unauthorized", "unauthorized", false},
	{"tokens.ErrUnknownOrg", tokens.ErrUnknownOrg, 401, "unauthorized", "unauthorized", false},
	{"tokens.ErrBadSignature", tokens.ErrBadSignature, 401, "unauthorized", "unauthorized", false},
	{"tokens.ErrExpired", tokens.ErrExpired, 401, "unauthorized", "unauthorized", false},
	{"tokens.ErrNotYetValid", tokens.ErrNotYetValid, 401, "unauthorized", "unauthorized", false},
	{"tokens.ErrDenied", tokens.ErrDenied, 401, "unauthorized", "unauthorized", false},
	{"tokens.ErrMoreAsked", tokens.ErrMoreAsked, 403, "forbidden", "forbidden", false},
	{"tokens.ErrGrantTooLarge", tokens.ErrGrantTooLarge, 400, "invalid_request", "invalid", false},
	{"tokens.ErrBadDenial", tokens.ErrBadDenial, 400, "invalid_request", "invalid", false},
	{"tokens.ErrDenialNotFound", tokens.ErrDenialNotFound, 404, "denial_not_found", "not_found", false},
	{"tokens.ErrBadClaim", tokens.ErrBadClaim, 401, "unauthorized", "unauthorized", false},
	{"tokens.ClaimError", &tokens.ClaimError{Claim: "exp"}, 401, "unauthorized", "unauthorized", false},
	{"tokens.ErrNoRepoClaim", tokens.ErrNoRepoClaim, 403, "forbidden", "forbidden", false},
	{"tokens.ScopeError", &tokens.ScopeError{Missing: []tokens.Scope{tokens.GitWrite}}, 403, "forbidden", "forbidden", false},
	// Errors of keys never come from a request.
	{"tokens.ErrUnsupportedKey", tokens.ErrUnsupportedKey, 500, "internal", "internal", false},
	{"tokens.ErrBadPEM", tokens.ErrBadPEM, 500, "internal", "internal", false},
	{"tokens.ErrPrivateKey", tokens.ErrPrivateKey, 500, "internal", "internal", false},
	{"tokens.ErrBadKeyID", tokens.ErrBadKeyID, 500, "internal", "internal", false},
	{"tokens.ErrUnknownScope", tokens.ErrUnknownScope, 500, "internal", "internal", false},

	{"", gitcmd.ErrBusy, 503, "unavailable", "unavailable", true},
	{"", gitcmd.ErrTimeout, 504, "timeout", "timeout", true},
	{"", &gitcmd.ExitError{Name: "diff"}, 500, "internal", "internal", false},
	{"", &wire.ProtocolError{Text: "expected flush"}, 400, "invalid_request", "invalid", false},
	{"", context.DeadlineExceeded, 504, "timeout", "timeout", true},
	{"", context.Canceled, 499, "canceled", "timeout", false},
	{"", os.ErrDeadlineExceeded, 408, "timeout", "timeout", true},
	{"", echo.ErrNotFound, 404, "route_not_found", "not_found", false},
	{"", echo.ErrMethodNotAllowed, 405, "method_not_allowed", "failed", false},
	{"", errNoCredentials, 401, "unauthorized", "unauthorized", false},
	{"", invalid("x"), 400, "invalid_request", "invalid", false},
	{"", &limitError{text: "x"}, 429, "too_many_requests", "unavailable", true},
	{"", tooLarge("x"), 413, "payload_too_large", "payload_too_large", false},
	{"", &requestError{kind: kindForbidden}, 403, "forbidden", "forbidden", false},
	{"", &requestError{kind: kindMediaType}, 415, "unsupported_media_type", "failed", false},
	{"", &requestError{kind: kindNotSupported}, 400, "not_supported", "invalid", false},
	{"", &requestError{kind: kindBodyCut}, 400, "invalid_request", "invalid", false},
	{"", &requestError{kind: kindNotReady}, 503, "unavailable", "unavailable", true},
	{"", &requestError{kind: kindPrecondition}, 412, "precondition_failed", "precondition_failed", false},
	{"", &requestError{kind: kindRange}, 416, "range_not_satisfiable", "failed", false},
	{"", io.ErrUnexpectedEOF, 500, "internal", "internal", false},
	{"", errors.New("open /secret/path: no such file"), 500, "internal", "internal", false},
}

func TestProblemOf(t *testing.T) {
	for _, row := range errorRows {
		for _, err := range []error{row.err, fmt.Errorf("read thing: %w", row.err), resultErrorOf(row.err, "main")} {
			p := problemOf(err)
			if p.status != row.status || p.code != row.code || p.label() != row.label || p.retryable() != row.retryable {
				t.Errorf("problemOf(%v) = %d %s, label %s, retryable %v; want %d %s, %s, %v", err,
					p.status, p.code, p.label(), p.retryable(), row.status, row.code, row.label, row.retryable)
			}
			if p.code == codeInternal && p.text != internalText {
				t.Errorf("problemOf(%v) tells %q, want nothing of the inside", err, p.text)
			}
		}
	}
	if text := problemOf(&refpolicy.DeniedError{Ref: "refs/heads/main", Op: refpolicy.NoPush}).text; !strings.Contains(text, "denied by policy") {
		t.Errorf("a denial is told as %q, want the words denied by policy", text)
	}
}

// Every error that a room below exports has its row above, so that a new one
// cannot become a 500 by being forgotten.
func TestProblemOfKnowsEveryExportedError(t *testing.T) {
	rows := make(map[string]bool)
	for _, row := range errorRows {
		rows[row.name] = true
	}
	for room, dir := range map[string]string{
		"gitstore": "../gitstore", "ledger": "../gitstore/ledger", "refpolicy": "../refpolicy", "tokens": "../tokens",
		"sessions": "../sessions", "snapshot": "../sessions/snapshot",
	} {
		names := exportedErrors(t, dir)
		if len(names) == 0 {
			t.Errorf("no exported errors found in %s", dir)
		}
		for _, name := range names {
			if !rows[room+"."+name] {
				t.Errorf("%s.%s has no row in errorRows", room, name)
			}
		}
	}
}

// exportedErrors are the ErrXxx variables and XxxError types of the package in dir.
func exportedErrors(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(gotoken.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatalf("parse %s: %v", name, err)
		}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok {
				names = append(names, errorSpecs(g)...)
			}
		}
	}
	return names
}

func errorSpecs(g *ast.GenDecl) (names []string) {
	for _, spec := range g.Specs {
		switch spec := spec.(type) {
		case *ast.ValueSpec:
			for _, n := range spec.Names {
				if strings.HasPrefix(n.Name, "Err") {
					names = append(names, n.Name)
				}
			}
		case *ast.TypeSpec:
			if spec.Name.IsExported() && strings.HasSuffix(spec.Name.Name, "Error") {
				names = append(names, spec.Name.Name)
			}
		}
	}
	return names
}
