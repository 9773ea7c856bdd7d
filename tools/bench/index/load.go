package index

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/kvevents"
)

// arriving is a batch that is sent to the applying goroutine.
type arriving struct {
	*published
	sent time.Time
}

// load looks prompts of the trace up at a steady rate. At the same time the engines' events about the same
// prompts arrive at a steady rate, and one other goroutine decodes and applies them.
func (m *measurement) load(r *resident) error {
	for range m.plan.Runs {
		keys := r.comingKeys(m.plan.Turns)
		all := r.publish(int(m.plan.Load.Seconds() * float64(m.plan.ChangeRate)))
		m.add("under_ingest_away_percent", away(m.plan.Load/2))
		drive := newDrive(m.plan, r, all.all, keys)
		if err := drive.run(); err != nil {
			return err
		}
		m.add("lookup_p99_under_ingest_us", micros(rank(drive.sinceDue, 0.99)))
		m.add("lookup_started_p99_under_ingest_us", micros(rank(drive.sinceStart, 0.99)))
		m.add("event_applied_p99_ms", millis(rank(drive.applied, 0.99)))
		m.add("event_applied_p50_ms", millis(rank(drive.applied, 0.5)))
		m.add("under_ingest_mblocks_s", float64(drive.changes)/float64(drive.took.Microseconds()))
	}
	return nil
}

// drive is one run under load. Its schedule does not wait for slow work: latency counts from the moment at
// which a lookup was due.
type drive struct {
	r       *resident
	all     []published
	keys    [][]kv.Key
	due     []time.Duration // of each batch
	every   time.Duration   // between lookups
	lookups int
	changes int

	sinceDue, sinceStart []time.Duration // of lookups
	applied              []time.Duration // of batches, from sending to applied
	took                 time.Duration   // until the last batch was applied
}

func newDrive(p Plan, r *resident, all []published, keys [][]kv.Key) *drive {
	d := &drive{r: r, all: all, keys: keys, every: time.Second / time.Duration(p.LookupRate)}
	for i := range all {
		d.due = append(d.due, time.Duration(d.changes)*time.Second/time.Duration(p.ChangeRate))
		d.changes += all[i].stored + all[i].removed
	}
	d.lookups = int(d.due[len(d.due)-1]/d.every) + 1
	d.sinceDue, d.sinceStart = make([]time.Duration, 0, d.lookups), make([]time.Duration, 0, d.lookups)
	d.applied = make([]time.Duration, 0, len(all))
	return d
}

// run keeps both schedules on this goroutine. It never sleeps, because timers are coarser than the measured
// times.
func (d *drive) run() error {
	arrivals := make(chan arriving, len(d.all))
	var failed error
	var applier sync.WaitGroup
	start := time.Now()
	applier.Go(func() { failed = d.apply(arrivals, start) })
	sent := 0
	for looked := 0; sent < len(d.all) || looked < d.lookups; {
		now := time.Since(start)
		switch due := time.Duration(looked) * d.every; {
		case sent < len(d.all) && now >= d.due[sent]:
			arrivals <- arriving{&d.all[sent], time.Now()}
			sent++
		case looked < d.lookups && now >= due:
			began := time.Since(start)
			d.r.ix.Match(d.keys[looked%len(d.keys)], d.r.depth)
			ended := time.Since(start)
			d.sinceDue, d.sinceStart = append(d.sinceDue, ended-due), append(d.sinceStart, ended-began)
			looked++
		}
	}
	close(arrivals)
	applier.Wait()
	return failed
}

// apply decodes and applies batches as they arrive. Each stream has its own kv.Batch for decoding.
func (d *drive) apply(arrivals <-chan arriving, start time.Time) error {
	var errs []error
	for a := range arrivals {
		b := &d.r.batches[a.holder]
		if _, err := kvevents.Decode(a.payload, b); err != nil {
			errs = append(errs, err)
		}
		if got := d.r.ix.Apply(a.holder, b); got.Stored != a.stored || got.Removed != a.removed {
			errs = append(errs,
				fmt.Errorf("applied %+v of a batch that stores %d and removes %d", got, a.stored, a.removed))
		}
		d.applied = append(d.applied, time.Since(a.sent))
	}
	d.took = time.Since(start)
	return errors.Join(errs...)
}

// gap is the longest time between two looks at the clock, unless another program or the kernel takes the CPU.
const gap = 20 * time.Microsecond

// away returns the percentage of time in which a busy goroutine is not running. No tail latency can be better
// than this allows.
func away(d time.Duration) float64 {
	start, lost := time.Now(), time.Duration(0)
	for last := time.Duration(0); last < d; {
		now := time.Since(start)
		if now-last > gap {
			lost += now - last
		}
		last = now
	}
	return 100 * float64(lost) / float64(d)
}
