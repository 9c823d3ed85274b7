package pebbledb

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/headgate/headgate/gitstore/ledger"
)

// First bytes of the kinds of key; see the package comment.
const (
	clockPrefix = 'c'
	dataPrefix  = 'd'
	idPrefix    = 'i'
	metaPrefix  = 'm'

	keyKind = 'k'
	logKind = 'l'
)

var clockKey = []byte{clockPrefix}

func metaKey(s ledger.Space) []byte {
	return append([]byte{metaPrefix}, s...)
}

// appendSpace appends s with its length before it, so that no space's keys lie
// among another's.
func appendSpace(dst []byte, s ledger.Space) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(s)))
	return append(dst, s...)
}

// dataBase is what all keys and log entries of s begin with.
func dataBase(s ledger.Space) []byte {
	return appendSpace(append(make([]byte, 0, len(s)+64), dataPrefix), s)
}

func appendKey(dst, base []byte, key string) []byte {
	return append(append(append(dst, base...), keyKind), key...)
}

func appendLogKey(dst, base []byte, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(append(append(dst, base...), logKind), seq)
}

// slotOf numbers the stretch of BatchIDMemory that a time lies in. An id applied
// within BatchIDMemory lies in the present slot or in the one before.
func slotOf(micros int64) uint32 {
	return uint32(micros / ledger.BatchIDMemory.Microseconds())
}

func appendSlot(dst []byte, slot uint32) []byte {
	return binary.BigEndian.AppendUint32(append(dst, idPrefix), slot)
}

// slotIn reads the slot back from an id's key.
func slotIn(key []byte) uint32 { return binary.BigEndian.Uint32(key[1:]) }

func appendIDKey(dst []byte, slot uint32, s ledger.Space, id string) []byte {
	return append(appendSpace(appendSlot(dst, slot), s), id...)
}

// after returns the first key that is after all keys that begin with prefix.
// A prefix of ours always has a byte below 0xff.
func after(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] < 0xff {
			end[i]++
			return end[:i+1]
		}
	}
	panic("pebbledb: a key prefix of nothing but 0xff")
}

// meta is what a space's meta key holds.
type meta struct {
	last    uint64 // number of the newest log entry
	trimmed uint64 // number of the newest log entry that was dropped
	at      int64  // time of the last batch in microseconds
}

const metaBytes = 24

func (m meta) put(dst []byte) {
	binary.BigEndian.PutUint64(dst, m.last)
	binary.BigEndian.PutUint64(dst[8:], m.trimmed)
	binary.BigEndian.PutUint64(dst[16:], uint64(m.at))
}

func parseMeta(v []byte) (meta, error) {
	if len(v) != metaBytes {
		return meta{}, fmt.Errorf("space meta of %d bytes, want %d", len(v), metaBytes)
	}
	return meta{
		last:    binary.BigEndian.Uint64(v),
		trimmed: binary.BigEndian.Uint64(v[8:]),
		at:      int64(binary.BigEndian.Uint64(v[16:])),
	}, nil
}

const resultBytes = 16

func putResult(dst []byte, seq uint64, micros int64) {
	binary.BigEndian.PutUint64(dst, seq)
	binary.BigEndian.PutUint64(dst[8:], uint64(micros))
}

func parseResult(v []byte) (seq uint64, micros int64, err error) {
	if len(v) != resultBytes {
		return 0, 0, fmt.Errorf("batch id record of %d bytes, want %d", len(v), resultBytes)
	}
	return binary.BigEndian.Uint64(v), int64(binary.BigEndian.Uint64(v[8:])), nil
}

const entryHead = 8 // a log entry's time, before its data

func parseEntry(key, value []byte) (ledger.Entry, error) {
	if len(value) < entryHead || len(key) < 8 {
		return ledger.Entry{}, fmt.Errorf("log entry of %d bytes under a key of %d", len(value), len(key))
	}
	return ledger.Entry{
		Seq:  binary.BigEndian.Uint64(key[len(key)-8:]),
		At:   timeOf(int64(binary.BigEndian.Uint64(value))),
		Data: append([]byte{}, value[entryHead:]...),
	}, nil
}

func timeOf(micros int64) time.Time { return time.UnixMicro(micros).UTC() }
