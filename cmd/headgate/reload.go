package main

import (
	"context"
	"log/slog"
	"os"
)

// A reloader puts the configuration into force, at the start and again at each
// SIGHUP. A file that is bad then is logged and changes nothing.
type reloader struct {
	path       string       // may be empty: then only the trusted files are read again
	trust      []string     // ORG=PUBLIC.pem
	serverKeys func() error // reads them again at each SIGHUP, whatever the configuration says; nil: there are none
	apply      func(Config)
	log        *slog.Logger
}

// load reads the configuration and hands it to apply; on an error apply is not called.
func (r *reloader) load() error {
	config, err := loadConfig(r.path, r.trust...)
	if err != nil {
		return err
	}
	r.apply(config)
	return nil
}

// run reads the server's keys and the configuration at each signal until ctx ends.
// The signals have to be asked for (signal.Notify) before the first one may come.
func (r *reloader) run(ctx context.Context, hangups <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		}
		r.rereadServerKeys()
		if err := r.load(); err != nil {
			r.log.Error("configuration not changed", "error", err)
			continue
		}
		r.log.Info("configuration read again", "file", r.path)
	}
}

func (r *reloader) rereadServerKeys() {
	if r.serverKeys == nil {
		return
	}
	if err := r.serverKeys(); err != nil {
		r.log.Error("server keys not changed", "error", err)
	}
}
