package policies

import (
	"math"

	"github.com/tandem-router/tandem/orchestrator/planner"
	"github.com/tandem-router/tandem/orchestrator/policy"
)

// bottleneck is llm-d's P/D default of August 2026: replicas that hold four fifths of the prompt are kept
// unless they are much later than the best of the others; then the fewest tokens in flight. Decode by count.
type bottleneck struct{ late, share, rate float64 }

func defaultBottleneck() *bottleneck { return &bottleneck{late: 18, share: 0.8, rate: 15_928} }

func (x *bottleneck) params() []Param {
	return []Param{
		{
			"late", &x.late, "seconds that a holder may be later than the best of the others",
			[]float64{1, 2, 5, 10, 18, 40},
		},
		{"share", &x.share, "of the prompt that a holder has", nil},
		{"rate", &x.rate, "tokens a second that a queue is worked off with", nil},
	}
}

// Pick filters.
func (x *bottleneck) Pick(q *Query, ps, ds []Replica) (p, d int) {
	holds := func(r *Replica) bool { return float64(r.Matched) >= x.share*float64(q.Tokens) }
	holder, stranger := math.Inf(1), math.Inf(1)
	for i := range ps {
		wait := float64(ps[i].Tokens) / x.rate
		if holds(&ps[i]) {
			holder = min(holder, wait)
		} else {
			stranger = min(stranger, wait)
		}
	}
	keep := !math.IsInf(holder, 1) && holder <= stranger+x.late
	p = least(q, ps, func(r *Replica) float64 {
		if keep && !holds(r) {
			return math.Inf(1)
		}
		return float64(r.Tokens)
	})
	return p, least(q, ds, requests)
}

// smgCacheAware is SMG's cache_aware in event mode: the most overlap, unless the pool is unbalanced; decode
// by count.
type smgCacheAware struct{ apart, times float64 }

func defaultSMGCacheAware() *smgCacheAware { return &smgCacheAware{apart: 32, times: 1.1} }

func (x *smgCacheAware) params() []Param {
	return []Param{
		{
			"apart", &x.apart, "requests by which the most and the least loaded may differ",
			[]float64{2, 4, 8, 16, 32, 64},
		},
		{"times", &x.times, "factor by which they may differ", nil},
	}
}

// Pick balances or follows.
func (x *smgCacheAware) Pick(q *Query, ps, ds []Replica) (p, d int) {
	d = least(q, ds, requests)
	low, high := math.MaxInt, 0
	for i := range ps {
		low, high = min(low, ps[i].Requests), max(high, ps[i].Requests)
	}
	if float64(high-low) > x.apart && float64(high) > x.times*float64(low) {
		return least(q, ps, func(r *Replica) float64 { return float64(r.Requests) + float64(r.Served)*1e-12 }), d
	}
	return least(q, ps, func(r *Replica) float64 { return -float64(r.Matched)*1e6 + float64(r.Requests) }), d
}

// smgLeastLoad is SMG's least_load on both sides.
type smgLeastLoad struct{ rate, pressure float64 }

func defaultSMGLeastLoad() *smgLeastLoad { return &smgLeastLoad{rate: 2000, pressure: 0.15} }

func (x *smgLeastLoad) params() []Param {
	return []Param{
		{
			"rate", &x.rate, "tokens a second that a queue is worked off with",
			[]float64{1000, 2000, 5000, 10_000, 20_000},
		},
		{"pressure", &x.pressure, "seconds that a half full KV cache counts", nil},
	}
}

// Pick adds seconds.
func (x *smgLeastLoad) Pick(q *Query, ps, ds []Replica) (p, d int) {
	pressure := func(r *Replica) float64 {
		k := min(r.Usage, 0.99)
		return x.pressure * k / (1 - k)
	}
	p = least(q, ps, func(r *Replica) float64 { return float64(r.Tokens)/x.rate + pressure(r) })
	return p, least(q, ds, func(r *Replica) float64 { return float64(r.Prompts)/x.rate + pressure(r) })
}

// dualMap takes the one of two hashed replicas that has less to do; decode by count.
type dualMap struct{ head float64 }

func defaultDualMap() *dualMap { return &dualMap{head: planner.HeadTokens} }

func (x *dualMap) params() []Param {
	return []Param{{"head", &x.head, "tokens that are hashed", []float64{256, 1024, 1536, 2048, 4096}}}
}

// Pick compares two.
func (x *dualMap) Pick(q *Query, ps, ds []Replica) (p, d int) {
	key, second := q.head(int(x.head)), -1
	p = rendezvous(key, len(ps))
	for i := range ps {
		if i != p && (second < 0 || policy.Drawn(key, uint64(i)) > policy.Drawn(key, uint64(second))) {
			second = i
		}
	}
	if second >= 0 && q.work(&ps[second]) < q.work(&ps[p]) {
		p = second
	}
	return p, least(q, ds, requests)
}

// dynamo is NVIDIA Dynamo's cost without temperature: prefill tokens queued and own less credit for the
// overlap; decode by active blocks. It prefills on decode where little is to be computed there.
type dynamo struct{ credit, local, share float64 }

func defaultDynamo() *dynamo { return &dynamo{credit: 1, local: 2048, share: 0.7} }

func (y *dynamo) params() []Param {
	return []Param{
		{"credit", &y.credit, "of a matched token", []float64{0.5, 1, 1.5, 2, 3, 4}},
		{
			"local", &y.local,
			"uncached tokens below which decode prefills by itself, if they are a smaller part than share", nil,
		},
		{"share", &y.share, "see local", nil},
	}
}

// Pick adds tokens.
func (y *dynamo) Pick(q *Query, ps, ds []Replica) (p, d int) {
	d = least(q, ds, func(r *Replica) float64 { return float64(r.Prompts) })
	if left := float64(q.Tokens - ds[d].Matched); left < y.local && left < y.share*float64(q.Tokens) {
		return -1, d
	}
	return least(q, ps,
		func(r *Replica) float64 { return float64(r.Tokens+q.Tokens) - y.credit*float64(r.Matched) }), d
}

// aibrix is AIBrix's P/D scoring; the term for throughput is left out, since all replicas are alike in it.
type aibrix struct{ match, spread float64 }

func defaultAIBrix() *aibrix { return &aibrix{match: 0.1, spread: 16} }

func (x *aibrix) params() []Param {
	return []Param{
		{
			"match", &x.match,
			"weight of a per cent of the prompt that is not cached; the most requests of a replica weigh 1",
			[]float64{0.01, 0.02, 0.05, 0.1, 0.2},
		},
		{
			"spread", &x.spread,
			"requests by which prefill replicas may differ; beyond, the fewest requests decide alone", nil,
		},
	}
}

// Pick adds shares.
func (x *aibrix) Pick(q *Query, ps, ds []Replica) (p, d int) {
	most, fewest := 1.0, math.Inf(1)
	for i := range ps {
		most, fewest = max(most, requests(&ps[i])), min(fewest, requests(&ps[i]))
	}
	if most-fewest > x.spread {
		return least(q, ps, requests), x.decode(q, ds)
	}
	p = least(q, ps, func(r *Replica) float64 {
		return x.match*(100-100*float64(r.Matched)/float64(q.Tokens)) + requests(r)/most
	})
	return p, x.decode(q, ds)
}

// decode adds up to requests over room.
func (*aibrix) decode(q *Query, ds []Replica) int {
	busiest, room := 1.0, 1e-9
	for i := range ds {
		busiest, room = max(busiest, requests(&ds[i])), max(room, 1-ds[i].Usage)
	}
	return least(q, ds,
		func(r *Replica) float64 { return (requests(r) / busiest) / (max(1-r.Usage, 1e-3) / room) })
}

// greedy is the least predicted time to first token, by the profile's seconds: Mooncake without balancing.
// Decode by count.
type greedy struct{}

// Pick adds seconds.
func (greedy) Pick(q *Query, ps, ds []Replica) (p, d int) {
	p = least(q, ps,
		func(r *Replica) float64 { return r.Work.Seconds() + r.Speed.Prefill(q.Tokens-r.Matched, r.Matched) })
	return p, least(q, ds, requests)
}
