package observe

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Families makes and registers families of metrics. It remembers the families with a series per replica or
// pair, so that [Families.Forget] finds every one. While families are made, only one goroutine may use it.
type Families struct {
	reg        prometheus.Registerer
	ofReplicas []replicaFamily
	// Families with a series for each client key or each class, by this label.
	ofNames map[string][]replicaFamily
}

// replicaFamily is a family with a series for each replica or pair.
type replicaFamily struct {
	vec interface {
		DeletePartialMatch(labels prometheus.Labels) int
	}
	named []string // its labels that name replicas
	reset func()   // removes remembered children; nil if none are remembered
}

// Forget deletes the series of a replica and of its pairs.
func (f *Families) Forget(name string) {
	for _, of := range f.ofReplicas {
		for _, l := range of.named {
			of.vec.DeletePartialMatch(prometheus.Labels{l: name})
		}
		if of.reset != nil {
			of.reset()
		}
	}
}

// ForgetName deletes the series of a client key or of a class. label is key or class.
func (f *Families) ForgetName(label, name string) {
	for _, of := range f.ofNames[label] {
		of.vec.DeletePartialMatch(prometheus.Labels{label: name})
		of.reset()
	}
}

// keep remembers a family, if it has labels that name replicas, client keys or classes.
func (f *Families) keep(of replicaFamily, labels []string) {
	for _, l := range []string{"key", "class"} {
		if slices.Contains(labels, l) {
			f.ofNames[l] = append(f.ofNames[l], of)
		}
	}
	others := func(l string) bool { return l != "replica" && l != "prefill" && l != "decode" }
	if of.named = slices.DeleteFunc(slices.Clone(labels), others); len(of.named) > 0 {
		f.ofReplicas = append(f.ofReplicas, of)
	}
}

// Counter makes a family whose children are looked up rarely.
func (f *Families) Counter(name, help string, labels ...string) *prometheus.CounterVec {
	c := f.newCounter(name, help, labels)
	f.keep(replicaFamily{vec: c}, labels)
	return c
}

// Counters makes a family of the hot path.
func (f *Families) Counters(name, help string, labels ...string) *Counters {
	c := f.newCounter(name, help, labels)
	s := NewSeries(c.WithLabelValues)
	f.keep(replicaFamily{vec: c, reset: s.reset}, labels)
	return s
}

// Histograms makes a family of the hot path.
func (f *Families) Histograms(name, help string, buckets []float64, labels ...string) *Histograms {
	h := f.newHistogram(name, help, buckets, labels)
	s := NewSeries(h.WithLabelValues)
	f.keep(replicaFamily{vec: h, reset: s.reset}, labels)
	return s
}

// Single makes a counter without labels.
func (f *Families) Single(name, help string) prometheus.Counter {
	return f.newCounter(name, help, nil).WithLabelValues()
}

// Histogram makes one without labels.
func (f *Families) Histogram(name, help string, buckets []float64) prometheus.Observer {
	return f.newHistogram(name, help, buckets, nil).WithLabelValues()
}

// Gauge makes one without labels.
func (f *Families) Gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	f.reg.MustRegister(g)
	return g
}

func (f *Families) newCounter(name, help string, labels []string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	f.reg.MustRegister(c)
	return c
}

func (f *Families) newHistogram(
	name, help string, buckets []float64, labels []string,
) *prometheus.HistogramVec {
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	f.reg.MustRegister(h)
	return h
}

// children is a family of counters, of the hot path or not.
type children interface {
	WithLabelValues(values ...string) prometheus.Counter
}

// Begin creates the series of values that are known before anything happens, at 0. An alert on an increase
// cannot fire for a series that starts at 1.
func Begin(of children, values ...string) {
	for _, v := range values {
		of.WithLabelValues(v)
	}
}
