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
// are sorted and none of which begins another, in the order of their names.
func (s remoteRefs) below(ctx context.Context, prefixes []string) iter.Seq2[wire.Ref, error] {
	return func(yield func(wire.Ref, error) bool) {
		for _, p := range s.stored(prefixes) {
			if !s.scan(ctx, p, yield) {
				return
			}
		}
	}
}

// stored are the prefixes of stored names that have to be scanned for shown ones.
func (s remoteRefs) stored(shown []string) []string {
	var prefixes []string
	for _, p := range shown {
		switch {
		case strings.HasPrefix(refpolicy.RefsPrefix, p):
			p = refpolicy.RefsPrefix
		case !strings.HasPrefix(p, refpolicy.RefsPrefix) || s.remote.hides(refpolicy.RefName(p)):
			continue
		}
		prefixes = append(prefixes, s.remote.prefix()+p)
	}
	if scopes, limited := readScopes(s.c.Policy); limited {
		return narrowed(prefixes, scopes)
	}
	return prefixes
}

// pastHidden is where a scan of the main remote goes on when it meets what it hides.
var pastHidden = refKeys + strings.TrimSuffix(refpolicy.NamespacePrefix, "/") + "0"

// scan yields the refs whose stored names begin with prefix. It is false when it was told to stop.
func (s remoteRefs) scan(ctx context.Context, prefix string, yield func(wire.Ref, error) bool) bool {
	for start := refKeys + prefix; start != ""; {
		page, err := s.v.Scan(ctx, refKeys+prefix, start, ledger.BulkKeys)
		if err != nil {
			yield(wire.Ref{}, fmt.Errorf("scan refs: %w", err))
			return false
		}
		start = ""
		if len(page) == ledger.BulkKeys {
			start = page[len(page)-1].Key + "\x00"
		}
		for _, it := range page {
			name := refpolicy.RefName(it.Key[len(refKeys):])
			if s.remote.hides(name) {
				start = pastHidden
				break
			}
			if !s.c.Policy.CanRead(name) {
				continue
			}
			rec, err := decodeRefRecord(it.Value)
			if err != nil {
				err = fmt.Errorf("read ref %s: %w", name, err)
			}
			shown := wire.Ref{Name: strings.TrimPrefix(string(name), s.remote.prefix()), OID: rec.oid, Peeled: rec.peeled}
			if !yield(shown, err) || err != nil {
				return false
			}
		}
	}
	return true
}
