package replica

import (
	"math"
	"time"
)

// Report is a [Load] as one router tells it to another, whose clock may be another one.
type Report struct {
	Age     time.Duration `json:"age_ns"`
	Running int           `json:"running"` // -1 unknown, as in the following
	Waiting int           `json:"waiting"`
	Loading int           `json:"loading"`
	Usage   float64       `json:"usage"`
}

// ReportOf makes a report of l, nil where l says nothing.
func ReportOf(l Load, now time.Time) *Report {
	if !l.Known() {
		return nil
	}
	r := &Report{Age: max(0, now.Sub(l.At)), Running: l.Running, Waiting: l.Waiting, Loading: l.Loading, Usage: l.Usage}
	if math.IsNaN(l.Usage) {
		r.Usage = -1
	}
	return r
}

// Load is what the report says, heard now.
func (r *Report) Load(now time.Time) Load {
	l := Load{At: now.Add(-max(0, r.Age)), Source: Metrics, Running: max(r.Running, -1), Waiting: max(r.Waiting, -1), Loading: max(r.Loading, -1), Usage: r.Usage}
	if !(r.Usage >= 0) {
		l.Usage = math.NaN()
	}
	return l
}
