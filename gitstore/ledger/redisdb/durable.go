package redisdb

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// checkDurable asks every server whether it keeps what it acknowledges. Servers
// that do not let themselves be asked count as not durable.
func (d *DB) checkDurable(ctx context.Context) error {
	limited, cancel := d.limited(ctx, 0, 0)
	defer cancel()
	if err := d.client.Ping(limited).Err(); err != nil {
		return d.fail(ctx, "reach", "redis", err)
	}
	if c, ok := d.client.(*redis.ClusterClient); ok {
		return c.ForEachMaster(limited, func(ctx context.Context, node *redis.Client) error {
			return d.checkServer(ctx, node)
		})
	}
	return d.checkServer(limited, d.client)
}

func (d *DB) checkServer(ctx context.Context, c redis.Cmdable) error {
	settings := map[string]string{}
	for _, name := range []string{"append*", "no-appendfsync-on-rewrite", "maxmemory*"} {
		got, err := c.ConfigGet(ctx, name).Result()
		if err != nil {
			return d.notDurable("its settings cannot be read: " + err.Error())
		}
		for k, v := range got {
			settings[k] = v
		}
	}
	if faults := durabilityFaults(settings); len(faults) > 0 {
		return d.notDurable(strings.Join(faults, "; "))
	}
	return nil
}

func (d *DB) notDurable(why string) error {
	if d.opt.RequireDurable {
		return fmt.Errorf("%w: %s", ErrNotDurable, why)
	}
	d.opt.Logger.Warn("redis may lose acknowledged writes; set appendonly yes, appendfsync always, maxmemory-policy noeviction", "why", why)
	return nil
}

// durabilityFaults lists the settings with which a server forgets what it acknowledged.
func durabilityFaults(settings map[string]string) []string {
	var faults []string
	for _, want := range []struct{ name, value, effect string }{
		{"appendonly", "yes", "nothing is kept between snapshots"},
		{"appendfsync", "always", "a power cut takes the newest writes back"},
		{"no-appendfsync-on-rewrite", "no", "writes are not synced while the file is rewritten"},
	} {
		if got := settings[want.name]; got != want.value {
			faults = append(faults, fmt.Sprintf("%s is %q, not %q: %s", want.name, got, want.value, want.effect))
		}
	}
	if p := settings["maxmemory-policy"]; settings["maxmemory"] != "0" && p != "noeviction" {
		faults = append(faults, fmt.Sprintf("maxmemory-policy is %q, not \"noeviction\": keys are thrown away when memory is full", p))
	}
	return faults
}
