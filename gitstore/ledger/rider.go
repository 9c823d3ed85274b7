package ledger

// A Rider is what one room lets travel in another room's batch: what else must
// hold, and what else is written. The zero value demands and writes nothing.
type Rider struct {
	Checks  []Check
	Deletes []string
	Sets    []Set
	Adds    []Add
}

// Join adds what o demands and writes.
func (r *Rider) Join(o Rider) {
	r.Checks = append(r.Checks, o.Checks...)
	r.Deletes = append(r.Deletes, o.Deletes...)
	r.Sets = append(r.Sets, o.Sets...)
	r.Adds = append(r.Adds, o.Adds...)
}

// Carry takes r along in the batch.
func (b *Batch) Carry(r Rider) {
	b.Checks = append(b.Checks, r.Checks...)
	b.Deletes = append(b.Deletes, r.Deletes...)
	b.Sets = append(b.Sets, r.Sets...)
	b.Adds = append(b.Adds, r.Adds...)
}
