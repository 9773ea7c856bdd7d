package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ConfigMetrics say which configuration is in force, and whether it is the newest.
type ConfigMetrics struct {
	Reloads   *prometheus.CounterVec // result
	Newest    prometheus.Gauge
	AppliedAt prometheus.Gauge
	Revision  *prometheus.GaugeVec // revision
	Stalled   *prometheus.GaugeVec // file
}

func newConfigMetrics(f *Families) ConfigMetrics {
	m := ConfigMetrics{
		Reloads: f.Counter("tandem_config_reloads_total", "Attempts to apply a configuration, by result.",
			"result"),
		Newest: f.Gauge("tandem_config_last_reload_successful",
			"Whether the newest configuration file was accepted: 1 or 0."),
		AppliedAt: f.Gauge("tandem_config_last_success_timestamp_seconds",
			"When a configuration was last applied, unix seconds."),
		Revision: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "tandem_config_info",
			Help: "1 for the revision of the configuration in force, as records of decisions have it.",
		}, []string{"revision"}),
	}
	m.Stalled = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "tandem_file_stalled",
		Help: "1 while a write to the file that this field names does not end: its disk does not answer.",
	}, []string{"field"})
	f.reg.MustRegister(m.Revision, m.Stalled)
	Begin(m.Reloads, "applied", "rejected")
	return m
}

// Applied records that a configuration is in force from now on. before is the revision of the former one; ""
// for none.
func (m *ConfigMetrics) Applied(revision, before string, now time.Time) {
	m.Reloads.WithLabelValues("applied").Inc()
	m.Newest.Set(1)
	m.Revision.WithLabelValues(revision).Set(1)
	if before != "" && before != revision {
		m.Revision.DeleteLabelValues(before)
	}
	m.AppliedAt.Set(float64(now.UnixNano()) / 1e9)
}

// Rejected records that the newest configuration is not in force.
func (m *ConfigMetrics) Rejected() {
	m.Reloads.WithLabelValues("rejected").Inc()
	m.Newest.Set(0)
}
