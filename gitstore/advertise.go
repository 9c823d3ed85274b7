package gitstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
	"github.com/headgate/headgate/gitstore/wire"
	"github.com/headgate/headgate/refpolicy"
)

// AdvertiseUploadPack writes the answer to info/refs?service=git-upload-pack: refs
// in v0 and v1, capabilities in v2.
func (r *Repo) AdvertiseUploadPack(ctx context.Context, c Caller, q GitRequest) error {
	version := protocolVersion(q.Protocol)
	if version == 2 {
		return (&wire.CapabilityList{Capabilities: wire.V2Capabilities(agent)}).Encode(q.Out)
	}
	return r.advertise(ctx, c, q, &wire.Advertisement{
		Service: wire.UploadPack, Version: version, Capabilities: wire.UploadPackCapabilities(agent),
	})
}

// AdvertiseReceivePack writes the answer to info/refs?service=git-receive-pack: all
// refs the caller may read, also those it may not write. Without them git would
// send what is there already, and --force-with-lease would find nothing to compare.
func (r *Repo) AdvertiseReceivePack(ctx context.Context, c Caller, q GitRequest) error {
	version := protocolVersion(q.Protocol)
	if version == 2 {
		version = 0 // there is no push in v2
	}
	return r.advertise(ctx, c, q, &wire.Advertisement{
		Service: wire.ReceivePack, Version: version, Capabilities: wire.ReceivePackCapabilities(agent),
	})
}

func (r *Repo) advertise(ctx context.Context, c Caller, q GitRequest, a *wire.Advertisement) error {
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return fmt.Errorf("advertise refs: %w", err)
	}
	defer v.Close()
	s := remoteRefs{r: r, v: v, c: c, remote: q.Remote}
	a.Banner = true
	if a.Service == wire.UploadPack {
		if a.Head, err = s.head(ctx); err != nil {
			return fmt.Errorf("advertise refs: %w", err)
		}
	}
	a.Refs = s.below(ctx, []string{""})
	return a.Encode(q.Out)
}

// lsRefs answers the v2 command ls-refs.
func (r *Repo) lsRefs(ctx context.Context, c Caller, q GitRequest, req *wire.LsRefsRequest) error {
	v, err := r.ledger.Read(ctx, r.space)
	if err != nil {
		return fmt.Errorf("list refs: %w", err)
	}
	defer v.Close()
	s := remoteRefs{r: r, v: v, c: c, remote: q.Remote}
	head, err := s.head(ctx)
	if err != nil {
		return fmt.Errorf("list refs: %w", err)
	}
	p := wire.LsRefsResponse{Request: req, Head: head, Refs: s.below(ctx, req.Scans())}
	return p.Encode(q.Out)
}

// remoteRefs are the refs that one remote shows one caller, as a view has them.
type remoteRefs struct {
	r      *Repo
	v      ledger.View
	c      Caller
	remote Remote
}

// head is the remote's HEAD; nil if it has none. That of the main remote is the
// default branch, born or not. That of the ephemeral remote is the branch its
// caller is confined to, else the ephemeral branch of the default branch's name if
// there is one (OQ-G14). A branch the caller may not read is unborn for it.
func (s remoteRefs) head(ctx context.Context) (*wire.Head, error) {
	name, sure := s.r.head(), true
	if s.remote == EphemeralRemote {
		confined, ok := s.c.Policy.ConfinedTo()
		if ok {
			name = confined
		} else {
			name, sure = refpolicy.EphemeralPrefix+name, false
		}
	}
	head := &wire.Head{Target: strings.TrimPrefix(string(name), s.remote.prefix())}
	ref, ok, err := s.get(ctx, name)
	if err != nil || !ok && !sure {
		return nil, err
	}
	head.OID = ref.OID
	return head, nil
}

// get reads one ref by its stored name, if there is one and the caller may read it.
func (s remoteRefs) get(ctx context.Context, name refpolicy.RefName) (Ref, bool, error) {
	if !s.c.Policy.CanRead(name) {
		return Ref{}, false, nil
	}
	ref, err := refOf(ctx, s.v, name)
	if errors.Is(err, ErrRefNotFound) {
		return Ref{}, false, nil
	}
	return ref, err == nil, err
}

// below yields the refs whose shown names begin with one of the prefixes, which
// are sorted and none of which begins another, in the order of their names. It
// meets no ref that it does not yield.
func (s remoteRefs) below(ctx context.Context, prefixes []string) iter.Seq2[wire.Ref, error] {
	return func(yield func(wire.Ref, error) bool) {
		for it, err := range namedItems(ctx, s.v, refKeys, s.names(prefixes), ledger.BulkKeys) {
			if err != nil {
				yield(wire.Ref{}, err)
				return
			}
			name := it.Key[len(refKeys):]
			rec, err := decodeRefRecord(it.Value)
			if err != nil {
				err = fmt.Errorf("read ref %s: %w", name, err)
			}
			shown := wire.Ref{Name: strings.TrimPrefix(name, s.remote.prefix()), OID: rec.oid, Peeled: rec.peeled}
			if !yield(shown, err) || err != nil {
				return
			}
		}
	}
}

// names are the stored names of what the remote shows its caller below prefixes.
func (s remoteRefs) names(shown []string) nameRanges {
	var names nameRanges
	for _, p := range shown {
		if strings.HasPrefix(refpolicy.RefsPrefix, p) {
			p = refpolicy.RefsPrefix
		}
		if strings.HasPrefix(p, refpolicy.RefsPrefix) {
			names = append(names, namesBelow(s.remote.prefix()+p))
		}
	}
	if s.remote == MainRemote {
		names = names.without(hiddenNames)
	}
	return names.and(readableNames(s.c.Policy))
}
