package snapshot

import (
	"context"
)

// headgate is who does what nobody asked for.
func headgate(repo RepoID) Actor { return Actor{Org: repo.Org, Subject: "headgate"} }

// broken writes down that a snapshot cannot be restored any more, and tells its session
// if it is the last. It gives d. Its commit stays where it is: it can be looked at, and
// deleted.
func (k *Keeper) broken(ctx context.Context, repo Repo, commit OID, d *DamagedError) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer done()
	in := &brokenIntent{commit: commit, why: d.Error()}
	err := k.change(ctx, repo.ID(), headgate(repo.ID()), in)
	if err == nil && in.last {
		err = k.Users.SetUsable(ctx, repo.ID(), in.session, false, in.why)
	}
	if err != nil {
		k.Logger.WarnContext(ctx, "write down that a snapshot is damaged", "repo", repo.ID().ID, "sha", commit, "err", err)
	}
	return d
}

// brokenIntent writes down that a snapshot cannot be restored any more.
type brokenIntent struct {
	commit  OID
	why     string
	session string
	last    bool
}

func (in *brokenIntent) fill(ctx context.Context, g *guarding) error {
	in.last = false
	got, err := g.by.record(ctx, in.commit.String())
	if err != nil || !got.exists() || got.State != Ready {
		return err
	}
	st, err := g.by.standing(ctx, got.Session)
	if err != nil {
		return err
	}
	r := got.record
	r.State, r.Broken, r.Reason, r.EndedAt = Failed, true, cut(in.why), g.q.Now
	due := r.Due
	in.session, in.last = r.Session, st.Last == in.commit
	to := st.standing
	if in.last {
		to.Broken = true
		due = earliest(due, g.q.Now.Add(g.k.Limits.ReapEvery)) // the session is told, also if this process dies
	}
	g.a.Rider.Join(st.put(to))
	g.put(got, r, due)
	g.event(eventFailed, r.Session, r.data())
	return nil
}

// retell tells a session once more that its last snapshot is broken, or is not any more.
// Both may have been lost with the process that found out.
func (k *Keeper) retell(ctx context.Context, repo RepoID, session string) error {
	st, err := k.reads(repo).standing(ctx, session)
	if err != nil {
		return err
	}
	why := ""
	if st.Broken {
		got, err := k.reads(repo).record(ctx, st.Last.String())
		if err != nil {
			return err
		}
		why = got.Reason
	}
	return k.Users.SetUsable(ctx, repo, session, !st.Broken, why)
}
