package sessions

import "context"

// issued is the id of the issued token that an actor shows; ok is false for others.
func (a Actor) issued() (id tokenID, ok bool) {
	if a.Session == "" || a.Epoch == nil {
		return tokenID{}, false
	}
	return parseTokenID(a.TokenID)
}

// Standing is nil while an issued token (actor: its claims sid, epoch and jti) may be
// used on ref, the one it may write. Errors: ErrTokenDead, *StaleEpochError.
func (k *Keeper) Standing(ctx context.Context, repo Repo, actor Actor, ref string) error {
	id, ok := actor.issued()
	if !ok {
		return ErrTokenDead
	}
	if err := standing(ctx, k.peeks(repo), actor, id, ref); err == nil {
		return nil
	}
	return standing(ctx, k.reads(repo), actor, id, ref) // what is told is durable
}

func standing(ctx context.Context, from reader, actor Actor, id tokenID, ref string) error {
	got, err := from.get(ctx, fenceKey(ref), revokedKey(id.family), baseKey)
	if err != nil {
		return err
	}
	if got[0] == nil || got[1] != nil {
		return ErrTokenDead
	}
	f, err := decodeFence(got[0])
	if err != nil {
		return err
	}
	base, err := decodeBase(got[2])
	if err != nil {
		return err
	}
	if f.id != actor.Session {
		return ErrTokenDead // a token of another session, or of another repo
	}
	if epoch := base.told(f.epoch); *actor.Epoch != epoch {
		return &StaleEpochError{Ref: ref, Have: *actor.Epoch, Session: epoch}
	}
	return nil
}
