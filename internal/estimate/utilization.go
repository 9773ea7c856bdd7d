package estimate

import (
	"math"
	"time"
)

// meterWindow is how far back utilisation looks, as the time constant of an exponential window.
const meterWindow = 120 * time.Second

// meterWarm is the least time for which a meter, or an arrival rate, counts as running: the first seconds
// must not look like overload, nor a first burst like the usual rate.
const meterWarm = 15 * time.Second

// Utilization measures which share of its time a replica is booked with work. The zero Utilization has seen
// none. Not safe for concurrent use.
type Utilization struct {
	sum   float64 // seconds of work, each decayed by its age at last
	since time.Time
	last  time.Duration // behind since: one difference of times tells both ages
}

// Add books seconds of work at now.
func (m *Utilization) Add(now time.Time, seconds float64) {
	if m.since.IsZero() {
		m.since = now
	}
	if seconds > 0 {
		seen := now.Sub(m.since)
		m.sum = m.decayed(seen) + seconds
		m.last = max(m.last, seen)
	}
}

// Rho returns the utilisation at now, 0 and above; more than 1 when more work was booked than time passed.
func (m *Utilization) Rho(now time.Time) float64 {
	if m.sum == 0 {
		return 0
	}
	seen := now.Sub(m.since)
	return m.decayed(seen) / (meterWindow.Seconds() * meterPart(seen))
}

// meterPart returns the part of the window that a meter has seen. Most have run for longer than it matters:
// what is missing of their windows then is less than a float64 can tell.
func meterPart(seen time.Duration) float64 {
	switch {
	case seen > meterFull:
		return 1
	case seen <= meterWarm:
		return meterLeast
	}
	return -math.Expm1(-seen.Seconds() / meterWindow.Seconds())
}

const meterFull = 40 * meterWindow

// meterLeast is the part of the window after meterWarm.
var meterLeast = -math.Expm1(-meterWarm.Seconds() / meterWindow.Seconds())

func (m *Utilization) decayed(seen time.Duration) float64 {
	age := max(0, seen-m.last).Seconds()
	return m.sum * math.Exp(-age/meterWindow.Seconds())
}
