package sessions

// mine refuses an actor whose token is bound to another session, or to an older
// epoch of this one.
func (r reading) mine(by Actor) error {
	if by.Session != "" && by.Session != r.ID {
		return ErrForeignSession
	}
	if now := r.base.told(r.Epoch); by.Epoch != nil && *by.Epoch != now {
		return &StaleEpochError{Ref: r.ref(), Have: *by.Epoch, Session: now}
	}
	return nil
}

// changeable refuses who may not change the session, and one that has ended.
func (r reading) changeable(door Door, by Actor) error {
	if err := r.mine(by); err != nil {
		return err
	}
	if err := door.MayWrite(r.ref()); err != nil {
		return err
	}
	if !r.live() {
		return &StateError{ID: r.ID, State: r.State}
	}
	return nil
}

// created reports whether by is who created the session: the same subject with the
// same key, or the same token.
func (r *record) created(by Actor) bool {
	c := r.CreatedBy
	if c.Org != by.Org {
		return false
	}
	if by.TokenID != "" && c.TokenID == by.TokenID {
		return true
	}
	return (by.Subject != "" || by.KeyID != "") && c.Subject == by.Subject && c.KeyID == by.KeyID
}
