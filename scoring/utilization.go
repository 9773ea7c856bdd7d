package scoring

import (
	"math"
	"time"
)

// meterWindow is how far back utilisation looks, as the time constant of an exponential window.
const meterWindow = 120 * time.Second

// meterWarm is how long a meter counts as running at least, so that its first seconds do not read as
// overload.
const meterWarm = 15 * time.Second

// Utilization measures which share of its time a replica is booked with work. The zero Utilization has seen
// none. Not safe for concurrent use.
type Utilization struct {
	sum       float64 // seconds of work, each decayed by its age
	at, since time.Time
}

// Add books seconds of work at now.
func (m *Utilization) Add(now time.Time, seconds float64) {
	if m.since.IsZero() {
		m.since, m.at = now, now
	}
	if seconds > 0 {
		m.sum = m.decayed(now) + seconds
		if now.After(m.at) {
			m.at = now
		}
	}
}

// Rho returns the utilisation at now, 0 and above; more than 1 when more work was booked than time passed.
func (m *Utilization) Rho(now time.Time) float64 {
	if m.since.IsZero() {
		return 0
	}
	seen := max(now.Sub(m.since), meterWarm).Seconds()
	window := meterWindow.Seconds()
	return m.decayed(now) / (window * -math.Expm1(-seen/window))
}

func (m *Utilization) decayed(now time.Time) float64 {
	age := max(0, now.Sub(m.at)).Seconds()
	return m.sum * math.Exp(-age/meterWindow.Seconds())
}
