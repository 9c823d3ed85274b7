package redisdb

import (
	"strings"

	"github.com/headgate/headgate/gitstore/ledger"
)

// keys are the Redis keys of one space. All carry the space as their hash tag, so
// that a cluster keeps them in one slot and a script may touch them all.
type keys struct {
	values  string // hash: key -> value
	order   string // sorted set of the keys, all with score 0, so in byte order
	log     string // stream: <seq>-0 -> a (at, microseconds), d (data)
	meta    string // hash: inc, ver, at, seq, low (first log number kept); own/... (answers, see place); past, first, syncs after a resync; hold and until during a dump
	dropped string // when the space was last dropped, microseconds
	answer  string // prefix of the answers by batch ID
	channel string // gets the number of each new log entry

	// While a dump is under way (hold.lua):
	before      string // hash: key -> "+" and the value it had, or "-" where it was absent
	beforeOrder string // sorted set of those keys, as order
}

// A brace would end the hash tag early, and an empty tag is none.
var tagEscape = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

func keysOf(s ledger.Space) keys {
	p := "headgate:{" + tagEscape.Replace(string(s)) + "}:"
	return keys{
		values:  p + "values",
		order:   p + "order",
		log:     p + "log",
		meta:    p + "meta",
		dropped: p + "dropped",
		answer:  p + "answer:",
		channel: p + "grown",

		before:      p + "before",
		beforeOrder: p + "beforeorder",
	}
}

// ofBatch are the keys as apply.lua takes them.
func (k *keys) ofBatch(id string) []string {
	return []string{k.values, k.order, k.log, k.meta, k.dropped, k.answer + id, k.before, k.beforeOrder}
}

// bounds are the ends of the keys with prefix at or after start, as ZRANGEBYLEX
// takes them.
func bounds(prefix, start string) (low, high string) {
	low, high = "["+max(prefix, start), "+"
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			high = "(" + prefix[:i] + string([]byte{prefix[i] + 1})
			break
		}
	}
	return low, high
}
