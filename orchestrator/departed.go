package orchestrator

import (
	"sync"
	"time"
)

// Counters and histograms have series for each replica. The series of a replica that left the configuration
// are deleted once hardly any request can count there, so that names which come and go leave nothing behind.
// A replica that returns earlier continues with its series. A stream may take any time and bring series
// back, so they are deleted again.

// departures are the names of replicas and servers with series. Safe for concurrent use.
type departures struct {
	mu    sync.Mutex // guards the following
	left  map[string]*departure
	here  map[string]uint64 // each present name, with the round that had it last
	round uint64            // how often arrive was called
}

// departure is when a replica left, and when to delete its series next.
type departure struct {
	at   time.Time
	next time.Time // zero until the first time
}

// longestStream is the time after which returned series are not looked for.
const longestStream = 24 * time.Hour

// arrive sets the names that are present. All others that were present before have left.
func (d *departures) arrive(names []string, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left == nil {
		d.left, d.here = map[string]*departure{}, map[string]uint64{}
	}
	d.round++
	for _, name := range names {
		d.here[name] = d.round
		delete(d.left, name)
	}
	for name, round := range d.here {
		if round != d.round {
			d.left[name] = &departure{at: now}
			delete(d.here, name)
		}
	}
}

// forget calls f for each name that left so long ago. It calls f again each time after twice as long,
// because series may come back.
func (d *departures) forget(ago time.Duration, now time.Time, f func(name string)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, of := range d.left {
		away := now.Sub(of.at)
		if away < ago || now.Before(of.next) {
			continue
		}
		f(name)
		of.next = now.Add(away)
		if away >= longestStream {
			delete(d.left, name)
		}
	}
}
