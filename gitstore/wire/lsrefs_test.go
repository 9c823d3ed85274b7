package wire

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// lsRefs asks git and our encoder the same and compares.
func lsRefs(t *testing.T, repo string, q *LsRefsRequest, head *Head, refs []Ref) {
	t.Helper()
	var body, got bytes.Buffer
	if err := (&V2Request{Capabilities: Capabilities{"object-format=sha1"}, LsRefs: q}).Encode(&body); err != nil {
		t.Fatal(err)
	}
	want, err := gitTry(t, repo, []string{"GIT_PROTOCOL=version=2"}, body.Bytes(), "upload-pack", "--stateless-rpc", ".")
	if err != nil {
		t.Fatal(err)
	}
	if err := (&LsRefsResponse{Request: q, Head: head, Refs: refsOf(refs...)}).Encode(&got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("answer to %+v is\n%q\ngit answers\n%q", q, got.Bytes(), want)
	}
}

func TestLsRefs_AnswerEqualsGits(t *testing.T) {
	t.Parallel()
	repo := sampleRepo(t)
	refs := repoRefs(t, repo)
	head := &Head{Target: "refs/heads/main", OID: oid(t, git(t, repo, "rev-parse", "HEAD"))}
	for _, q := range []*LsRefsRequest{
		{},
		{Peel: true, Symrefs: true, Unborn: true},
		{Peel: true, Prefixes: []string{"refs/tags/"}},
		{Symrefs: true, Prefixes: []string{"HEAD", "refs/heads/s", "refs/heads/side", "nothing"}},
		{Prefixes: []string{"refs/heads/main"}},
		{Prefixes: []string{""}},
		{Symrefs: true, Prefixes: []string{"H"}},
	} {
		lsRefs(t, repo, q, head, refs)
	}
}

func TestLsRefs_UnbornHEADEqualsGits(t *testing.T) {
	t.Parallel()
	repo := t.TempDir()
	git(t, repo, "init", "-q", "--bare", "-b", "trunk")
	head := &Head{Target: "refs/heads/trunk"}
	for _, q := range []*LsRefsRequest{
		{Symrefs: true, Unborn: true},
		{Symrefs: true, Unborn: true, Prefixes: []string{"HEAD"}},
		{Symrefs: true, Unborn: true, Prefixes: []string{"refs/"}},
		{Symrefs: true},
		{Unborn: true},
	} {
		lsRefs(t, repo, q, head, nil)
	}
}

func TestLsRefs_TooManyPrefixesAreAsGoodAsNone(t *testing.T) {
	var body bytes.Buffer
	q := &V2Request{LsRefs: &LsRefsRequest{Prefixes: slices.Repeat([]string{"refs/heads/x"}, 11)}}
	if err := q.Encode(&body); err != nil {
		t.Fatal(err)
	}
	got, err := ReadV2Request(bytes.NewReader(body.Bytes()), Limits{RefPrefixes: 10})
	if err != nil || len(got.LsRefs.Prefixes) != 0 || !got.LsRefs.Matches("refs/tags/y") {
		t.Errorf("11 prefixes where 10 are allowed: %+v, %v; want a request for all refs", got, err)
	}
	if _, err := ReadV2Request(&body, Limits{RefName: 5}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a prefix longer than a name may be: %v, want ErrTooLarge", err)
	}
}

func TestLsRefs_ScansFindWhatMatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[ab]{0,4}`)
		q := &LsRefsRequest{Prefixes: rapid.SliceOf(word).Draw(t, "prefixes")}
		name := word.Draw(t, "name")
		scans := q.Scans()
		if got, want := matchesScan(scans, name), q.Matches(name); got != want {
			t.Fatalf("prefixes %q: scans %q find %q: %v, Matches: %v", q.Prefixes, scans, name, got, want)
		}
		hits := 0
		for _, p := range scans {
			if strings.HasPrefix(name, p) {
				hits++
			}
		}
		if hits > 1 || !slices.IsSorted(scans) {
			t.Fatalf("scans %q visit %q %d times", scans, name, hits)
		}
	})
}
