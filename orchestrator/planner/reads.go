package planner

import (
	"math"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// This file uses the decode engines' counters of their KV reads (vLLM's NIXL series). The counters measure
// transfers without the engine's other work. The router knows which replicas each transfer connected. Each
// tensor-parallel rank of an engine counts transfers of its own, which run at the same time.

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
	own, n := 0.0, float64(len(all))
	for i := range all {
		own += all[i].own / all[i].configured
	}
	perToken := f.policy.bytesOf(f.pairs.decodes(id)) / f.sizeOfRead(id, own, n, d)
	f.decode.LearnPosting(id, d.Posting/d.Bytes*perToken)
	if n == 0 || math.Abs(d.Count-n) > max(1, d.Count/5) && math.Abs(d.Bytes-own) > d.Bytes/5 {
		return // the counters include other routers' reads, or reads whose end nobody saw
	}
	took, read := 0.0, d.Seconds/d.Count
	for i := range all {
		took += all[i].took / n
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

// sizes are sums over the latest counts of a decode replica. Newer counts halve the weight of older ones.
type sizes struct {
	own, reads, bytes, transfers float64
}

// sizeOfRead returns how many times as large a read is as one counted transfer, with the newest counts d:
// n reads of this router, which should have moved own bytes. It is 1 until reads were counted. It depends on
// the engine's ranks, on copies of heads, and on the model's true bytes per token. Other routers' reads are
// taken to be as long as this router's.
func (f *flights) sizeOfRead(id replica.ID, own, n float64, d replica.Reads) float64 {
	s := f.sizes[id]
	if n > 0 {
		s = sizes{
			own: s.own/2 + own, reads: s.reads/2 + n,
			bytes: s.bytes/2 + d.Bytes, transfers: s.transfers/2 + d.Count,
		}
		f.sizes[id] = s
	}
	if s.own == 0 {
		return 1
	}
	return s.own / s.reads * s.transfers / s.bytes
}
