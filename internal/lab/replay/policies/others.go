package policies

import "math"

// smgCacheAware is SMG's cache_aware in event mode. The prefill replica has the most overlap, unless the pool
// is unbalanced. The decode replica has the fewest requests.
type smgCacheAware struct{ apart, times float64 }

func defaultSMGCacheAware() *smgCacheAware { return &smgCacheAware{apart: 32, times: 1.1} }

func (x *smgCacheAware) params() []Param {
	return []Param{
		{
			"apart", &x.apart, "most requests by which the most and the least loaded replica may differ",
			[]float64{2, 4, 8, 16, 32, 64},
		},
		{"times", &x.times, "greatest factor by which they may differ", nil},
	}
}

// Pick takes the least loaded replica of an unbalanced pool, and else the most overlap.
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

// dynamo is NVIDIA Dynamo's cost without temperature: queued and own prefill tokens minus a credit for the
// overlap. The decode replica has the fewest active blocks, and prefills itself if it has little to compute.
type dynamo struct{ credit, local, share float64 }

func defaultDynamo() *dynamo { return &dynamo{credit: 1, local: 2048, share: 0.7} }

func (y *dynamo) params() []Param {
	return []Param{
		{"credit", &y.credit, "of a matched token", []float64{0.5, 1, 1.5, 2, 3, 4}},
		{
			"local", &y.local,
			"below this many uncached tokens, decode prefills itself, if they are less than share of the prompt", nil,
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
