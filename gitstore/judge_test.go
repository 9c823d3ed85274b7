package gitstore

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/refpolicy"
)

// saysSigned takes for signed what says so.
type saysSigned struct{}

func (saysSigned) VerifyCommit(_ string, raw []byte) error {
	if bytes.Contains(raw, []byte("\n\nsigned")) {
		return nil
	}
	return errors.New("not signed")
}

func newSigned(tree refpolicy.OID, text string, parents ...refpolicy.OID) NewObject {
	who := Signature{Name: "T", Email: "t@example.org", When: time.Unix(1_700_000_000, 0)}
	return newObject(CommitObject, encodeCommit(tree, parents, who, who, text))
}

// A new ref has to be signed in what no other ref reaches yet (OQ-P6), wherever the
// others are and whether or not the push brings again what is there.
func TestSignaturesOfANewRef(t *testing.T) {
	s := openTestStore(t, func(o *Options) { o.Signatures = saysSigned{} })
	r := newTestRepo(t, s, "site")
	signs := ruled(t, refpolicy.Rule{Pattern: "refs/heads/signed/*", Ops: []refpolicy.Op{refpolicy.VerifySig}})
	file := newBlob("a file\n")
	folder := newTree(treeEntry{ModeFile, "a", file.OID})
	tree := folder.OID
	first := newSigned(tree, "first")
	second := newSigned(tree, "second", first.OID)
	third := newSigned(tree, "third", second.OID)
	lost := newSigned(tree, "lost", first.OID)
	good := newSigned(tree, "signed", third.OID)
	create := func(c Caller, ref refpolicy.RefName, objects ...NewObject) error {
		return updateOne(t, r, Update{Caller: c, Objects: objects, Changes: []Change{{Ref: ref, New: objects[len(objects)-1].OID}}})
	}
	for _, err := range []error{
		create(someone, mainRef, file, folder, first), create(someone, sessionA, second, third), create(someone, "refs/heads/lost", lost),
		r.DeleteBranch(t.Context(), someone, "refs/heads/lost", nil),
	} {
		if err != nil {
			t.Fatalf("set up: %v", err)
		}
	}
	for _, settled := range []bool{false, true} {
		if settled {
			if err := r.Settle(t.Context()); err != nil {
				t.Fatalf("Settle: %v", err)
			}
		}
		for name, tc := range map[string]struct {
			denied  bool
			objects []NewObject // the last one is the tip; what is there already comes again
		}{
			"what main is at":                        {false, []NewObject{first}},
			"what is in a session":                   {false, []NewObject{second}},
			"signed on a session":                    {false, []NewObject{good}},
			"signed on a session, all sent again":    {false, []NewObject{first, second, third, good}},
			"unsigned":                               {true, []NewObject{newSigned(tree, "fourth", third.OID)}},
			"unsigned below signed":                  {true, []NewObject{newSigned(tree, "u", third.OID), newSigned(tree, "signed", newSigned(tree, "u", third.OID).OID)}},
			"unsigned whose branch is gone":          {true, []NewObject{lost}},
			"unsigned whose branch is gone, below":   {true, []NewObject{lost, newSigned(tree, "signed", lost.OID)}},
			"merge of a signed and an unsigned side": {true, []NewObject{lost, good, newSigned(tree, "signed merge", good.OID, lost.OID)}},
		} {
			ref := refpolicy.RefName("refs/heads/signed/x")
			err := create(signs, ref, tc.objects...)
			var denied *refpolicy.DeniedError
			if errors.As(err, &denied) != tc.denied || !tc.denied && err != nil {
				t.Errorf("settled %v: %s: %v, want a denial: %v", settled, name, err, tc.denied)
			}
			if err == nil {
				if err := r.DeleteBranch(t.Context(), someone, ref, nil); err != nil {
					t.Fatalf("DeleteBranch: %v", err)
				}
			}
		}
	}
}
