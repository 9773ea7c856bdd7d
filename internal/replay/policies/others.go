package policies

import (
	"math"
	"slices"
)

// bottleneck is llm-d's P/D default of August 2026: replicas that hold four fifths of the prompt are kept unless they are much later than the best of the
// others; then the fewest tokens in flight. Decode by count.
type bottleneck struct{}

const (
	affinityShare = 0.8
	affinityRate  = 15_928 // tokens a second
	affinityLate  = 18.0   // s
)

// Pick filters.
func (bottleneck) Pick(q *Query, ps, ds []Replica) (p, d int) {
	holds := func(r *Replica) bool { return float64(r.Matched) >= affinityShare*float64(q.Tokens) }
	holder, stranger := math.Inf(1), math.Inf(1)
	for i := range ps {
		wait := float64(ps[i].Tokens) / affinityRate
		if holds(&ps[i]) {
			holder = min(holder, wait)
		} else {
			stranger = min(stranger, wait)
		}
	}
	keep := !math.IsInf(holder, 1) && holder <= stranger+affinityLate
	p = least(q, ps, func(r *Replica) float64 {
		if keep && !holds(r) {
			return math.Inf(1)
		}
		return float64(r.Tokens)
	})
	return p, least(q, ds, requests)
}

// smgCacheAware is SMG's cache_aware in event mode: the most overlap, unless the pool is unbalanced; decode by count.
type smgCacheAware struct{}

const (
	smgApart = 32
	smgTimes = 1.1
)

// Pick balances or follows.
func (smgCacheAware) Pick(q *Query, ps, ds []Replica) (p, d int) {
	d = least(q, ds, requests)
	low, high := math.MaxInt, 0
	for i := range ps {
		low, high = min(low, ps[i].Requests), max(high, ps[i].Requests)
	}
	if high-low > smgApart && float64(high) > smgTimes*float64(low) {
		return least(q, ps, func(r *Replica) float64 { return float64(r.Requests) + float64(r.Served)*1e-12 }), d
	}
	return least(q, ps, func(r *Replica) float64 { return -float64(r.Matched)*1e6 + float64(r.Requests) }), d
}

// smgLeastLoad is SMG's least_load on both sides.
type smgLeastLoad struct{}

const (
	smgRate     = 2000 // tokens a second, where throughput is not known
	smgPressure = 0.15 // s
)

// Pick adds seconds.
func (smgLeastLoad) Pick(q *Query, ps, ds []Replica) (p, d int) {
	pressure := func(r *Replica) float64 {
		k := min(r.Usage, 0.99)
		return smgPressure * k / (1 - k)
	}
	p = least(q, ps, func(r *Replica) float64 { return float64(r.Tokens)/smgRate + pressure(r) })
	return p, least(q, ds, func(r *Replica) float64 { return float64(r.Prompts)/smgRate + pressure(r) })
}

// chwbl is consistent hashing with bounded loads of the first 256 tokens, as SMG's prefix_hash; decode by count.
type chwbl struct{}

const (
	chwblHead  = 256
	chwblBound = 1.25
)

// Pick walks.
func (chwbl) Pick(q *Query, ps, ds []Replica) (p, d int) {
	all := 1
	for i := range ps {
		all += ps[i].Requests
	}
	bound := chwblBound * float64(all) / float64(len(ps))
	order := ranked(q.head(chwblHead), len(ps))
	p = order[0]
	for _, i := range order {
		if float64(ps[i].Requests+1) <= math.Ceil(bound) {
			p = i
			break
		}
	}
	return p, least(q, ds, requests)
}

// ranked is a key's way through the replicas.
func ranked(key uint64, n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if rank(key, a) > rank(key, b) {
			return -1
		}
		return 1
	})
	return order
}

// dualMap takes the one of two hashed replicas that has less to do; decode by count.
type dualMap struct{}

// Pick compares two.
func (dualMap) Pick(q *Query, ps, ds []Replica) (p, d int) {
	order := ranked(q.head(chwblHead), len(ps))
	p = order[0]
	if len(order) > 1 && q.work(&ps[order[1]]) < q.work(&ps[p]) {
		p = order[1]
	}
	return p, least(q, ds, requests)
}

// dynamo is NVIDIA Dynamo's cost without temperature: prefill tokens queued and own less credit for the overlap; decode by active blocks. It prefills
// on decode where little is to be computed there.
type dynamo struct{ credit float64 }

const (
	dynamoLocal = 2048
	dynamoShare = 0.7
)

// Pick adds tokens.
func (y dynamo) Pick(q *Query, ps, ds []Replica) (p, d int) {
	d = least(q, ds, func(r *Replica) float64 { return float64(r.Prompts) })
	if left := q.Tokens - ds[d].Matched; left < dynamoLocal && float64(left) < dynamoShare*float64(q.Tokens) {
		return -1, d
	}
	return least(q, ps, func(r *Replica) float64 { return float64(r.Tokens+q.Tokens) - y.credit*float64(r.Matched) }), d
}

// aibrix is AIBrix's P/D scoring; the term for throughput is left out, since all replicas are alike in it.
type aibrix struct{}

// Pick adds shares.
func (aibrix) Pick(q *Query, ps, ds []Replica) (p, d int) {
	most := 1.0
	for i := range ps {
		most = max(most, requests(&ps[i]))
	}
	p = least(q, ps, func(r *Replica) float64 { return 0.1*(100-100*float64(r.Matched)/float64(q.Tokens)) + requests(r)/most })
	busiest, room := 1.0, 1e-9
	for i := range ds {
		busiest, room = max(busiest, requests(&ds[i])), max(room, 1-ds[i].Usage)
	}
	return p, least(q, ds, func(r *Replica) float64 { return (requests(r) / busiest) / (max(1-r.Usage, 1e-3) / room) })
}

// greedy is the least predicted time to first token, by the profile's seconds: Mooncake without balancing. Decode by count.
type greedy struct{}

// Pick adds seconds.
func (greedy) Pick(q *Query, ps, ds []Replica) (p, d int) {
	p = least(q, ps, func(r *Replica) float64 { return r.Work.Seconds() + r.Speed.Prefill(q.Tokens-r.Matched, r.Matched) })
	return p, least(q, ds, requests)
}
