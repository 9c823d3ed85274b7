package sessions

import (
	"fmt"
	"strconv"

	"github.com/headgate/headgate/gitstore/ledger"
)

// An epochBase is what every epoch told is above the record's. It grows when writes
// were lost, so that no epoch that was told before comes back.
type epochBase struct {
	n   uint64
	raw []byte // as read; nil: absent, which is 0
}

func decodeBase(raw []byte) (epochBase, error) {
	if raw == nil {
		return epochBase{}, nil
	}
	n, err := strconv.ParseUint(string(raw), 10, 64)
	if err != nil {
		return epochBase{}, fmt.Errorf("decode epoch base: %w", err)
	}
	return epochBase{n, raw}, nil
}

// check holds while the base is what was read.
func (b epochBase) check() ledger.Check {
	if b.raw == nil {
		return ledger.Absent(baseKey)
	}
	return ledger.Equal(baseKey, b.raw)
}

// told is a record's epoch as everybody else knows it.
func (b epochBase) told(epoch uint64) uint64 { return b.n + epoch }
