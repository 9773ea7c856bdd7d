package planner

import (
	"math"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// This file uses the decode engines' counters of their KV reads (vLLM's NIXL series). The counters measure
// transfers without the engine's other work. The router knows which replicas each transfer connected.

// come is a transfer that arrived since the engine's counters were read last.
type come struct {
	*flight
	took  float64 // seconds by the router's clock
	moved estimate.Range
}

// mostCome bounds the transfers that wait for the counters of one engine. Beyond it, the counters are read
// too rarely.
const mostCome = 4096

// await keeps x until its engine's counters are read, if the engine has any.
func (f *flights) await(x come) {
	id := x.pair.Decode
	if _, counts := f.counted[id]; counts && len(f.come[id]) < mostCome {
		f.come[id] = append(f.come[id], x)
	}
}

// countDoubt is the factor by which one read may differ from the mean of the counted reads.
const countDoubt = 1.25

// count takes in the counters of the reads of decode replica id, and teaches the links of the transfers that
// arrived since the last call.
func (f *flights) count(id replica.ID, reads replica.Reads, now time.Time) {
	was, known := f.counted[id]
	all := f.come[id]
	d, some := reads.Since(was)
	f.counted[id] = reads
	delete(f.come, id)
	if !known || !some {
		return
	}
	f.decode.LearnPosting(id, d.Posting/d.Bytes*f.policy.bytesOf(f.pairs.decodes(id)))
	if len(all) == 0 || math.Abs(d.Count-float64(len(all))) > max(1, d.Count/5) {
		return // the counters include other routers' reads, or reads whose end nobody saw
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
		f.pairs.learn(x.flight, estimate.Range{
			Low:  seconds / countDoubt / x.moved.High * x.configured,
			High: seconds * countDoubt / x.moved.Low * x.configured,
		}, now)
	}
}
