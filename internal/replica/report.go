package replica

import (
	"math"
	"time"
)

// Report is a [Load] as one router tells it to another router, which may have a different clock.
type Report struct {
	Age     time.Duration `json:"age_ns"`
	Running int           `json:"running"` // -1 unknown, as in the following
	Waiting int           `json:"waiting"`
	Loading int           `json:"loading"`
	// 0 from a router of an older version: then Waiting counts as it is.
	Fetching int     `json:"fetching"`
	Usage    float64 `json:"usage"`
}

// ReportOf makes a report of l, nil where l says nothing.
func ReportOf(l Load, now time.Time) *Report {
	if !l.Known() {
		return nil
	}
	r := Report{
		Age: now.Sub(l.At), Running: l.Running, Waiting: l.Waiting, Loading: l.Loading,
		Fetching: l.Fetching, Usage: l.Usage,
	}.plausible()
	return &r
}

// More requests than any engine has, and an age beyond any use. Sums with these bounds do not overflow.
const (
	mostCount = 1 << 30
	mostAge   = 1000 * time.Hour
)

// plausible returns r with each number within its bounds; NaN becomes unknown.
func (r Report) plausible() Report {
	count := func(n int) int { return min(max(n, -1), mostCount) }
	p := Report{
		Age: min(max(0, r.Age), mostAge), Running: count(r.Running), Waiting: count(r.Waiting),
		Loading: count(r.Loading), Fetching: count(r.Fetching), Usage: -1,
	}
	if r.Usage >= 0 {
		p.Usage = min(r.Usage, 1)
	}
	return p
}

// Plausible reports whether r can be true. An implausible report is believed only as far as it can be true.
func (r *Report) Plausible() bool { return *r == r.plausible() }

// Load is what the report says, heard now.
func (r *Report) Load(now time.Time) Load {
	p := r.plausible()
	l := Load{
		At: now.Add(-p.Age), Source: Metrics, Running: p.Running, Waiting: p.Waiting, Loading: p.Loading,
		Fetching: p.Fetching, Usage: p.Usage,
	}
	if p.Usage < 0 {
		l.Usage = math.NaN()
	}
	return l
}
