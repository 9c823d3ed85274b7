package gitstore

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// A token of session A is told of A alone: nothing in its events has the ref, the
// commits, the session, its tokens or its group of anybody else.
func TestA13_EventsOfOthers(t *testing.T) {
	const refA, refB, refP = branchA13, branchB13, refpolicy.EphemeralBranchPrefix + "s/parent"
	oidA, oidB := strings.Repeat("a1", 20), strings.Repeat("b2", 20)
	actor := func(session string) string {
		return fmt.Sprintf(`"actor":{"org":"acme","sub":"runner","jti":"jti-%s","sid":"%[1]s","epoch":7}`, session)
	}
	backend := `"actor":{"org":"acme","sub":"backend","jti":"jti-backend"}`
	change := func(ref, oid, session string) string {
		return fmt.Sprintf(`{"ref":%q,"old_sha":%q,"new_sha":%q,"kind":"update","session":%q}`, ref, oid, oid, session)
	}
	a, b := change(refA, oidA, "sess-a"), change(refB, oidB, "sess-b")
	secrets := []string{refB, refP, oidB, "sess-b", "sess-parent", "secret"}
	for _, tc := range []struct {
		name, entry string
		want        string // type, session, refs, data of what A is told; "" nothing
	}{
		{"a change of its own", `{"type":"ref.updated",` + actor("sess-a") + `,"changes":[` + a + `]}`, "ref.updated [s/a] "},
		{"by a backend", `{"type":"ref.updated",` + backend + `,"changes":[` + a + `]}`, "ref.updated [s/a] "},
		{"by another session", `{"type":"ref.updated",` + actor("sess-b") + `,"changes":[` + a + `]}`, "ref.updated [s/a] "},
		{"of another", `{"type":"ref.updated",` + actor("sess-b") + `,"changes":[` + b + `]}`, ""},
		{"both in one push", `{"type":"ref.updated",` + actor("sess-b") + `,"changes":[` + b + `,` + a + `],"data":{"secret":1}}`, "ref.updated [s/a] "},
		{"its own creation", `{"type":"session.created",` + backend + `,"changes":[` + a + `],"session":"sess-a","data":{"branch":"s/a","holder":"h"}}`, `session.created sess-a [s/a] {"branch":"s/a","holder":"h"}`},
		{"data that names no ref", `{"type":"session.created",` + backend + `,"changes":[` + a + `],"session":"sess-a","data":{"losers":["sess-b"]}}`, `session.created sess-a [s/a] `},
		{"its own end", `{"type":"session.ended",` + backend + `,"changes":[` + a + `],"session":"sess-a","data":{"cause":"idle"}}`, `session.ended sess-a [s/a] {"cause":"idle"}`},
		{"its own record", `{"type":"session.changed",` + backend + `,"changes":[],"session":"sess-a","data":{"branch":"s/a","state":"active"}}`, `session.changed sess-a [] {"branch":"s/a","state":"active"}`},
		{"a record of another", `{"type":"session.changed",` + backend + `,"changes":[],"session":"sess-b","data":{"branch":"s/b","state":"active"}}`, ""},
		{"creation of another", `{"type":"session.created",` + backend + `,"changes":[` + b + `],"session":"sess-b"}`, ""},
		{"a fork that it is a child of", `{"type":"session.created",` + actor("sess-parent") + `,"changes":[` + a + `,` + b + `],"session":"sess-parent","data":{"group":"secret","children":["sess-a","sess-b"]}}`, "session.created sess-a [s/a] "},
		{"a fork with no other child", `{"type":"session.created",` + backend + `,"changes":[` + a + `],"session":"sess-parent","data":{"group":"secret","parent":"sess-parent"}}`, "session.created sess-a [s/a] "},
		{"a fork whose parent is named", `{"type":"session.created",` + backend + `,"changes":[` + a + `],"session":"sess-a","data":{"ref":"` + refA + `","refs":["` + refP + `"],"parent":"sess-parent"}}`, "session.created sess-a [s/a] "},
		{"its own lease", `{"type":"lease.changed",` + backend + `,"changes":[],"session":"sess-a","data":{"ref":"` + refA + `","epoch":2}}`, `lease.changed sess-a [] {"ref":"` + refA + `","epoch":2}`},
		{"a lease of another", `{"type":"lease.changed",` + backend + `,"changes":[],"session":"sess-b","data":{"ref":"` + refB + `"}}`, ""},
		{"a lease that names no ref", `{"type":"lease.changed",` + backend + `,"changes":[],"session":"sess-a","data":{"secret":2}}`, ""},
		{"two that end", `{"type":"session.ended",` + backend + `,"changes":[` + a + `,` + b + `],"data":{"ended":["sess-a","sess-b"]}}`, `session.ended [s/a] {"ended":["sess-a"]}`},
		{"a hidden one that ends beside", `{"type":"session.ended",` + backend + `,"changes":[` + a + `],"session":"sess-a","data":{"ref":"` + refA + `","ended":["sess-a","sess-b"]}}`, `session.ended sess-a [s/a] {"ended":["sess-a"]}`},
		{"a default branch", `{"type":"repo.updated",` + backend + `,"changes":[],"data":{"old_default_branch":"main","default_branch":"secret"}}`, ""},
		{"a form that is not known", `{"type":"operation.done",` + backend + `,"changes":[],"session":"sess-a","data":{"ref":7,"secret":1}}`, ""},
		{"data that is no object", `{"type":"operation.done",` + backend + `,"changes":[` + a + `],"data":["secret"]}`, ""},
		{"no JSON", `secret`, ""},
		{"nothing at all", `{"type":"quiet","session":"sess-a","data":{"secret":1}}`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newTestRepo(t, openTestStore(t, nil), "repo")
			c := callerBy(t, refpolicy.Rule{Pattern: refA}, refpolicy.Rule{Pattern: "*", Ops: []refpolicy.Op{refpolicy.NoRead}})
			logRaw(t, r, tc.entry)
			for _, session := range []string{"", "sess-a"} {
				page := mustEvents(t, r, c, EventQuery{Session: session})
				got := ""
				for _, e := range page.Events {
					got += toldOf(e)
				}
				if page.Last != 1 || page.More {
					t.Errorf("looked at up to %d, more %v; want 1, false", page.Last, page.More)
				}
				if session == "" && got != tc.want {
					t.Errorf("told %q, want %q", got, tc.want)
				}
				raw, err := json.Marshal(page)
				for _, s := range secrets {
					if err != nil || strings.Contains(string(raw), s) {
						t.Errorf("filter %q: %q is in %s (%v)", session, s, raw, err)
					}
				}
			}
			if page := mustEvents(t, r, c, EventQuery{Session: "sess-b"}); len(page.Events) != 0 {
				t.Errorf("asked for another session's it was told %s", typesOf(page.Events))
			}
			if all := mustEvents(t, r, someone, EventQuery{}); len(all.Events) != 1 {
				t.Errorf("who may read everything was told %s", typesOf(all.Events))
			}
		})
	}
}

// toldOf is an event in one line.
func toldOf(e LogEvent) string {
	var refs []string
	for _, c := range e.Changes {
		refs = append(refs, strings.TrimPrefix(string(c.Ref), refpolicy.EphemeralBranchPrefix))
	}
	line := e.Type
	if e.Session != "" {
		line += " " + e.Session
	}
	return fmt.Sprintf("%s %v %s", line, refs, e.Data)
}

// A filter by session tells what concerns it, and of what happened beside nothing.
func TestEventsOfOneSession(t *testing.T) {
	r := newTestRepo(t, openTestStore(t, nil), "repo")
	change := func(ref, session string) string {
		return fmt.Sprintf(`{"ref":"%ss/%s","old_sha":"%s","new_sha":"%[3]s","kind":"update","session":%[4]q}`,
			refpolicy.EphemeralBranchPrefix, ref, strings.Repeat("ab", 20), session)
	}
	for _, entry := range []string{
		`{"type":"session.created","changes":[` + change("a", "a") + `],"session":"a","data":{"x":1}}`,
		`{"type":"ref.updated","changes":[` + change("b", "b") + `]}`,
		`{"type":"session.created","changes":[` + change("a", "a") + `,` + change("b", "b") + `],"session":"parent","data":{"x":1}}`,
		`{"type":"lease.changed","changes":[],"session":"a","data":{"x":2}}`,
		`{"type":"session.ended","changes":[` + change("a", "a") + `,` + change("b", "b") + `],"data":{"ended":["a","b"]}}`,
	} {
		logRaw(t, r, entry)
	}
	for session, want := range map[string]string{
		"a":      `session.created a [s/a] {"x":1}; session.created a [s/a] ; lease.changed a [] {"x":2}; session.ended [s/a] {"ended":["a"]}`,
		"b":      `ref.updated [s/b] ; session.created b [s/b] ; session.ended [s/b] {"ended":["b"]}`,
		"parent": `session.created parent [s/a s/b] {"x":1}`,
		"nobody": "",
	} {
		var got []string
		for _, e := range allEvents(t, r, someone, EventQuery{Session: session}) {
			got = append(got, toldOf(e))
		}
		if line := strings.Join(got, "; "); line != want {
			t.Errorf("events of %s: %s\nwant %s", session, line, want)
		}
	}
}
