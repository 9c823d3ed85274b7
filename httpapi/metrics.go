package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics is what /metrics tells. One is made for a process and given to
// everything that has something to tell.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	sent     *prometheus.CounterVec
	running  prometheus.Gauge
	work     *prometheus.HistogramVec
	refused  *prometheus.CounterVec
	queued   *prometheus.HistogramVec
	streams  prometheus.Gauge
	ended    *prometheus.CounterVec
	handler  http.Handler
}

// NewMetrics makes metrics in a registry of their own.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_requests_total", Help: "Answered requests by route and status.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "headgate_request_seconds", Help: "Time from a request's headers to the end of its answer.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 14),
		}, []string{"route"}),
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_sent_bytes_total", Help: "Bytes of answers by route, without headers.",
		}, []string{"route"}),
		running: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headgate_requests_running", Help: "Requests being answered now.",
		}),
		work: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "headgate_work_seconds", Help: "Time of the store's work by kind: update, settle and so on.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 16),
		}, []string{"op"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_limited_total", Help: "Requests refused with 429, by the limit they were over.",
		}, []string{"reason"}),
		queued: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "headgate_queue_wait_seconds", Help: "Time that requests waited which had to, by what they waited for.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 13),
		}, []string{"for"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headgate_streams_open", Help: "Event streams that are open now.",
		}),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_streams_ended_total", Help: "Event streams that have ended, by why: slow is a client that did not read.",
		}, []string{"reason"}),
	}
	m.registry.MustRegister(m.requests, m.seconds, m.sent, m.running, m.work, m.refused, m.queued, m.streams, m.ended,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
	return m
}

// Observe records a piece of work; it fits gitstore.Options.Observe.
func (m *Metrics) Observe(op string, took time.Duration) {
	m.work.WithLabelValues(op).Observe(took.Seconds())
}

// Gauge adds a value that read gives whenever /metrics is asked. Names begin with
// headgate_ and are used once.
func (m *Metrics) Gauge(name, help string, read func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
}

// Counter adds a value that only grows, as Gauge does.
func (m *Metrics) Counter(name, help string, read func() float64) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, read))
}

func (m *Metrics) limited(limit string) { m.refused.WithLabelValues(limit).Inc() }

// supplyNames say in metrics what was waited for.
var supplyNames = [supplies]string{"request", "git", "stream", "upload", "turn"}

func (m *Metrics) waited(s supply, took time.Duration) {
	m.queued.WithLabelValues(supplyNames[s]).Observe(took.Seconds())
}

func (m *Metrics) begin() { m.running.Inc() }

func (m *Metrics) observe(x *exchange, took time.Duration) {
	m.running.Dec()
	m.requests.WithLabelValues(x.route, strconv.Itoa(x.status)).Inc()
	m.seconds.WithLabelValues(x.route).Observe(took.Seconds())
	if x.bytes > 0 {
		m.sent.WithLabelValues(x.route).Add(float64(x.bytes))
	}
}

func (s *Server) metrics(x *exchange, r *http.Request) error {
	s.Metrics.handler.ServeHTTP(x, r)
	return nil
}
