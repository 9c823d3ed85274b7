package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/integration/harness"
	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/tokens"
)

// Among many sessions' branches a sandbox finds its one, by git in every form and by
// the API, and the normal remote shows none.
func TestF02_ASandboxSeesItsOneAmongMany(t *testing.T) {
	const many = 1_500
	onEachEngine(t, func(t *testing.T, g *gate) {
		r, main := g.seeded()
		clone := r.clone(r.remote(r.write))
		push := []string{"push", "-q", r.ephemeral(r.write)}
		for i := range many {
			push = append(push, fmt.Sprintf("main:refs/heads/s/%d", i))
		}
		g.run(clone, push...)
		own := r.token([]tokens.Scope{tokens.GitWrite, tokens.GitRead},
			refpolicy.Rule{Pattern: ephemeralPrefix + "s/7", Ops: []refpolicy.Op{refpolicy.NoForcePush}},
			refpolicy.Rule{Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoRead}})
		for _, version := range []string{"0", "2"} {
			shown := func(remote string) string {
				return g.run("", "-c", "protocol.version="+version, "ls-remote", "-q", remote)
			}
			if got, want := shown(r.remote(r.read)), main+"\tHEAD\n"+main+"\trefs/heads/main"; got != want {
				t.Errorf("ls-remote of the normal remote in v%s = %.300q, want %q", version, got, want)
			}
			if got, want := shown(r.ephemeral(own)), main+"\tHEAD\n"+main+"\trefs/heads/s/7"; got != want {
				t.Errorf("ls-remote by a sandbox in v%s = %.300q, want %q", version, got, want)
			}
			if got := shown(r.remote(own)); got != "" {
				t.Errorf("ls-remote of the normal remote by a sandbox in v%s = %.300q, want nothing", version, got)
			}
			if got := strings.Count(shown(r.ephemeral(r.read)), "\trefs/heads/s/"); got != many {
				t.Errorf("ls-remote of the ephemeral remote in v%s shows %d sessions, want %d", version, got, many)
			}
		}
		sandbox := r.clone(r.ephemeral(own))
		head := r.work(sandbox, "state", "1\n")
		g.run(sandbox, "push", "-q")
		if got := r.head("s/7", true); got != head {
			t.Errorf("head of s/7 = %s, want %s that was pushed", got, head)
		}
		for _, query := range []string{"", "&prefix=s/", "&prefix=s/7"} {
			a := g.want(200, harness.Ask{Path: r.path("/branches?ephemeral=true" + query), Token: own})
			if got := a.List("branches"); len(got) != 1 || a.Get("has_more") != false {
				t.Errorf("branches by a sandbox%s = %s, want its one", query, a)
			}
		}
		if got := len(r.get("/branches", "ephemeral", "true", "prefix", "s/149").List("branches")); got != 11 {
			t.Errorf("branches below s/149 are %d, want 11", got)
		}
	})
}
