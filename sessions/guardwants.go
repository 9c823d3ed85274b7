package sessions

// Wants names the keys that Guard reads for a change of ref that no call of this package
// asked for.
func (k *Keeper) Wants(ref string, actor Actor) []string {
	keys := []string{fenceOf(ref), baseKey}
	if family, revocable := actor.family(); revocable {
		keys = append(keys, family)
	}
	return keys
}

// family is the key that says that the actor's token was revoked. A customer's token may
// say any sid and jti: one that is longer than ours was never revoked here, and would be
// no key.
func (a Actor) family() (key string, revocable bool) {
	revocable = a.Session != "" && a.TokenID != "" && len(a.TokenID) <= maxTokenID
	if revocable {
		key = revokedKey(familyOf(a.TokenID))
	}
	return key, revocable
}

// peeksAfter is peeks, with what is known asked of nobody.
func (k *Keeper) peeksAfter(q GuardRequest) reader {
	by := k.peeks(q.Repo)
	if q.Known != nil {
		by.keys = q.Known.Before(by.keys)
	}
	return by
}
