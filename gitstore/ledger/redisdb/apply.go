package redisdb

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/gitstore/ledger"
)

// maxSeq bounds log numbers: the scripts' numbers are exact up to here.
const maxSeq = 1 << 53

// Apply applies b in one script. See ledger.Ledger; besides its errors it returns a
// *LostWritesError (an ErrUnavailable) once the space was found behind.
func (d *DB) Apply(ctx context.Context, b ledger.Batch) (ledger.Result, error) {
	if d.closed.Load() {
		return ledger.Result{}, ledger.ErrClosed
	}
	if err := b.Validate(); err != nil {
		return ledger.Result{}, err
	}
	if err := ctx.Err(); err != nil {
		return ledger.Result{}, fmt.Errorf("apply batch to %s: %w", b.Space, err)
	}
	// The place first: whoever had it before has told what it learned.
	at := d.places.take()
	had, err := d.known.get(b.Space)
	if err != nil {
		d.places.put(at, nil)
		d.mend(b.Space)
		return ledger.Result{}, err
	}
	k := keysOf(b.Space)
	args, size := applyArgs(&b, k.channel, had, at)
	limited, cancel := d.limited(ctx, size, len(args)/2)
	defer cancel()
	cmd := redis.NewCmd(limited, scriptArgs(applyScript, k.ofBatch("named/"+b.ID), args, size)...)
	onItsWay, err := d.writes.do(limited, cmd, size, func() { d.places.put(at, cmd.Err()) })
	if onItsWay {
		return ledger.Result{}, d.fail(ctx, "apply batch to", b.Space, err)
	}
	got := cmd.Val()
	defer func() { d.places.put(at, err) }()
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		got, err = d.runIn(ctx, limited, applyScript, "apply batch to", b.Space, k.ofBatch("named/"+b.ID), args...)
	}
	if err != nil {
		return ledger.Result{}, d.fail(ctx, "apply batch to", b.Space, err)
	}
	return d.applied(&b, had, at, readReply(got))
}

// applyArgs lays b out as apply.lua reads it and counts its bytes.
func applyArgs(b *ledger.Batch, channel string, had state, at place) (args []any, size int) {
	named := "0"
	if b.ID != "" {
		named = "1"
	}
	hasLog := "0"
	if b.Log != nil {
		hasLog = "1"
	}
	args = make([]any, 0, 21+3*len(b.Checks)+2*len(b.Sets)+2*len(b.Adds)+len(b.Deletes))
	args = append(args, channel, ledger.BatchIDMemory.Milliseconds(), named,
		had.inc, had.ver, had.at, had.seq, had.logAt, hasLog, b.Log,
		had.place, had.name, at.field, at.name,
		len(b.Checks), len(b.Sets), len(b.Adds), len(b.Deletes))
	size = len(b.Log)
	for i := range b.Checks {
		kind, operand := checkArgs(&b.Checks[i])
		args = append(args, kind, b.Checks[i].Key, operand)
		size += len(b.Checks[i].Key) + len(b.Checks[i].Value)
	}
	for _, s := range b.Sets {
		args = append(args, s.Key, s.Value)
		size += len(s.Key) + len(s.Value)
	}
	for _, a := range b.Adds {
		args = append(args, a.Key, a.Delta)
		size += len(a.Key)
	}
	for _, key := range b.Deletes {
		args = append(args, key)
		size += len(key)
	}
	return args, size
}

func checkArgs(c *ledger.Check) (kind string, operand any) {
	switch c.Kind {
	case ledger.CheckEqual:
		return "E", c.Value
	case ledger.CheckAbsent:
		return "A", ""
	case ledger.CheckAbsentPrefix:
		return "P", ""
	case ledger.CheckAtMost:
		return "M", c.Max
	}
	// The clock counts whole microseconds: before t is before t rounded up.
	return "B", c.Time.Add(time.Microsecond - 1).UnixMicro()
}

// applied reads the answer of apply.lua.
func (d *DB) applied(b *ledger.Batch, had state, at place, r *reply) (ledger.Result, error) {
	switch kind := r.string(); kind {
	case "A":
		st := state{seq: uint64(r.int()), at: r.int(), inc: r.int(), ver: r.int(), syncs: r.int()}
		now := st.at
		if makesVersion(b) {
			st.logAt, st.place, st.name = st.at, at.field, at.name
		} else {
			st.at = r.int()
		}
		if r.err == nil {
			d.told(now)
			d.known.applied(b.Space, st, b.Log != nil)
			return ledger.Result{Seq: st.seq, At: fromMicros(now)}, nil
		}
	case "R":
		seq, at := uint64(r.int()), r.int()
		if r.err == nil {
			return ledger.Result{Seq: seq, At: fromMicros(at)}, nil
		}
	case "C":
		if err := failedCheck(b, r); r.err == nil {
			return ledger.Result{}, err
		}
	case "N":
		key, why := r.string(), r.string()
		if r.err == nil {
			return ledger.Result{}, fmt.Errorf("%w: counter %q: %s", ledger.ErrInvalidBatch, key, why)
		}
	case "L":
		found := readMark(r)
		if r.err == nil {
			err := d.known.behind(b.Space, had, found)
			d.mend(b.Space)
			return ledger.Result{}, err
		}
	default:
		return ledger.Result{}, fmt.Errorf("apply batch to %s: script answered %q: %w", b.Space, kind, r.err)
	}
	return ledger.Result{}, fmt.Errorf("apply batch to %s: %w", b.Space, r.err)
}

// makesVersion reports whether b, once applied, is the newest version of its space. One
// that only checks leaves no trace, unless its answer is kept under its name.
func makesVersion(b *ledger.Batch) bool {
	return b.ID != "" || b.Log != nil || len(b.Sets)+len(b.Adds)+len(b.Deletes) > 0
}

func readMark(r *reply) Mark {
	return Mark{Incarnation: r.int(), Version: r.int(), Seq: uint64(r.int()), Resyncs: r.int()}
}

func failedCheck(b *ledger.Batch, r *reply) error {
	i, key, present := int(r.int()), r.string(), r.bytes()
	if i < 1 || i > len(b.Checks) {
		r.err = fmt.Errorf("script names check %d of %d", i, len(b.Checks))
		return nil
	}
	e := &ledger.CheckError{Check: b.Checks[i-1], Key: key, Present: present}
	if e.Check.Kind == ledger.CheckBefore {
		micros, err := strconv.ParseInt(string(present), 10, 64)
		if err != nil {
			r.err = fmt.Errorf("script's clock: %w", err)
		}
		e.Present = []byte(fromMicros(micros).Format(time.RFC3339Nano))
	}
	return e
}
