package planner

import (
	"math"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// This file is what decode engines count of their reads of KV blocks (vLLM's NIXL series). They know what a
// transfer took without the engine around it; the router knows between whom it was.

// come is a transfer that has come since the engine's counters were read last.
type come struct {
	*flight
	took  float64 // seconds by the router's clock
	moved estimate.Range
}

// mostCome is how many transfers may wait for the counters of one engine. With more it is asked too rarely.
const mostCome = 4096

// await keeps x until its engine's counters are read, if the engine has any.
func (f *flights) await(x come) {
	id := x.pair.Decode
	if _, counts := f.counted[id]; counts && len(f.come[id]) < mostCome {
		f.come[id] = append(f.come[id], x)
	}
}

// countDoubt is by which factor what is counted of some reads may well be more or less for one of them.
const countDoubt = 1.25

// Counted takes in what the decode replica id has counted of its reads by now. What the router's clock has
// for the transfers that have come since the counters were read before is scaled to what the engine counted
// for them. Safe for concurrent use.
func (pl *Planner) Counted(id replica.ID, reads replica.Reads, now time.Time) {
	if reads == (replica.Reads{}) {
		return
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	f := &pl.flights
	was, known := f.counted[id]
	all := f.come[id]
	d, some := reads.Since(was)
	f.counted[id] = reads
	delete(f.come, id)
	if !known || !some {
		return
	}
	pl.learnPosting(id, d)
	if len(all) == 0 || math.Abs(d.Count-float64(len(all))) > max(1, d.Count/5) {
		return // it counts others' reads, or reads that nobody saw the end of
	}
	took, read := 0.0, d.Seconds/d.Count
	for i := range all {
		took += all[i].took / float64(len(all))
	}
	wire := min(1, read/took)
	f.besides[id] = max(0, took-read)
	for i := range all {
		x := &all[i]
		if !x.knows {
			continue
		}
		seconds := x.took * wire
		pl.learnLink(x.flight, pl.pairs.links.get(x.pair), estimate.Range{
			Low:  seconds / countDoubt / x.moved.High * x.configured,
			High: seconds * countDoubt / x.moved.Low * x.configured,
		}, now)
	}
}

// learnPosting takes in for how long a replica has posted reads, for each token in them.
func (pl *Planner) learnPosting(id replica.ID, d replica.Reads) {
	perToken := d.Posting / d.Bytes * pl.policy.KVBytesPerToken
	if was := pl.decode.Posting(id); was > 0 {
		perToken = was + postingGain*(perToken-was)
	}
	pl.decode.SetPosting(id, perToken)
}

const postingGain = 0.3 // of the way to what was counted newly
