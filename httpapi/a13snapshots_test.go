package httpapi

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
	"github.com/headgate/headgate/sessions/snapshot"
	"github.com/headgate/headgate/tokens"
)

// snapshotDoors are the routes by which a token might be told of a snapshot that it may
// not read.
var snapshotDoors = []sessionDoor{
	{"snapshot", func(h *house, sha string) ask { return ask{path: h.path("/snapshots/" + sha)} }},
	{"lineage", func(h *house, sha string) ask { return ask{path: h.path("/snapshots/" + sha + "/lineage")} }},
	{"image", func(h *house, sha string) ask { return ask{path: h.path("/snapshots/" + sha + "/image")} }},
	{"sparse image", func(h *house, sha string) ask {
		return ask{path: h.path("/snapshots/" + sha + "/image"), header: map[string][]string{"Accept": {sparseMedia}}}
	}},
	{"page", func(h *house, sha string) ask {
		return ask{path: h.path("/snapshots/" + sha + "/image?address=0&length=16")}
	}},
	{"bundle", func(h *house, sha string) ask { return ask{path: h.path("/snapshots/" + sha + "/bundle")} }},
	{"hot order", func(h *house, sha string) ask {
		return ask{method: "POST", path: h.path("/snapshots/" + sha + "/hot-order"), body: meta{"chunks": []int{0}}}
	}},
	{"key", func(h *house, sha string) ask {
		return ask{method: "POST", path: h.path("/snapshots/" + sha + "/key"), body: meta{}}
	}},
	{"deletion", func(h *house, sha string) ask { return ask{method: "DELETE", path: h.path("/snapshots/" + sha)} }},
	{"dry deletion", func(h *house, sha string) ask {
		return ask{method: "DELETE", path: h.path("/snapshots/" + sha + "?dry_run=true")}
	}},
	{"session from it", func(h *house, sha string) ask {
		return ask{method: "POST", path: h.path("/sessions"), body: meta{"id": "x", "branch": "mine/x", "from_snapshot": sha}}
	}},
	{"fork from it", func(h *house, sha string) ask {
		return ask{method: "POST", path: h.path("/sessions/a/fork"), body: meta{"n": 1, "from_snapshot": sha}}
	}},
	{"save on it", func(h *house, sha string) ask { return h.savingAs("a", meta{"base_sha": sha}) }},
	{"upload on it", func(h *house, sha string) ask {
		return ask{method: "POST", path: h.path("/sessions/a/snapshots/uploads"), body: meta{"base_sha": sha}}
	}},
	{"save of it as a workspace", func(h *house, sha string) ask { return h.savingAs("a", meta{"workspace_sha": sha}) }},
	{"pin", func(h *house, sha string) ask {
		return ask{method: "POST", path: h.path("/pins"), body: meta{"sha": sha, "holder": "me"}}
	}},
	{"session at it", func(h *house, sha string) ask {
		return ask{method: "POST", path: h.path("/sessions"), body: meta{"id": "x", "branch": "mine/x", "base_ref": sha}}
	}},
	{"file of it", func(h *house, sha string) ask { return ask{path: h.path("/file", "ref", sha, "path", "manifest.json")} }},
	{"commit", func(h *house, sha string) ask { return ask{path: h.path("/commit", "sha", sha)} }},
	{"branch at it", func(h *house, sha string) ask {
		return ask{method: "POST", path: h.path("/branches/create"), body: meta{"target_branch": "mine/x", "base_ref": sha}}
	}},
}

// savingAs is a small save without a token yet.
func (h *house) savingAs(session string, m meta) ask {
	a := h.saving(session, image(50, 9_000), m)
	a.token = ""
	return a
}

// For who may read session a alone, the snapshots of another one, bases of the operator's
// among them, are like what is not there, byte for byte.
func TestA13_SnapshotsTellNothing(t *testing.T) {
	h := newHouse(t, func(c *Config) { c.OperatorKey = operatorsKey })
	h.session(meta{"id": "a"})
	h.session(meta{"id": "other-77"})
	first := h.save("other-77", image(40, 50_000), meta{})["sha"].(string)
	base := h.save("other-77", image(41, 50_000), meta{})["sha"].(string)
	last := h.save("other-77", image(42, 50_000), meta{})["sha"].(string)
	h.want(200, ask{method: "POST", path: operatorPrefix + "bases", token: operatorsKey, body: meta{"org": "acme", "repo": h.name, "name": "b", "sha": base}})
	bearers := map[string]string{
		"issued": h.issued("a"),
		"customer's": tokenOf(t, tokens.Claims{Repo: h.name, Scopes: []tokens.Scope{tokens.GitWrite}, Refs: []refpolicy.Rule{
			rule(refOfSession("a"), refpolicy.NoForcePush), rule(snapshot.RefPrefix + "a"), rule("mine/*"),
			rule(refpolicy.EphemeralBranchPrefix + "mine/*"), rule("*", refpolicy.NoRead),
		}}),
	}
	absent := strings.Repeat("1234567890", 4)
	for who, tok := range bearers {
		for _, d := range snapshotDoors {
			for _, sha := range []string{first, base, last} {
				one, other := d.ask(h, sha), d.ask(h, absent)
				one.token, other.token = tok, tok
				got, want := h.do(one), h.do(other)
				if got.status < 400 || got.status >= 500 || got.status != want.status ||
					strings.ReplaceAll(string(got.body), sha, "NAME") != strings.ReplaceAll(string(want.body), absent, "NAME") {
					t.Errorf("%s of %s by %s token = %d %.300s, what is not there is %d %.300s", d.what, sha, who, got.status, got.body, want.status, want.body)
				}
			}
		}
	}
	list := h.want(200, ask{path: "/api/launchable", token: bearers["customer's"]}).json(t)
	if n := len(list["snapshots"].([]any)); n != 0 {
		t.Errorf("launchable for who may read a alone = %v, want none", list)
	}
	theirs := h.do(ask{path: h.path("/sessions/other-77/snapshots"), token: bearers["customer's"]})
	none := h.do(ask{path: h.path("/sessions/nope/snapshots"), token: bearers["customer's"]})
	if string(theirs.body) != string(none.body) {
		t.Errorf("snapshots of a session = %s, of one that is not there %s", theirs.body, none.body)
	}
	for who, tok := range bearers {
		events := string(h.want(200, ask{path: h.path("/events"), token: tok}).body)
		for _, sha := range []string{first, base, last} {
			if strings.Contains(events, sha) || strings.Contains(events, "other-77") {
				t.Errorf("events for %s token tell of another's snapshots: %.400s", who, events)
			}
		}
	}
	for _, sha := range []string{first, base, last} {
		h.want(200, ask{path: h.path("/snapshots/" + sha + "/image"), token: h.read})
	}
}
