package redisdb

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/gitstore/ledger"
)

var (
	//go:embed apply.lua
	applySource string
	//go:embed scan.lua
	scanSource string
	//go:embed log.lua
	logSource string
	//go:embed trim.lua
	trimSource string
	//go:embed drop.lua
	dropSource string
	//go:embed hold.lua
	holdSource string
	//go:embed held.lua
	heldSource string
	//go:embed unhold.lua
	unholdSource string
	//go:embed load.lua
	loadSource string

	applyScript = redis.NewScript(applySource)
	scanScript  = redis.NewScript(scanSource)
	logScript   = redis.NewScript(logSource)
	trimScript  = redis.NewScript(trimSource)
	dropScript  = redis.NewScript(dropSource)

	holdScript   = redis.NewScript(holdSource)
	heldScript   = redis.NewScript(heldSource)
	unholdScript = redis.NewScript(unholdSource)
	loadScript   = redis.NewScript(loadSource)
)

// run calls a small script by its hash, or by its text where the server has
// forgotten it, and turns its error into the ledger's.
func (d *DB) run(ctx context.Context, sc *redis.Script, what string, s ledger.Space, keys []string, args ...any) (any, error) {
	limited, cancel := d.limited(ctx, 0, 0)
	defer cancel()
	return d.runIn(ctx, limited, sc, what, s, keys, args...)
}

// runIn is run with a time limit of the caller's making: limited is ctx with it.
func (d *DB) runIn(ctx, limited context.Context, sc *redis.Script, what string, s ledger.Space, keys []string, args ...any) (any, error) {
	if d.closed.Load() {
		return nil, ledger.ErrClosed
	}
	reply, err := sc.Run(limited, d.client, keys, args...).Result()
	return reply, d.fail(ctx, what, s, err)
}

// scriptArgs are a command that calls a script by its hash. Its bytes, size of them at
// least, are the command's own: the caller's may change while it is on its way.
func scriptArgs(sc *redis.Script, keys []string, args []any, size int) []any {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", sc.Hash(), len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	own := make([]byte, 0, size)
	for _, arg := range args {
		if b, ok := arg.([]byte); ok {
			own = append(own, b...)
			arg = own[len(own)-len(b):]
		}
		all = append(all, arg)
	}
	return all
}

// reply reads the fields of a script's answer in order. The scripts are ours: an
// answer of another shape is a mistake in this package and ends as an error.
type reply struct {
	fields []any
	err    error
}

func readReply(v any) *reply {
	fields, ok := v.([]any)
	if !ok {
		return &reply{err: fmt.Errorf("script answered %T", v)}
	}
	return &reply{fields: fields}
}

func (r *reply) next() any {
	if r.err != nil {
		return nil
	}
	if len(r.fields) == 0 {
		r.err = fmt.Errorf("script's answer is short")
		return nil
	}
	v := r.fields[0]
	r.fields = r.fields[1:]
	return v
}

func (r *reply) int() int64 {
	v := r.next()
	n, ok := v.(int64)
	if !ok && r.err == nil {
		r.err = fmt.Errorf("script answered %T, not a number", v)
	}
	return n
}

func (r *reply) string() string {
	v := r.next()
	s, ok := v.(string)
	if !ok && r.err == nil {
		r.err = fmt.Errorf("script answered %T, not a string", v)
	}
	return s
}

// bytes is nil where the script answered that there is nothing.
func (r *reply) bytes() []byte {
	v := r.next()
	if v == nil {
		return nil
	}
	s, ok := v.(string)
	if !ok && r.err == nil {
		r.err = fmt.Errorf("script answered %T, not a string", v)
	}
	return []byte(s)
}

func (r *reply) list() *reply {
	v := r.next()
	if r.err != nil {
		return &reply{err: r.err}
	}
	return readReply(v)
}
