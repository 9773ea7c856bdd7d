package orchestrator

import (
	"sync"
	"time"
)

// Counters and histograms have series for each replica. When a replica leaves the configuration, its series
// are deleted after hardly any of its requests can still run. So names that come and go leave no series
// behind. A replica that returns earlier continues with its series. A long stream may create series again, so
// they are deleted again later.

// departures holds the names of replicas and servers with series. Safe for concurrent use.
type departures struct {
	mu    sync.Mutex // guards the following
	left  map[string]*departure
	here  map[string]uint64 // each present name, with the newest round that had it
	round uint64            // how often arrive was called
}

// departure says when a replica left, and when to delete its series next.
type departure struct {
	at   time.Time
	next time.Time // zero until the first time
}

// longestStream is how long series that were created again are looked for.
const longestStream = 24 * time.Hour

// arrive sets the present names. All other names that were present have left.
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

// forget calls f for each name that left so long ago. Later it calls f again, after twice as long each time,
// because series may be created again.
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
