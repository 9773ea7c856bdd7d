package replica

import (
	"math"
	"time"
)

// Fused is what all load reports of one replica say together, each value with the time of the report that
// brought it. The zero value knows nothing. Not safe for concurrent use.
type Fused struct {
	running, waiting     int32
	fetching             int32 // of waiting, in the same report; -1 unknown
	usage                float64
	runningAt, waitingAt time.Time // zero: never reported
	usageAt              time.Time
}

// Add adds one report. A report changes a value only if it is not older than the report that the value came
// from.
func (f *Fused) Add(l Load) {
	if l.Running >= 0 && !l.At.Before(f.runningAt) {
		f.running, f.runningAt = small(l.Running), l.At
	}
	if l.Waiting >= 0 && !l.At.Before(f.waitingAt) {
		f.waiting, f.waitingAt = small(l.Waiting), l.At
		f.fetching = small(l.Fetching)
	}
	if usage := l.Usage; !math.IsNaN(usage) && !l.At.Before(f.usageAt) {
		f.usage, f.usageAt = min(max(usage, 0), 1), l.At
	}
}

// Reading is what the reports of a replica say at one moment. A value is unknown if its newest report is too
// old.
type Reading struct {
	Running int           // requests in the batch, -1 unknown
	Waiting int           // requests queued in the engine, -1 unknown
	Usage   float64       // share of KV blocks in use, NaN unknown
	Age     time.Duration // of the newest value of any kind, -1 when nothing was ever reported
}

// Read returns the load at now, from values that are not older than limit.
func (f *Fused) Read(now time.Time, limit time.Duration) Reading {
	r := Reading{Running: -1, Waiting: -1, Usage: math.NaN(), Age: -1}
	usage := age(f.usageAt, now)
	waiting, running := usage, usage // most reports bring all three
	if f.waitingAt != f.usageAt {
		waiting = age(f.waitingAt, now)
	}
	if f.runningAt != f.usageAt {
		running = age(f.runningAt, now)
	}
	if usage <= limit {
		r.Usage = f.usage
	}
	if waiting <= limit {
		r.Waiting = int(f.waiting)
	}
	if running <= limit {
		r.Running = int(f.running)
	}
	if newest := min(usage, waiting); newest != never {
		r.Age = max(0, newest)
	}
	return r
}

// Fetching is how many of the waiting requests, by the newest report, have their KV on its way from another
// engine; -1 unknown.
func (f *Fused) Fetching() int { return int(f.fetching) }

// small fits a count into what plans ask of every replica.
func small(n int) int32 { return int32(min(n, math.MaxInt32)) }

// never is the age of a value that was never reported.
const never = time.Duration(math.MaxInt64)

func age(at, now time.Time) time.Duration {
	if at.IsZero() {
		return never
	}
	return now.Sub(at)
}

// UsageAt returns when the newest usage reached us, the zero time when none did.
func (f *Fused) UsageAt() time.Time { return f.usageAt }

// LoadStatus is what the reports of a replica say, for people. Unknown values are -1.
type LoadStatus struct {
	Running int     `json:"running"`
	Waiting int     `json:"waiting"`
	Usage   float64 `json:"usage"`
	LoadAge float64 `json:"load_age_ms"`
}

// UnknownLoad is the load of a replica that reports nothing.
func UnknownLoad() LoadStatus { return LoadStatus{Running: -1, Waiting: -1, Usage: -1, LoadAge: -1} }

// Status returns the present values that are not older than limit.
func (f *Fused) Status(now time.Time, limit time.Duration) LoadStatus {
	r := f.Read(now, limit)
	s := LoadStatus{Running: r.Running, Waiting: r.Waiting, Usage: -1, LoadAge: -1}
	if !math.IsNaN(r.Usage) {
		s.Usage = r.Usage
	}
	if r.Age >= 0 {
		s.LoadAge = r.Age.Seconds() * 1e3
	}
	return s
}
