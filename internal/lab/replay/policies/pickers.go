package policies

import (
	"math"

	"github.com/tandem-router/tandem/orchestrator/policy"
)

// The policies of other routers, with formulas and defaults from the sources in docs/replay.md. A policy uses
// the same rule on both sides unless its comment says otherwise.

type random struct{}

// Pick takes random replicas.
func (random) Pick(q *Query, ps, ds []Replica) (p, d int) {
	return q.Rand.IntN(len(ps)), q.Rand.IntN(len(ds))
}

type roundRobin struct{ p, d int }

// Pick takes the next replica of each side.
func (r *roundRobin) Pick(_ *Query, ps, ds []Replica) (p, d int) {
	p, d = r.p%len(ps), r.d%len(ds)
	r.p++
	r.d++
	return p, d
}

type leastRequests struct{}

// Pick takes the fewest requests in flight.
func (leastRequests) Pick(q *Query, ps, ds []Replica) (p, d int) {
	return least(q, ps, requests), least(q, ds, requests)
}

type leastTokens struct{}

// Pick takes the prefill replica with the fewest tokens to compute, and the decode replica with the fewest
// prompt tokens.
func (leastTokens) Pick(q *Query, ps, ds []Replica) (p, d int) {
	return least(q, ps, q.work), least(q, ds, func(r *Replica) float64 { return float64(r.Prompts) })
}

// sticky is production-stack's session routing. The trace of conversations has no sessions, so the first
// tokens of the prompt stand for the session.
type sticky struct{ head float64 }

func defaultSticky() *sticky { return &sticky{head: 1024} }

func (s *sticky) params() []Param {
	return []Param{{
		"head", &s.head,
		"first tokens of the prompt that stand for a missing session; 1024: two blocks of the conversation trace",
		[]float64{512, 1024, 1536, 2048, 4096},
	}}
}

// Pick chooses by a hash.
func (s *sticky) Pick(q *Query, ps, ds []Replica) (p, d int) {
	key := q.Session
	if key == 0 {
		key = q.head(int(s.head))
	}
	return rendezvous(key, len(ps)), rendezvous(key, len(ds))
}

// rendezvous returns the replica of a key, by rendezvous hashing.
func rendezvous(key uint64, n int) int {
	best := 0
	for i := range n {
		if policy.Drawn(key, uint64(i)) > policy.Drawn(key, uint64(best)) {
			best = i
		}
	}
	return best
}

// lmetric is the cost (Q + u) * (B + 1), without parameters. Decode uses the same product with the prompt's
// tokens as u.
type lmetric struct{}

// Pick takes the smallest product.
func (lmetric) Pick(q *Query, ps, ds []Replica) (p, d int) {
	p = least(q, ps, func(r *Replica) float64 { return q.work(r) * float64(r.Requests+1) })
	return p,
		least(q, ds, func(r *Replica) float64 { return float64(r.Prompts+q.Tokens) * float64(r.Requests+1) })
}

// llmd is llm-d's P/D profile. The share of matched blocks has weight 2, the queue by the last report has
// weight 1, and ties are random. Decode is chosen first. If decode has fewer than 16 tokens to compute, there
// is no prefill leg.
type llmd struct{ prefix, queue, local float64 }

func defaultLLMD() *llmd { return &llmd{prefix: 2, queue: 1, local: 16} }

func (l *llmd) params() []Param {
	return []Param{
		{"prefix", &l.prefix, "weight of the share of matched tokens", []float64{1, 2, 4, 10, 20}},
		{"queue", &l.queue, "weight of the queue, as a share of the spread between the replicas", nil},
		{"local", &l.local, "below this many uncached tokens, decode prefills itself", nil},
	}
}

// Pick takes the best score, decode first.
func (l *llmd) Pick(q *Query, ps, ds []Replica) (p, d int) {
	if d = l.best(q, ds); float64(q.Tokens-ds[d].Matched) < l.local {
		return -1, d
	}
	return l.best(q, ps), d
}

func (l *llmd) best(q *Query, rs []Replica) int {
	idle := idleness(rs)
	return least(q, rs, func(r *Replica) float64 {
		return -(l.prefix*float64(r.Matched)/float64(q.Tokens) + l.queue*idle(r))
	})
}

// idleness is llm-d's score of a queue: 1 for the shortest, 0 for the longest.
func idleness(rs []Replica) func(*Replica) float64 {
	low, high := math.MaxInt, 0
	for i := range rs {
		low, high = min(low, rs[i].Waiting), max(high, rs[i].Waiting)
	}
	return func(r *Replica) float64 {
		if high == low {
			return 1
		}
		return float64(high-r.Waiting) / float64(high-low)
	}
}

// kvAware is vllm-router 0.1.17 in P/D mode. The prefill replica has the fewest uncached and booked tokens;
// ties go to the smaller load. The decode replica has the fewest requests; ties go in turn.
type kvAware struct{ turn int }

// Pick takes the smallest sum.
func (k *kvAware) Pick(q *Query, ps, ds []Replica) (p, d int) {
	for i := range ps {
		a, b := q.work(&ps[i]), q.work(&ps[p])
		if a < b || a == b && ps[i].Requests < ps[p].Requests {
			p = i
		}
	}
	d = k.turn % len(ds)
	for i := range ds {
		at := (k.turn + i) % len(ds)
		if ds[at].Requests < ds[d].Requests {
			d = at
		}
	}
	k.turn++
	return p, d
}

// work is the number of tokens to compute until the request is prefilled: queued tokens and its own.
func (q *Query) work(r *Replica) float64 { return float64(r.Tokens + q.Tokens - r.Matched) }

func requests(r *Replica) float64 { return float64(r.Requests) }

// least takes the replica with the least cost. Ties are random.
func least(q *Query, rs []Replica, cost func(*Replica) float64) int {
	return policy.Least(rs, q.Rand, cost)
}
