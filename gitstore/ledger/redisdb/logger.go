package redisdb

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/redis/go-redis/v9"
)

// The client library writes a line to standard error for every connection that
// fails, for the whole process. What matters of it comes back as errors here, so its
// lines go to the default logger, for debugging.
var tameLibrary = sync.OnceFunc(func() { redis.SetLogger(libraryLog{}) })

type libraryLog struct{}

func (libraryLog) Printf(ctx context.Context, format string, v ...any) {
	if slog.Default().Enabled(ctx, slog.LevelDebug) {
		slog.DebugContext(ctx, fmt.Sprintf(format, v...))
	}
}
