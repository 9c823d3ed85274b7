package gitstore

import (
	"bytes"
	"context"
	"fmt"

	"github.com/headgate/headgate/refpolicy"
)

// tag is what headgate reads of an annotated tag.
type tag struct {
	object refpolicy.OID
	typ    ObjectType
	name   string
}

// parseTag reads the head of a tag object:
//
//	tag = "object" SP oid LF "type" SP type LF "tag" SP name LF *header LF message
func parseTag(raw []byte) (tag, error) {
	var t tag
	rest, ok := cutOIDLine(raw, "object ", &t.object)
	if !ok {
		return t, fmt.Errorf("%w: tag without an object", ErrBadObject)
	}
	line, rest, ok := bytes.Cut(rest, []byte("\n"))
	kind, isType := bytes.CutPrefix(line, []byte("type "))
	if !ok || !isType {
		return t, fmt.Errorf("%w: tag without a type", ErrBadObject)
	}
	switch string(kind) {
	case "commit":
		t.typ = CommitObject
	case "tree":
		t.typ = TreeObject
	case "blob":
		t.typ = BlobObject
	case "tag":
		t.typ = TagObject
	default:
		return t, fmt.Errorf("%w: tag of unknown type %q", ErrBadObject, kind)
	}
	line, _, _ = bytes.Cut(rest, []byte("\n"))
	name, isTag := bytes.CutPrefix(line, []byte("tag "))
	if !isTag {
		return t, fmt.Errorf("%w: tag without a name", ErrBadObject)
	}
	t.name = string(name)
	return t, nil
}

// peelLimit bounds a chain of tags on tags.
const peelLimit = 16

// peel follows annotated tags to what they point at in the end.
func (g graph) peel(ctx context.Context, oid refpolicy.OID) (refpolicy.OID, ObjectType, error) {
	for range peelLimit {
		typ, ok, err := g.fresh.typeOf(oid)
		if err == nil && !ok {
			typ, _, err = g.r.header(ctx, oid)
		}
		if err != nil || typ != TagObject {
			return oid, typ, err
		}
		o, err := g.object(ctx, oid)
		if err != nil {
			return oid, typ, err
		}
		t, err := parseTag(o.data)
		if err != nil {
			return oid, typ, err
		}
		oid = t.object
	}
	return oid, 0, fmt.Errorf("%w: tags nested over %d deep", ErrBadObject, peelLimit)
}
