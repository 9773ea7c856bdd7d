package orchestrator

import (
	"sync"
	"time"
)

// Counters and histograms have series for each replica. Those of a replica that has left the configuration
// are deleted once hardly any request can count there any more, so that names which come and go leave nothing
// behind. One that is back by then goes on with what it had. A stream may take as long as it likes and bring
// series back, so that they are deleted again.

// departures are the names of replicas and servers for which there are series. Safe for concurrent use.
type departures struct {
	mu   sync.Mutex // guards the following
	left map[string]*departure
	here map[string]bool
}

// departure is when somebody left, and when to delete what there is next.
type departure struct {
	at   time.Time
	next time.Time // zero until the first time
}

// longestStream is the time after which nobody looks for series that were brought back.
const longestStream = 24 * time.Hour

// arrive notes who is there now, whoever else was there before having left.
func (d *departures) arrive(names []string, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left == nil {
		d.left = map[string]*departure{}
	}
	for name := range d.here {
		d.left[name] = &departure{at: now}
	}
	d.here = make(map[string]bool, len(names))
	for _, name := range names {
		d.here[name] = true
		delete(d.left, name)
	}
}

// forget calls f for those who left so long ago, and keeps them from coming back meanwhile: then, and each
// time after twice as long.
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

// forgetDeparted deletes the series of those who left so long ago that only long streams of theirs can run
// still.
func (o *Orchestrator) forgetDeparted(now time.Time) {
	o.departures.forget(o.Config().Timeouts.Answer+time.Minute, now, func(name string) {
		o.m.Families.Forget(name)
		o.fleet.ForgetSeries(name)
	})
}
