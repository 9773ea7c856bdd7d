package kvevents

import "time"

// lagBounds are the upper ends of the buckets of [Lags]. A longer delay than the last bound is in no bucket.
var lagBounds = [...]time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
	25 * time.Millisecond, 100 * time.Millisecond,
	500 * time.Millisecond, 2 * time.Second, 10 * time.Second, time.Minute,
}

// Lags is a histogram of delays. Copies are independent.
type Lags struct {
	Count uint64
	Sum   time.Duration
	Last  time.Duration

	buckets [len(lagBounds)]uint64
}

// Buckets maps each bound, in seconds, to the number of delays of at most that length, as a Prometheus
// histogram needs.
func (l *Lags) Buckets() map[float64]uint64 {
	buckets := make(map[float64]uint64, len(lagBounds))
	var below uint64
	for i, bound := range lagBounds {
		below += l.buckets[i]
		buckets[bound.Seconds()] = below
	}
	return buckets
}

func (l *Lags) add(d time.Duration) {
	l.Count++
	l.Sum += d
	l.Last = d
	for i, bound := range lagBounds {
		if d <= bound {
			l.buckets[i]++
			return
		}
	}
}
