package gitstore

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate/headgate/refpolicy"
)

// BenchmarkPush is one push of one small commit on the wire, without HTTP: a file,
// its folder, the root and the commit, in a tree of 1,000 files.
func BenchmarkPush(b *testing.B) {
	for name, c := range map[string]Caller{"unrestricted": someone, "confined": confined(b, refpolicy.EphemeralBranchPrefix+"s/a")} {
		b.Run(name, func(b *testing.B) {
			r := newTestRepo(b, openTestStore(b, nil), "repo")
			files := map[string]string{}
			for n := range 1000 {
				files[fmt.Sprintf("d%02d/f%03d", n/20, n)] = fmt.Sprintln("file", n)
			}
			first := mustCommit(b, r, someone, testCommit{target: refpolicy.EphemeralBranchPrefix + "s/a", files: files})
			root, sub, tip := benchTrees(b, r, first.Commit)
			for n := 0; b.Loop(); n++ {
				b.StopTimer()
				var p rawPack
				blob := p.add(BlobObject, fmt.Sprintln("changed", n))
				sub[0].oid = blob
				root[0].oid = p.add(TreeObject, string(encodeTree(sub)))
				tree := p.add(TreeObject, string(encodeTree(root)))
				commit := p.add(CommitObject, "tree "+tree.String()+"\nparent "+tip.String()+"\n"+author13)
				body := pkts(tip.String()+" "+commit.String()+" refs/heads/s/a\x00report-status side-band-64k", "") + p.pack()
				tip = commit
				var out bytes.Buffer
				b.StartTimer()
				q := GitRequest{Remote: EphemeralRemote, In: strings.NewReader(body), Out: &out}
				if err := r.ReceivePack(b.Context(), c, q); err != nil || !strings.Contains(out.String(), "ok refs/heads/s/a") {
					b.Fatalf("ReceivePack = %v, %q", err, out.String())
				}
			}
		})
	}
}

func benchTrees(b *testing.B, r *Repo, commit refpolicy.OID) (root, sub []treeEntry, tip refpolicy.OID) {
	b.Helper()
	h, err := graph{r, noFresh}.commit(b.Context(), commit)
	if err != nil {
		b.Fatal(err)
	}
	read := func(oid refpolicy.OID) []treeEntry {
		data, err := r.typed(b.Context(), oid, TreeObject)
		if err != nil {
			b.Fatal(err)
		}
		entries, err := parseTree(data)
		if err != nil {
			b.Fatal(err)
		}
		return entries
	}
	root = read(h.tree)
	return root, read(root[0].oid), commit
}
