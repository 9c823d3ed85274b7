package redisdb

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	dialTimeout = 700 * time.Millisecond
	maxRetries  = 3
	backoffMin  = 20 * time.Millisecond
	backoffMax  = 250 * time.Millisecond
	// A call's context bounds it; this is only for what has none.
	ioTimeout = time.Minute
)

// connect makes the client; nothing is dialed yet. connected is told of each new
// connection.
func connect(t target, o Options, connected func(context.Context, *redis.Conn) error) redis.UniversalClient {
	still := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	switch {
	case t.cluster:
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: t.addrs, Username: t.username, Password: t.password, TLSConfig: t.tls, OnConnect: connected,
			Protocol: 2, DisableIdentity: true,
			DialTimeout: dialTimeout, DialerRetries: 1, MaxRetries: maxRetries, MinRetryBackoff: backoffMin, MaxRetryBackoff: backoffMax,
			ReadTimeout: ioTimeout, WriteTimeout: ioTimeout, ContextTimeoutEnabled: true,
			PoolSize: o.PoolSize, PoolTimeout: o.Timeout, MaintNotificationsConfig: still,
		})
	case t.master != "":
		return redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: t.master, SentinelAddrs: t.addrs, SentinelUsername: t.sentinelUser, SentinelPassword: t.sentinelPassword,
			DB: t.db, Username: t.username, Password: t.password, TLSConfig: t.tls, OnConnect: connected,
			Protocol: 2, DisableIdentity: true,
			DialTimeout: dialTimeout, DialerRetries: 1, MaxRetries: maxRetries, MinRetryBackoff: backoffMin, MaxRetryBackoff: backoffMax,
			ReadTimeout: ioTimeout, WriteTimeout: ioTimeout, ContextTimeoutEnabled: true,
			PoolSize: o.PoolSize, PoolTimeout: o.Timeout,
		})
	}
	return redis.NewClient(&redis.Options{
		Addr: t.addrs[0], DB: t.db, Username: t.username, Password: t.password, TLSConfig: t.tls, OnConnect: connected,
		Protocol: 2, DisableIdentity: true,
		DialTimeout: dialTimeout, DialerRetries: 1, MaxRetries: maxRetries, MinRetryBackoff: backoffMin, MaxRetryBackoff: backoffMax,
		ReadTimeout: ioTimeout, WriteTimeout: ioTimeout, ContextTimeoutEnabled: true,
		PoolSize: o.PoolSize, PoolTimeout: o.Timeout, MaintNotificationsConfig: still,
	})
}
