package gitstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/headgate/headgate/gitstore/gitcmd"
	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/refpolicy"
)

// verdict is what a push is told of one ref.
type verdict struct {
	change  Change
	err     error  // what it was judged by, if not by its name
	reason  string // for the report; empty: it was done
	help    string // a line for the user, if reason does not say all
	warning string // for the user, of a ref that was done
}

func (v *verdict) refuse(reason, help string) { v.reason, v.help = reason, help }

// judge puts a refusal into the words of the report (contract/git.md 4).
func (v *verdict) judge(err error, p *push) {
	v.err = err
	var (
		moved  *RefMovedError
		clash  *NameClashError
		name   *refpolicy.RefNameError
		denied *refpolicy.DeniedError
	)
	switch {
	case errors.As(err, &denied):
		v.refuse(denied.Error(), "")
	case errors.As(err, &moved):
		v.refuse("failed to update ref", p.movedHelp(moved))
	case errors.As(err, &clash):
		v.refuse(p.clashReason(clash), "")
	case errors.As(err, &name):
		v.refuse(funnyName, name.Rule)
	case errors.Is(err, ErrUnreachable):
		v.refuse(ErrUnreachable.Error(), "something it refers to is neither in the push nor reachable from a ref this token may read; fetch, then push again")
	default:
		v.refuse(v.otherReason(err), "")
	}
}

// take notes what the door said of a ref. Deleting what is not there does what was
// asked; like git, headgate only warns.
func (v *verdict) take(res RefResult, p *push) {
	var moved *RefMovedError
	switch {
	case res.Err == nil && res.Old.IsZero() && res.New.IsZero(),
		errors.As(res.Err, &moved) && moved.Present.IsZero() && res.New.IsZero() && !p.req.Atomic():
		v.warning = "deleting a ref that does not exist"
	case res.Err != nil:
		v.judge(res.Err, p)
	}
}

// otherReason covers refusals without facts of their own. What is not known here is
// a guard's, written for whoever asked.
func (v *verdict) otherReason(err error) string {
	for _, known := range []error{ErrAtomic, ErrDefaultBranch, ErrHiddenRef} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return strings.TrimPrefix(err.Error(), ErrInvalid.Error()+": ")
}

// failureReason tells of a push that could not be judged.
func failureReason(err error) string {
	switch {
	case errors.Is(err, ErrRepoNotFound):
		return ErrRepoNotFound.Error()
	case errors.Is(err, gitcmd.ErrBusy):
		return "the server is busy, try again"
	case errors.Is(err, ErrTooLarge), errors.Is(err, ledger.ErrTooLarge):
		return err.Error()
	case errors.Is(err, ErrProofTimeout):
		return "checking what the push refers to took too long, try again"
	case errors.Is(err, ledger.ErrNoSpace), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "no space left on the server, try again later"
	case errors.Is(err, ledger.ErrUnavailable), errors.Is(err, ledger.ErrClosed), errors.Is(err, ErrClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "the server cannot answer now, try again"
	}
	return "internal error"
}

// movedHelp says where a ref is that is not where the push expected it.
func (p *push) movedHelp(e *RefMovedError) string {
	if e.Present.IsZero() {
		return fmt.Sprintf("it does not exist any more, you expected it at %s; fetch, then push again", e.Expected)
	}
	where := "it is at " + e.Present.String()
	if e.Writer != "" {
		where += fmt.Sprintf(", written by %s at %s", e.Writer, e.At.UTC().Format(time.RFC3339))
	}
	if e.Expected.IsZero() {
		return where + "; you wanted to create it; fetch, then push again"
	}
	return fmt.Sprintf("%s; you expected %s; fetch, merge or rebase, then push again", where, e.Expected)
}

// clashReason names the ref that is in the way only to whoever may read it.
func (p *push) clashReason(e *NameClashError) string {
	shown := strings.TrimPrefix(string(e.Ref), p.q.Remote.prefix())
	other := "another ref"
	if p.c.Policy.CanRead(e.Existing) {
		other = strings.TrimPrefix(string(e.Existing), p.q.Remote.prefix())
	}
	return fmt.Sprintf("cannot lock ref %s: %s exists; cannot create", shown, other)
}

// lines are what the user of a push sees beside the report: for each refused ref
// why, and in the end what the token may do.
func (p *push) lines() []string {
	var lines []string
	refused := 0
	for i, u := range p.req.Updates {
		v := &p.verdicts[i]
		switch {
		case v.reason != "":
			refused++
			line := u.Ref + ": " + v.reason
			if v.help != "" {
				line += " (" + v.help + ")"
			}
			lines = append(lines, line)
		case v.warning != "":
			lines = append(lines, "warning: "+u.Ref+": "+v.warning)
		}
		if refused > maxRefusedLines {
			lines = append(lines, "and more refs were refused; the report has all")
			break
		}
	}
	if refused > 0 && p.q.Advice != "" {
		lines = append(lines, p.q.Advice)
	}
	return lines
}

// maxRefusedLines bounds how many refused refs are explained.
const maxRefusedLines = 50
