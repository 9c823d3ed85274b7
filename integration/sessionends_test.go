package integration

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/integration/harness"
)

// A session ends in its time though a fork's kept state stands on the same commit; one
// whose head somebody has pinned stays (DR-19, D-08). What a state pins is still read.
func TestD08_SessionEndsBesideAKeptState(t *testing.T) {
	g := start(t, withConfig("[sessions]\nreap_every = \"100ms\"\n"))
	r, main := g.seeded()
	create := func(body map[string]any) {
		t.Helper()
		g.want(201, harness.Ask{Method: "POST", Path: r.path("/sessions"), Token: r.write, JSON: body})
	}
	create(map[string]any{"id": "parent", "base_ref": "main"})
	g.want(201, harness.Ask{Method: "POST", Path: r.path("/sessions/parent/fork"), Token: r.write, JSON: map[string]any{"n": 2}})
	create(map[string]any{"id": "held", "base_ref": "main", "ttl_s": 1})
	mine := r.commit(harness.Commit{Branch: "sessions/held", Ephemeral: true, Expected: main, Files: []harness.File{{Path: "mine", Content: "1"}}})
	g.want(201, harness.Ask{Method: "POST", Path: r.path("/pins"), Token: r.write, JSON: map[string]any{"sha": mine, "holder": "reader"}})
	create(map[string]any{"id": "short", "base_ref": "main", "ttl_s": 1})
	for after := 0.0; ; {
		page := g.want(200, harness.Ask{Path: r.path(fmt.Sprintf("/events?session=short&after=%.0f&wait_s=30", after)), Token: r.read})
		last, ok := page.Get("last_seq").(float64)
		if !ok {
			t.Fatalf("events = %s, want last_seq", page)
		}
		ended := false
		for _, e := range page.List("events") {
			ended = ended || e.(map[string]any)["type"] == "session.ended"
		}
		if ended {
			break
		}
		after = last
	}
	for id, want := range map[string]string{"short": "ended", "held": "active", "parent": "active"} {
		if a := g.want(200, harness.Ask{Path: r.path("/sessions/" + id), Token: r.read}); a.Text("state") != want {
			t.Errorf("session %s = %s, want it %s", id, a, want)
		}
	}
	r.wantFile(mine, "mine", "1")
}
