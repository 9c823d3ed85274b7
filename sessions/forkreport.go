package sessions

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// A report is what a runner said of a child.
type report struct {
	Failed bool      `json:"failed"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
	By     Actor     `json:"by"`
}

const maxReason = 1 << 10 // bytes

// reportData is what session.changed tells of a report.
type reportData struct {
	GroupID string `json:"group_id"`
	Failed  bool   `json:"failed"`
	Reason  string `json:"reason,omitempty"`
}

// A ReportSpec is what a runner says of a child: whether it failed, and why.
type ReportSpec struct {
	Failed bool
	Reason string // at most 1 KiB of text
	Once   *ledger.Once[struct{}]
}

// ReportChild notes on a group whether a child of it came up, as its runner says; a
// later report takes the place of an earlier one. The caller must be able to write
// the child's branch. Errors: ErrInvalid, ErrNotFound, ErrGroupNotFound (also when it
// is not the child's group), *StateError, ErrForeignSession, *StaleEpochError,
// *ledger.RepeatedError, the door's.
func (k *Keeper) ReportChild(ctx context.Context, repo Repo, door Door, by Actor, group, child string, spec ReportSpec) error {
	if len(spec.Reason) > maxReason || !isText(spec.Reason) {
		return invalidf("a reason is at most %d bytes of text", maxReason)
	}
	return k.change(ctx, repo, door, child, spec.Once.StoreKey(), func(c *change) error {
		if c.Group == "" || c.Group != group {
			return ErrGroupNotFound
		}
		if err := c.changeable(door, by); err != nil {
			return err
		}
		c.w.rider.Checks = append(c.w.rider.Checks, ledger.Equal(fenceKey(c.ref()), c.fence().encode()), c.base.check())
		c.w.set(reportKey(group, child), mustJSON(report{Failed: spec.Failed, Reason: spec.Reason, At: c.now, By: by}))
		c.log = logEntry{Type: eventChanged, Actor: by, Session: child, Data: mustJSON(reportData{group, spec.Failed, spec.Reason})}
		return carry(c, spec.Once, struct{}{})
	})
}

// reports are what runners said of a group of n children.
func (k *Keeper) reports(ctx context.Context, repo Repo, group string, n int) (map[string]report, error) {
	items, err := k.reads(repo).scan(ctx, reportPrefix(group), n)
	if err != nil {
		return nil, err
	}
	all := make(map[string]report, len(items))
	for _, it := range items {
		var r report
		if err := json.Unmarshal(it.Value, &r); err != nil {
			return nil, fmt.Errorf("decode report on a child: %w", err)
		}
		all[strings.TrimPrefix(it.Key, reportPrefix(group))] = r
	}
	return all, nil
}

// failures are the reported failures, in the order of the children.
func failures(children []string, reports map[string]report) (failed []ChildFailure) {
	for _, id := range children {
		if r, ok := reports[id]; ok && r.Failed {
			failed = append(failed, ChildFailure{ID: id, Reason: r.Reason})
		}
	}
	return failed
}

// awaitFork waits for reports on the children of a fork as its spec says.
func (k *Keeper) awaitFork(ctx context.Context, repo Repo, f Fork, spec ForkSpec) (Fork, error) {
	if spec.Wait <= 0 {
		return f, nil
	}
	reports, err := k.awaitReports(ctx, repo, f, min(spec.Wait, k.Limits.LeaseWaitMax))
	if err != nil {
		return f, err
	}
	f.Failed = failures(f.Group.Children, reports)
	if !spec.Strict || len(f.Failed) == 0 {
		return f, nil
	}
	refused := &ChildrenFailedError{Fork: f}
	for _, id := range f.Group.Children {
		if !reports[id].Failed {
			refused.Good = append(refused.Good, id)
		}
	}
	return f, refused
}

// awaitReports waits until every child was reported on, or has ended, for at most
// patience, and gives the reports there are then.
func (k *Keeper) awaitReports(ctx context.Context, repo Repo, f Fork, patience time.Duration) (map[string]report, error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	grown, err := k.Ledger.Watch(watching, ledger.RepoSpace(repo.ID))
	if err != nil {
		return nil, fmt.Errorf("wait for children: %w", err)
	}
	over := time.NewTimer(patience)
	defer over.Stop()
	for {
		reports, open, err := k.openReports(ctx, repo, f)
		if err != nil || !open {
			return reports, err
		}
		select {
		case _, ok := <-grown:
			if !ok && ctx.Err() == nil {
				return nil, fmt.Errorf("wait for children: %w", ledger.ErrClosed)
			}
		case <-over.C:
			return reports, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// openReports reads the reports on a fork's children; open says that one is live that
// was not reported on.
func (k *Keeper) openReports(ctx context.Context, repo Repo, f Fork) (reports map[string]report, open bool, err error) {
	if reports, err = k.reports(ctx, repo, f.Group.ID, len(f.Children)); err != nil {
		return nil, false, err
	}
	var silent []string
	for _, c := range f.Children {
		if _, ok := reports[c.ID]; !ok {
			silent = append(silent, fenceKey(c.Ref))
		}
	}
	if len(silent) == 0 {
		return reports, false, nil
	}
	fences, err := k.reads(repo).get(ctx, silent...)
	if err != nil {
		return nil, false, err
	}
	for _, raw := range fences {
		open = open || raw != nil
	}
	return reports, open, nil
}
