package wire

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"github.com/headgate/headgate/refpolicy"
	"pgregory.net/rapid"
)

func TestCheckFilter(t *testing.T) {
	for _, tc := range []struct {
		spec string
		ok   bool
	}{
		{"blob:none", true}, {"blob:limit=0", true}, {"blob:limit=10k", true}, {"blob:limit=1G", true}, {"tree:0", true},
		{"tree:4294967295", true}, {"object:type=tag", true}, {"combine:blob:none+tree:2", true}, {"combine:blob%3Anone", true},
		{"", false}, {"blob", false}, {"blob:", false}, {"blob:limit=", false}, {"blob:limit=k", false}, {"blob:limit=-1", false},
		{"blob:limit=99999999999", false}, {"tree:", false}, {"tree:-1", false}, {"tree:4294967296", false}, {"tree:0x1", false},
		{"object:type=x", false}, {"combine:", false}, {"combine:blob:none+", false}, {"combine:combine%3Ablob:none", false},
		{"combine:%zz", false}, {"sparse:oid=main", false}, {"sparse:path=x", false}, {"combine:tree:0+sparse:oid=x", false},
		{"BLOB:NONE", false}, {"blob:none\n", false}, {"auto", false},
	} {
		if err := checkFilter(tc.spec); (err == nil) != tc.ok {
			t.Errorf("checkFilter(%q) = %v, want ok: %v", tc.spec, err, tc.ok)
		}
	}
}

// What we let pass git has to take too, or a client is cut off in mid-conversation.
func TestCheckFilter_PassesOnlyWhatGitTakes(t *testing.T) {
	t.Parallel()
	repo := sampleRepo(t)
	for _, spec := range []string{
		"blob:none", "blob:limit=0", "blob:limit=10k", "blob:limit=1G", "blob:limit=8589934591g", "tree:0", "tree:4294967295",
		"object:type=tag", "combine:blob:none+tree:2", "combine:blob%3Anone", "combine:tree:1",
	} {
		if err := checkFilter(spec); err != nil {
			t.Errorf("checkFilter(%q) = %v", spec, err)
		}
		if _, err := gitTry(t, repo, nil, nil, "rev-list", "--objects", "--filter="+spec, "main"); err != nil {
			t.Errorf("git refuses filter %q: %v", spec, err)
		}
	}
}

// Equal fetches share one process, so requests that mean the same must have one form.
func TestCanonical_IsOneFormForEqualRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := genFetch.Draw(t, "fetch")
		shuffled := *q
		shuffled.Wants = append(rapid.Permutation(q.Wants).Draw(t, "wants"), q.Wants...)
		shuffled.Haves = append(rapid.Permutation(q.Haves).Draw(t, "haves"), q.Haves...)
		before := slices.Clone(q.Wants)
		a, b := q.Canonical(), shuffled.Canonical()
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("Canonical() of equal requests: %+v and %+v", a, b)
		}
		if !slices.Equal(before, q.Wants) {
			t.Fatal("Canonical() changed the request itself")
		}

		u := genUpload.Draw(t, "upload")
		other := *u
		other.Wants = append(rapid.Permutation(u.Wants).Draw(t, "upload wants"), u.Wants...)
		other.Capabilities = append(slices.Clone(u.Capabilities), "session-id=1", "agent=other")
		var x, y bytes.Buffer
		if u.Canonical().Encode(&x) != nil || other.Canonical().Encode(&y) != nil || !bytes.Equal(x.Bytes(), y.Bytes()) {
			t.Fatalf("Canonical() of equal requests encodes as %q and %q", &x, &y)
		}
	})
}

func TestFilterHaves_KeepsOnlyTheReadable(t *testing.T) {
	a, b := oid(t, oidA), oid(t, oidB)
	onlyA := func(id refpolicy.OID) bool { return id == a }
	q := &FetchRequest{Haves: []refpolicy.OID{b, a, b}}
	if q.FilterHaves(onlyA); !slices.Equal(q.Haves, []refpolicy.OID{a}) {
		t.Errorf("FilterHaves left %v, want %v", q.Haves, a)
	}
	u := &UploadRequest{Haves: [][]refpolicy.OID{{b}, {a, b}}}
	if u.FilterHaves(onlyA); len(u.Haves) != 2 || !slices.Equal(u.AllHaves(), []refpolicy.OID{a}) {
		t.Errorf("FilterHaves left %v, want two batches with %v", u.Haves, a)
	}
}
