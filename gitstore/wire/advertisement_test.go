package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

func oid(t testing.TB, hex string) refpolicy.OID {
	t.Helper()
	id, err := refpolicy.ParseOID(hex)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func refsOf(refs ...Ref) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		for _, ref := range refs {
			if !yield(ref, nil) {
				return
			}
		}
	}
}

// repoRefs asks git for all refs of a repository.
func repoRefs(t *testing.T, repo string) (refs []Ref) {
	t.Helper()
	lines := git(t, repo, "for-each-ref", "--format=%(refname) %(objectname) %(*objectname)")
	for line := range strings.Lines(lines) {
		f := strings.Fields(line)
		ref := Ref{Name: f[0], OID: oid(t, f[1])}
		if len(f) > 2 {
			ref.Peeled = oid(t, f[2])
		}
		refs = append(refs, ref)
	}
	return refs
}

// symrefLast moves git's symref capability to the end, where ours is. The order of capabilities means nothing.
func symrefLast(advert string) (string, Capabilities) {
	before, rest, _ := strings.Cut(advert, "\x00")
	list, after, _ := strings.Cut(rest, "\n")
	var words Capabilities
	symref := ""
	for _, word := range strings.Fields(list) {
		if strings.HasPrefix(word, "symref=") {
			symref = " " + word
		} else {
			words = append(words, word)
		}
	}
	return before + "\x00" + strings.Join(words, " ") + symref + "\n" + after, words
}

func TestAdvertisement_EqualsGits(t *testing.T) {
	t.Parallel()
	repo := sampleRepo(t)
	refs := repoRefs(t, repo)
	head := &Head{Target: "refs/heads/main", OID: oid(t, git(t, repo, "rev-parse", "HEAD"))}
	for _, service := range []Service{UploadPack, ReceivePack} {
		for version := range 2 {
			env := []string{fmt.Sprintf("GIT_PROTOCOL=version=%d", version)}
			out, err := gitTry(t, repo, env, nil, strings.TrimPrefix(string(service), "git-"), "--stateless-rpc", "--http-backend-info-refs", ".")
			if err != nil {
				t.Fatal(err)
			}
			want, words := symrefLast(string(out))
			a := &Advertisement{Service: service, Version: version, Capabilities: words, Head: head, Refs: refsOf(refs...)}
			var got bytes.Buffer
			if err := a.Encode(&got); err != nil {
				t.Fatal(err)
			}
			if got.String() != want {
				t.Errorf("%s v%d: encoded\n%q\ngit sends\n%q", service, version, got.String(), want)
			}
		}
	}
}

func TestCase1_4_EmptyRepoAdvertisesCapabilitiesAlone(t *testing.T) {
	a := &Advertisement{Service: ReceivePack, Banner: true, Capabilities: ReceivePackCapabilities("headgate/1"), Head: &Head{Target: "refs/heads/main"}}
	var got bytes.Buffer
	if err := a.Encode(&got); err != nil {
		t.Fatal(err)
	}
	want := "001f# service=git-receive-pack\n000000be" + strings.Repeat("0", 40) + " capabilities^{}\x00" +
		"report-status report-status-v2 delete-refs side-band-64k quiet atomic ofs-delta push-options object-format=sha1 agent=headgate/1\n0000"
	if got.String() != want {
		t.Errorf("encoded %q, want %q", got.String(), want)
	}
}

func TestCase1_9_UploadAdvertisementBeginsWithBannerAndHEAD(t *testing.T) {
	id := oid(t, strings.Repeat("a", 40))
	a := &Advertisement{
		Service: UploadPack, Banner: true, Capabilities: UploadPackCapabilities("headgate/1"),
		Head: &Head{"refs/heads/main", id}, Refs: refsOf(Ref{Name: "refs/heads/main", OID: id}),
	}
	var got bytes.Buffer
	if err := a.Encode(&got); err != nil {
		t.Fatal(err)
	}
	want := "001e# service=git-upload-pack\n00000146" + id.String() + " HEAD\x00multi_ack "
	if !strings.HasPrefix(got.String(), want) || !strings.Contains(got.String(), " symref=HEAD:refs/heads/main\n003d") || !strings.HasSuffix(got.String(), "0000") {
		t.Errorf("encoded %q, want it to begin with %q and to name the symref", got.String(), want)
	}
}

func TestCapabilityList_OffersWhatIsServed(t *testing.T) {
	var got bytes.Buffer
	if err := (&CapabilityList{Capabilities: V2Capabilities("headgate/1")}).Encode(&got); err != nil {
		t.Fatal(err)
	}
	want := "000eversion 2\n0015agent=headgate/1\n0013ls-refs=unborn\n0027fetch=shallow wait-for-done filter\n0017object-format=sha1\n0000"
	if got.String() != want {
		t.Errorf("encoded %q, want %q", got.String(), want)
	}
}

func TestAdvertisement_EndsWithTheRefsError(t *testing.T) {
	broken := errors.New("broken")
	refs := func(yield func(Ref, error) bool) { yield(Ref{}, broken) }
	for _, err := range []error{
		(&Advertisement{Service: UploadPack, Refs: refs}).Encode(io.Discard),
		(&LsRefsResponse{Request: &LsRefsRequest{}, Refs: refs}).Encode(io.Discard),
	} {
		if !errors.Is(err, broken) {
			t.Errorf("Encode over broken refs: %v, want %v", err, broken)
		}
	}
}

// F-02's numbers need an advertisement whose cost is the bytes it writes.
func TestAdvertisement_HoldsLittleForManyRefs(t *testing.T) {
	refs := func(yield func(Ref, error) bool) {
		for range 100_000 {
			if !yield(Ref{Name: "refs/heads/session", OID: refpolicy.OID{1}}, nil) {
				return
			}
		}
	}
	allocs := testing.AllocsPerRun(1, func() {
		if err := (&Advertisement{Service: UploadPack, Refs: refs}).Encode(io.Discard); err != nil {
			t.Error(err)
		}
	})
	if allocs > 100 {
		t.Errorf("Encode of 100,000 refs made %v allocations, want at most 100", allocs)
	}
}
