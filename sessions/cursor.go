package sessions

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// A cursor is where a page ended, and of which list:
//
//	cursor = base64url( %x01 list place )
//	list   = 8 bytes of SHA-256 of the repo and the filter
//	place  = when (8 bytes, newest first) id
const (
	cursorVersion = 1
	cursorList    = 8
	maxCursor     = 512
)

func makeCursor(place string, repo Repo, f Filter) string {
	b := append([]byte{cursorVersion}, listSum(repo, f)...)
	return base64.RawURLEncoding.EncodeToString(append(b, place...))
}

// parseCursor gives the place that a cursor of this list names; "" for none.
func parseCursor(cursor string, repo Repo, f Filter) (place string, err error) {
	if cursor == "" {
		return "", nil
	}
	if len(cursor) > maxCursor {
		return "", ErrBadCursor
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) < 1+cursorList || b[0] != cursorVersion {
		return "", ErrBadCursor
	}
	place = string(b[1+cursorList:])
	_, id, ok := parseWhen(place)
	if !ok || validID(id) != nil || string(b[1:1+cursorList]) != string(listSum(repo, f)) {
		return "", ErrBadCursor
	}
	return place, nil
}

func listSum(repo Repo, f Filter) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", repo.ID, []string{string(f.State), f.LabelKey, f.LabelVal, f.Holder, f.ParentID}))
	return sum[:cursorList]
}
