package pebbledb

import (
	"bytes"
	"strconv"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// check evaluates the batch's checks in their order against everything applied.
// The first that does not hold is a *ledger.CheckError.
func (st *step) check() (err error) {
	if len(st.batch.Checks) >= manyKeys {
		if st.finder, err = newFinder(st.engine.pdb, st.space.base); err != nil {
			return err
		}
		defer func() {
			if cerr := st.finder.close(); err == nil {
				err = cerr
			}
			st.finder = nil
		}()
	}
	for i := range st.batch.Checks {
		c := &st.batch.Checks[i]
		var err error
		switch c.Kind {
		case ledger.CheckEqual:
			err = st.checkEqual(c)
		case ledger.CheckAbsent:
			err = st.checkAbsent(c)
		case ledger.CheckAbsentPrefix:
			err = st.checkAbsentPrefix(c)
		case ledger.CheckAtMost:
			err = st.checkAtMost(c)
		case ledger.CheckBefore:
			err = st.checkBefore(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (st *step) checkEqual(c *ledger.Check) error {
	v, err := st.get(c.Key)
	if err != nil {
		return err
	}
	if v == nil || !bytes.Equal(v, c.Value) {
		return &ledger.CheckError{Check: *c, Key: c.Key, Present: v}
	}
	return nil
}

func (st *step) checkAbsent(c *ledger.Check) error {
	v, err := st.get(c.Key)
	if err != nil {
		return err
	}
	if v != nil {
		return &ledger.CheckError{Check: *c, Key: c.Key, Present: v}
	}
	return nil
}

func (st *step) checkAbsentPrefix(c *ledger.Check) error {
	f := st.finder
	if f == nil {
		var err error
		if f, err = newFinder(st.engine.pdb, st.space.base); err != nil {
			return err
		}
		defer f.it.Close()
	}
	key, value, err := f.below(c.Key)
	if err == nil && key != "" {
		err = &ledger.CheckError{Check: *c, Key: key, Present: value}
	}
	return err
}

func (st *step) checkAtMost(c *ledger.Check) error {
	if err := st.addUp(); err != nil {
		return err
	}
	var n int64
	added := false
	for i := range st.batch.Adds {
		if st.batch.Adds[i].Key == c.Key {
			n, added = st.sums[i], true
			break
		}
	}
	if !added {
		var err error
		if n, err = st.counter(c.Key); err != nil {
			return err
		}
	}
	if n > c.Max {
		return &ledger.CheckError{Check: *c, Key: c.Key, Present: strconv.AppendInt(nil, n, 10)}
	}
	return nil
}

func (st *step) checkBefore(c *ledger.Check) error {
	now := timeOf(st.at)
	if now.Before(c.Time) {
		return nil
	}
	return &ledger.CheckError{Check: *c, Present: now.AppendFormat(nil, time.RFC3339Nano)}
}
