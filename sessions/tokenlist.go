package sessions

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// Token reads the record of a token, which may have expired: it is kept until a
// sweep finds it. Errors: ErrTokenNotFound.
func (k *Keeper) Token(ctx context.Context, repo Repo, jti string) (Token, error) {
	id, ok := parseTokenID(jti)
	if !ok {
		return Token{}, ErrTokenNotFound
	}
	from := k.reads(repo)
	got, err := from.get(ctx, tokenDueKey(id))
	if err != nil {
		return Token{}, err
	}
	if got[0] == nil {
		return Token{}, ErrTokenNotFound
	}
	if got, err = from.get(ctx, tokenKey(string(got[0]), id), revokedKey(id.family)); err != nil {
		return Token{}, err
	}
	if got[0] == nil {
		return Token{}, ErrTokenNotFound
	}
	rec, stored, err := decodeToken(got[0])
	if err != nil {
		return Token{}, err
	}
	if stored != id {
		return Token{}, ErrTokenNotFound
	}
	return rec.told(id, got[1])
}

// Tokens lists the tokens of a session that have not expired, newest first, at most
// limit (1 to 1,000; others are cut), those that were revoked among them. Errors:
// ErrNotFound, ErrBadCursor.
func (k *Keeper) Tokens(ctx context.Context, repo Repo, door Door, id, cursor string, limit int) ([]Token, string, error) {
	if cursor != "" && !validPart(cursor) {
		return nil, "", ErrBadCursor
	}
	if _, err := k.reads(repo).visible(ctx, door, id); err != nil {
		return nil, "", err
	}
	limit = min(max(limit, 1), ledger.BulkKeys)
	var page []Token
	next := ""
	err := k.eachToken(ctx, repo, id, cursor, func(rec *tokenRecord, tid tokenID, revoked []byte) (bool, error) {
		if len(page) == limit {
			next = parsePlace(page[limit-1].ID)
			return false, nil
		}
		t, err := rec.told(tid, revoked)
		page = append(page, t)
		return true, err
	})
	return page, next, err
}

// parsePlace is the place in its session's list of a token of ours.
func parsePlace(jti string) string {
	id, _ := parseTokenID(jti)
	return id.own
}

// eachToken calls fn with the tokens of a session that have not expired, newest
// first, behind the place after, until fn wants no more.
func (k *Keeper) eachToken(ctx context.Context, repo Repo, session, after string, fn func(rec *tokenRecord, id tokenID, revoked []byte) (bool, error)) error {
	now, err := k.Ledger.Now(ctx)
	if err != nil {
		return fmt.Errorf("list tokens: %w", err)
	}
	v, err := k.Ledger.Read(ctx, ledger.RepoSpace(repo.ID))
	if err != nil {
		return fmt.Errorf("list tokens: %w", err)
	}
	defer v.Close()
	start := tokenPrefix(session) + after
	if after != "" {
		start += "\x00"
	}
	for {
		items, err := v.Scan(ctx, tokenPrefix(session), start, tokenPage)
		if err != nil {
			return fmt.Errorf("list tokens: %w", err)
		}
		more, err := givePage(ctx, v, items, now, fn)
		if err != nil || !more || len(items) < tokenPage {
			return err
		}
		start = items[len(items)-1].Key + "\x00"
	}
}

const tokenPage = 200

// givePage calls fn with those of items that have not expired.
func givePage(ctx context.Context, v ledger.View, items []ledger.Item, now time.Time, fn func(*tokenRecord, tokenID, []byte) (bool, error)) (more bool, err error) {
	recs := make([]tokenRecord, 0, len(items))
	ids := make([]tokenID, 0, len(items))
	families := make([]string, 0, len(items))
	for _, it := range items {
		rec, id, err := decodeToken(it.Value)
		if err != nil {
			return false, err
		}
		if now.Before(id.expiresAt()) {
			recs, ids, families = append(recs, rec), append(ids, id), append(families, revokedKey(id.family))
		}
	}
	if len(recs) == 0 {
		return true, nil
	}
	revoked, err := v.GetMany(ctx, families...)
	if err != nil {
		return false, fmt.Errorf("list tokens: %w", err)
	}
	for i := range recs {
		if more, err = fn(&recs[i], ids[i], revoked[i]); err != nil || !more {
			return false, err
		}
	}
	return true, nil
}
