package httpapi

import (
	"time"

	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/refpolicy"
)

// readableUntil is the query flag that asks an answer about commits to say, in the
// header X-Readable-Until, until when they are all readable by id.
const readableUntil = "readable_until"

// tellRetention puts into the answer until when commits are readable. It is for
// requests that ask: it may walk all history.
func (q *request) tellRetention(commits ...refpolicy.OID) error {
	t, err := q.repo.Retention(q.ctx(), q.caller(), commits...)
	if err != nil {
		return err
	}
	q.x.Header().Set("X-Readable-Until", retentionText(t))
	return nil
}

func retentionText(t gitstore.Retention) string {
	switch {
	case !t.Held:
		return "next-prune"
	case t.Until.IsZero():
		return "forever" // unless the ref goes, or the pin
	}
	return wireTime(t.Until.UTC().Truncate(time.Second)) // never later than it is
}
