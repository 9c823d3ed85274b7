package main

import (
	"github.com/headgate/headgate/gitstore"
	"github.com/headgate/headgate/httpapi"
)

// showFetches tells under /metrics how many fetches shared a git process.
func showFetches(m *httpapi.Metrics, s *gitstore.Store) {
	count := func(name, help string, read func(gitstore.FetchStats) uint64) {
		m.Counter(name, help, func() float64 { return float64(read(s.FetchStats())) })
	}
	count("headgate_fetches_started_total", "Fetches of a pack for which a git process was started.",
		func(f gitstore.FetchStats) uint64 { return f.Started })
	count("headgate_fetches_joined_total", "Fetches of a pack that joined a running equal one.",
		func(f gitstore.FetchStats) uint64 { return f.Joined })
	count("headgate_fetches_served_total", "Fetches of a pack that were served from disk with an equal one's answer.",
		func(f gitstore.FetchStats) uint64 { return f.Served })
	count("headgate_fetches_dropped_total", "Answers to fetches that could not be kept on disk.",
		func(f gitstore.FetchStats) uint64 { return f.Dropped })
	m.Gauge("headgate_fetch_cache_bytes", "Bytes of answers to fetches on disk.",
		func() float64 { return float64(s.FetchStats().Bytes) })
}
