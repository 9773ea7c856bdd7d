package replica

import (
	"math"
	"time"
)

// Fused is what all load reports of one replica say together, each value with the time of the report that
// brought it. The zero value knows nothing. Not safe for concurrent use.
type Fused struct {
	running, waiting     int
	usage                float64
	runningAt, waitingAt time.Time // zero: never reported
	usageAt              time.Time
}

// Add lays one report over what is known. A report older than what is known of a value does not change that
// value.
func (f *Fused) Add(l Load) {
	if l.Running >= 0 && !l.At.Before(f.runningAt) {
		f.running, f.runningAt = l.Running, l.At
	}
	if l.Waiting >= 0 && !l.At.Before(f.waitingAt) {
		f.waiting, f.waitingAt = l.Waiting, l.At
	}
	if usage := l.Usage; !math.IsNaN(usage) && !l.At.Before(f.usageAt) {
		f.usage, f.usageAt = min(max(usage, 0), 1), l.At
	}
}

// Running returns the requests in the batch, or -1 where the newest report of it is older than limit.
func (f *Fused) Running(now time.Time, limit time.Duration) int {
	if stale(f.runningAt, now, limit) {
		return -1
	}
	return f.running
}

// Waiting returns the requests queued in the engine, or -1 where the newest report of it is older than limit.
func (f *Fused) Waiting(now time.Time, limit time.Duration) int {
	if stale(f.waitingAt, now, limit) {
		return -1
	}
	return f.waiting
}

// Usage returns the share of KV blocks in use, or NaN where the newest report of it is older than limit.
func (f *Fused) Usage(now time.Time, limit time.Duration) float64 {
	if stale(f.usageAt, now, limit) {
		return math.NaN()
	}
	return f.usage
}

// UsageAt returns when the newest usage reached us, the zero time when none did.
func (f *Fused) UsageAt() time.Time { return f.usageAt }

// Age returns how old the newest value of any kind is, -1 when nothing was ever reported.
func (f *Fused) Age(now time.Time) time.Duration {
	at := f.usageAt
	if f.waitingAt.After(at) {
		at = f.waitingAt
	}
	if at.IsZero() {
		return -1
	}
	return max(0, now.Sub(at))
}

func stale(at, now time.Time, limit time.Duration) bool { return at.IsZero() || now.Sub(at) > limit }

// LoadStatus is what the reports of a replica say, for people. Unknown values are -1.
type LoadStatus struct {
	Running int     `json:"running"`
	Waiting int     `json:"waiting"`
	Usage   float64 `json:"usage"`
	LoadAge float64 `json:"load_age_ms"`
}

// Status returns what is known now, by values of at most limit's age.
func (f *Fused) Status(now time.Time, limit time.Duration) LoadStatus {
	s := LoadStatus{Running: f.Running(now, limit), Waiting: f.Waiting(now, limit), Usage: -1, LoadAge: -1}
	if usage := f.Usage(now, limit); !math.IsNaN(usage) {
		s.Usage = usage
	}
	if age := f.Age(now); age >= 0 {
		s.LoadAge = age.Seconds() * 1e3
	}
	return s
}
