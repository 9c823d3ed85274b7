package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/integration/harness"
)

// A nameDoor is a way in which a token might be told of a session, of a fork or of a
// token that it may not see. open tries it with what b has and with what nobody has.
type nameDoor struct {
	name string
	open func(v *vault, session, group, jti string) string
}

// nameDoors are to doors as names are to ids.
var nameDoors = []nameDoor{
	{"session", func(v *vault, session, _, _ string) string {
		return v.api(harness.Ask{Path: v.path("/sessions/" + session)})
	}},
	{"session from it", func(v *vault, session, _, _ string) string {
		return v.post("/sessions", map[string]any{"id": "mine", "branch": "mine/session", "from_session": session})
	}},
	{"session from its branch", func(v *vault, session, _, _ string) string {
		return v.post("/sessions", map[string]any{"id": "mine", "branch": "mine/session", "base_ref": session, "base_is_ephemeral": true})
	}},
	{"labels", func(v *vault, session, _, _ string) string {
		return v.api(harness.Ask{Method: "PATCH", Path: v.path("/sessions/" + session), JSON: map[string]any{"ttl_s": 5}})
	}},
	{"end", func(v *vault, session, _, _ string) string {
		return v.api(harness.Ask{Method: "DELETE", Path: v.path("/sessions/" + session)})
	}},
	{"what its end frees", func(v *vault, session, _, _ string) string {
		return v.api(harness.Ask{Method: "DELETE", Path: v.path("/sessions/" + session + "?dry_run=true")})
	}},
	{"lease", func(v *vault, session, _, _ string) string {
		return v.post("/sessions/"+session+"/lease", map[string]any{"action": "takeover", "holder": "x"})
	}},
	{"fork", func(v *vault, session, _, _ string) string {
		return v.post("/sessions/"+session+"/fork", map[string]any{"n": 2, "token": map[string]any{}})
	}},
	{"token", func(v *vault, session, _, _ string) string {
		return v.post("/sessions/"+session+"/tokens", map[string]any{})
	}},
	{"tokens", func(v *vault, session, _, _ string) string {
		return v.api(harness.Ask{Path: v.path("/sessions/" + session + "/tokens")})
	}},
	{"revocation", func(v *vault, session, _, jti string) string {
		return v.api(harness.Ask{Method: "DELETE", Path: v.path("/sessions/" + session + "/tokens/" + jti)})
	}},
	{"revocation as if it were its own", func(v *vault, _, _, jti string) string {
		return v.api(harness.Ask{Method: "DELETE", Path: v.path("/sessions/a/tokens/" + jti)})
	}},
	{"children", func(v *vault, session, _, _ string) string {
		return v.api(harness.Ask{Path: v.path("/sessions?parent=" + session)})
	}},
	{"sessions of its holder", func(v *vault, session, _, _ string) string {
		return v.api(harness.Ask{Path: v.path("/sessions?holder=holder+of+" + session)})
	}},
	{"events of it", func(v *vault, session, _, _ string) string {
		return v.api(harness.Ask{Path: v.path("/events?session=" + session)})
	}},
	{"stream of it", func(v *vault, session, _, _ string) string {
		return v.api(harness.Ask{Path: v.path("/events?session=" + session), Header: map[string]string{"Accept": "text/event-stream"}})
	}},
	{"snapshots", func(v *vault, session, _, _ string) string {
		return v.api(harness.Ask{Path: v.path("/sessions/" + session + "/snapshots")})
	}},
	{"save", func(v *vault, session, _, _ string) string {
		return v.api(harness.Ask{Method: "POST", Path: v.path("/sessions/" + session + "/snapshots"), Body: strings.NewReader("mine"), Header: map[string]string{"Content-Type": "application/octet-stream"}})
	}},
	{"upload", func(v *vault, session, _, _ string) string {
		return v.post("/sessions/"+session+"/snapshots/uploads", map[string]any{})
	}},
	{"import", func(v *vault, session, _, _ string) string {
		return v.api(harness.Ask{Method: "POST", Path: v.path("/sessions/" + session + "/snapshots/import"), Body: strings.NewReader("# v2 git bundle\n"), Header: map[string]string{"Content-Type": "application/x-git-bundle"}})
	}},
	{"group", func(v *vault, _, group, _ string) string { return v.api(harness.Ask{Path: v.path("/forks/" + group)}) }},
	{"comparison", func(v *vault, _, group, _ string) string {
		return v.api(harness.Ask{Path: v.path("/forks/" + group + "/compare")})
	}},
	{"pick", func(v *vault, _, group, _ string) string {
		return v.post("/forks/"+group+"/pick", map[string]any{"winner": "a"})
	}},
	{"report", func(v *vault, session, group, _ string) string {
		return v.api(harness.Ask{Method: "PUT", Path: v.path("/forks/" + group + "/children/" + session + "/validity"), JSON: map[string]any{"valid": false}})
	}},
	{"report on its own child", func(v *vault, _, group, _ string) string {
		return v.api(harness.Ask{Method: "PUT", Path: v.path("/forks/" + group + "/children/a/validity"), JSON: map[string]any{"valid": false}})
	}},
	{"close", func(v *vault, _, group, _ string) string {
		return v.api(harness.Ask{Method: "DELETE", Path: v.path("/forks/" + group)})
	}},
}

// shutNames tries the doors that are opened by names. Then b, its children and its
// token are as they were, and what happened tells nothing of them.
func shutNames(t *testing.T, v *vault) {
	t.Helper()
	const absent, absentGroup = "n", "fork_00000000000000000000000000000000"
	absentID := strings.Repeat("0", len(v.jti))
	before := v.listed("state", "active")
	for _, d := range nameDoors {
		names := func(text string, session, group, jti string) string {
			return strings.NewReplacer(group, "GROUP", jti, "JTI", `"`+session+`"`, "SESSION", "refs/heads/"+session+`"`, "BRANCH").Replace(text)
		}
		want := names(d.open(v, absent, absentGroup, absentID), absent, absentGroup, absentID)
		got := names(d.open(v, "b", v.group, v.jti), "b", v.group, v.jti)
		if got != want || strings.HasPrefix(want, "5") || strings.HasPrefix(got, "201") {
			t.Errorf("%s of b = %.400q, of what is not there %.400q; want the same", d.name, got, want)
		}
	}
	if after := v.listed("state", "active"); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("sessions are %v, were %v", after, before)
	}
	if list := v.ask("GET", "/sessions/b/tokens", v.write, nil); list.Status != 200 || strings.Contains(string(list.Body), "revoked_at") {
		t.Errorf("tokens of b = %s, want none revoked", list)
	}
	told := v.api(harness.Ask{Path: v.path("/events?limit=1000")}) + v.api(harness.Ask{Path: v.path("/sessions")}) + v.api(harness.Ask{Path: v.path("/pins")}) + v.api(harness.Ask{Path: "/api/launchable"})
	if !strings.Contains(told, v.own) {
		t.Errorf("events, sessions and pins = %.2000s, want its own", told)
	}
	for _, secret := range []string{v.tip, v.ancestor, v.snapshot, v.group, v.jti, `"b"`, "holder of b", "ses_"} {
		if strings.Contains(told, secret) {
			t.Errorf("events, sessions or pins tell of %q: %.2000s", secret, told)
		}
	}
}
