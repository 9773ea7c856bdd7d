package orchestrator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// configMetrics tell which configuration is in force, and whether the newest one is.
type configMetrics struct {
	reloads   *prometheus.CounterVec // result
	newest    prometheus.Gauge
	appliedAt prometheus.Gauge
	revision  *prometheus.GaugeVec // revision
	stalled   *prometheus.GaugeVec // file
}

func newConfigMetrics(f *metricFamilies) configMetrics {
	m := configMetrics{
		reloads: f.counter("tandem_config_reloads_total", "Attempts to apply a configuration, by result.",
			"result"),
		newest: f.gauge("tandem_config_last_reload_successful",
			"Whether the newest configuration file was accepted: 1 or 0."),
		appliedAt: f.gauge("tandem_config_last_success_timestamp_seconds",
			"When a configuration was last applied, unix seconds."),
		revision: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tandem_config_info",
			Help: "1 for the revision of the configuration in force, as records of decisions have it.",
		}, []string{"revision"}),
	}
	m.stalled = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tandem_file_stalled",
		Help: "1 while a write to the file that this field names does not end: its disk does not answer.",
	}, []string{"field"})
	f.reg.MustRegister(m.revision, m.stalled)
	begin(m.reloads, "applied", "rejected")
	return m
}

// applied tells that a configuration is in force since now. before is the revision of the one that was, ""
// for none.
func (m *configMetrics) applied(revision, before string, now time.Time) {
	m.reloads.WithLabelValues("applied").Inc()
	m.newest.Set(1)
	m.revision.WithLabelValues(revision).Set(1)
	if before != "" && before != revision {
		m.revision.DeleteLabelValues(before)
	}
	m.appliedAt.Set(float64(now.UnixNano()) / 1e9)
}

// rejected tells that the newest configuration is not in force.
func (m *configMetrics) rejected() {
	m.reloads.WithLabelValues("rejected").Inc()
	m.newest.Set(0)
}
