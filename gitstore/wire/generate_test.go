package wire

import (
	"github.com/headgate/headgate/refpolicy"
	"pgregory.net/rapid"
)

// Generators of messages that have one normal form: what is read is what was written.

var genOID = rapid.Custom(func(t *rapid.T) (id refpolicy.OID) {
	copy(id[:], rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, "oid"))
	return id
})

// genOIDs gives nil instead of an empty list.
var genOIDs = rapid.Custom(func(t *rapid.T) []refpolicy.OID {
	return orNil(rapid.SliceOfN(genOID, 0, 5).Draw(t, "oids"))
})

func orNil[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}

// genText is any text of one line, an LF in it and odd bytes included; a NUL ends a name.
var genText = rapid.Custom(func(t *rapid.T) string {
	b := rapid.SliceOfN(rapid.ByteRange(1, 255), 1, 30).Draw(t, "text")
	return string(b)
})

var genFilter = rapid.SampledFrom([]string{"", "blob:none", "blob:limit=10m", "tree:0", "object:type=commit", "combine:blob:none+tree:3", "combine:blob%3anone"})

var genDepth = rapid.Custom(func(t *rapid.T) (d DepthRequest) {
	d.Shallow = genOIDs.Draw(t, "shallow")
	if rapid.Bool().Draw(t, "by depth") {
		d.Deepen = rapid.IntRange(0, InfiniteDepth).Draw(t, "deepen")
	} else {
		d.DeepenSince = rapid.Int64Min(0).Draw(t, "deepen-since")
		d.DeepenNot = orNil(rapid.SliceOfN(genText, 0, 3).Draw(t, "deepen-not"))
	}
	d.DeepenRelative = rapid.Bool().Draw(t, "relative")
	return d
})

var genFetch = rapid.Custom(func(t *rapid.T) *FetchRequest {
	flag := rapid.Bool()
	return &FetchRequest{
		Wants: genOIDs.Draw(t, "wants"), Haves: genOIDs.Draw(t, "haves"), DepthRequest: genDepth.Draw(t, "depth"),
		Done: flag.Draw(t, "done"), WaitForDone: flag.Draw(t, "wait"), ThinPack: flag.Draw(t, "thin"),
		NoProgress: flag.Draw(t, "quiet"), IncludeTag: flag.Draw(t, "tags"), OFSDelta: flag.Draw(t, "ofs"),
		Filter: genFilter.Draw(t, "filter"),
	}
})

var genLsRefs = rapid.Custom(func(t *rapid.T) *LsRefsRequest {
	flag := rapid.Bool()
	return &LsRefsRequest{
		Peel: flag.Draw(t, "peel"), Symrefs: flag.Draw(t, "symrefs"), Unborn: flag.Draw(t, "unborn"),
		Prefixes: orNil(rapid.SliceOfN(genText, 0, 4).Draw(t, "prefixes")),
	}
})

var genV2 = rapid.Custom(func(t *rapid.T) *V2Request {
	q := &V2Request{Capabilities: Capabilities{"agent=git/2", "object-format=sha1"}}
	if rapid.Bool().Draw(t, "fetch") {
		q.Fetch = genFetch.Draw(t, "fetch")
	} else {
		q.LsRefs = genLsRefs.Draw(t, "ls-refs")
	}
	return q
})

var genCapabilities = rapid.Custom(func(t *rapid.T) Capabilities {
	return orNil(rapid.SliceOfN(rapid.SampledFrom([]string{
		"multi_ack_detailed", "side-band-64k", "ofs-delta", "agent=x", "unheard-of=1", "atomic", "report-status", "push-options",
	}), 0, 5).Draw(t, "capabilities"))
})

var genUpload = rapid.Custom(func(t *rapid.T) *UploadRequest {
	q := &UploadRequest{
		Wants:        rapid.SliceOfN(genOID, 1, 5).Draw(t, "wants"),
		Capabilities: genCapabilities.Draw(t, "capabilities"),
		DepthRequest: genDepth.Draw(t, "depth"), Filter: genFilter.Draw(t, "filter"),
		Haves: orNil(rapid.SliceOfN(genOIDs, 0, 4).Draw(t, "haves")), Done: rapid.Bool().Draw(t, "done"),
	}
	if q.DeepenRelative {
		q.Capabilities = append(q.Capabilities, "deepen-relative")
	}
	if q.Done && len(q.Haves) == 1 && len(q.Haves[0]) == 0 {
		q.Haves = nil // "done" alone
	}
	return q
})

var genReceive = rapid.Custom(func(t *rapid.T) *ReceiveRequest {
	q := &ReceiveRequest{
		Shallow: genOIDs.Draw(t, "shallow"),
		Updates: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) RefUpdate {
			return RefUpdate{Ref: genText.Draw(t, "ref"), Old: genOID.Draw(t, "old"), New: genOID.Draw(t, "new")}
		}), 1, 5).Draw(t, "updates"),
		Capabilities: genCapabilities.Draw(t, "capabilities"),
	}
	if q.Capabilities.Has(capPushOptions) {
		q.PushOptions = orNil(rapid.SliceOfN(genText, 0, 4).Draw(t, "options"))
	}
	return q
})
