// Package sessions keeps the record of each session, the lease on it, the tokens it
// hands out and the forks made of it, and fences off who may not write any more.
//
// A session is a record with an id, one ephemeral branch, a state and times. Its
// head is the branch's ref and is stored there alone. A lease is the right to write
// that ends by itself: one holder at a time. The epoch is a number that grows with
// every new holder; who carries an older one is fenced off. A token is what a
// sandbox shows; its record says what it may do and who made it, never its text. A
// group is what one fork made: children, and the state they came from.
//
// A Keeper does all of it on the repo's own space of the ledger. Whatever must agree
// with a ref is written in the batch that moves the ref: the Keeper is the guard of
// the store's one door, and what it wants to move it moves through a Door.
//
// Nobody is told of what a power cut could take back, and every batch checks the
// records that it was made from.
package sessions
