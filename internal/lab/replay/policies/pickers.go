package policies

import (
	"math"

	"github.com/tandem-router/tandem/orchestrator/policy"
)

// The policies. Formulas and defaults are those of docs/replay.md's sources; each takes the same rule on both
// sides unless it says otherwise.

type random struct{}

// Pick takes any.
func (random) Pick(q *Query, ps, ds []Replica) (p, d int) {
	return q.Rand.IntN(len(ps)), q.Rand.IntN(len(ds))
}

type roundRobin struct{ p, d int }

// Pick takes the next.
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

// Pick takes the fewest tokens to compute, and to decode the fewest tokens of prompts.
func (leastTokens) Pick(q *Query, ps, ds []Replica) (p, d int) {
	return least(q, ps, q.work), least(q, ds, func(r *Replica) float64 { return float64(r.Prompts) })
}

// sticky is production-stack's session routing. The trace of conversations has no sessions: there the
// prompt's head stands for one.
type sticky struct{ head float64 }

func defaultSticky() *sticky { return &sticky{head: 1024} }

func (s *sticky) params() []Param {
	return []Param{{
		"head", &s.head,
		"tokens that stand for a session where there is none; two blocks of the trace of conversations",
		[]float64{512, 1024, 1536, 2048, 4096},
	}}
}

// Pick hashes.
func (s *sticky) Pick(q *Query, ps, ds []Replica) (p, d int) {
	key := q.Session
	if key == 0 {
		key = q.head(int(s.head))
	}
	return rendezvous(key, len(ps)), rendezvous(key, len(ds))
}

// rendezvous gives each key its replica, for any number of replicas.
func rendezvous(key uint64, n int) int {
	best := 0
	for i := range n {
		if policy.Drawn(key, uint64(i)) > policy.Drawn(key, uint64(best)) {
			best = i
		}
	}
	return best
}

// lmetric is (Q + u) * (B + 1), without parameters; decode by the same product, where u is the prompt's
// tokens.
type lmetric struct{}

// Pick multiplies.
func (lmetric) Pick(q *Query, ps, ds []Replica) (p, d int) {
	p = least(q, ps, func(r *Replica) float64 { return q.work(r) * float64(r.Requests+1) })
	return p,
		least(q, ds, func(r *Replica) float64 { return float64(r.Prompts+q.Tokens) * float64(r.Requests+1) })
}

// llmd is llm-d's P/D profile: share of matched blocks 2, queue by the last report 1, random among the best;
// decode is chosen first, and prefill skipped where decode has to compute fewer than 16 tokens.
type llmd struct{ prefix, queue, local float64 }

func defaultLLMD() *llmd { return &llmd{prefix: 2, queue: 1, local: 16} }

func (l *llmd) params() []Param {
	return []Param{
		{"prefix", &l.prefix, "weight of the share of matched tokens", []float64{1, 2, 4, 10, 20}},
		{"queue", &l.queue, "weight of the queue, as a share of the spread between the replicas", nil},
		{"local", &l.local, "uncached tokens below which decode prefills by itself", nil},
	}
}

// Pick scores.
func (l *llmd) Pick(q *Query, ps, ds []Replica) (p, d int) {
	if d = l.best(q, ds); float64(q.Tokens-ds[d].Matched) < l.local {
		return -1, d
	}
	return l.best(q, ps), d
}

func (l *llmd) best(q *Query, rs []Replica) int {
	low, high := math.MaxInt, 0
	for i := range rs {
		low, high = min(low, rs[i].Waiting), max(high, rs[i].Waiting)
	}
	return least(q, rs, func(r *Replica) float64 {
		queue := 1.0
		if high > low {
			queue = float64(high-r.Waiting) / float64(high-low)
		}
		return -(l.prefix*float64(r.Matched)/float64(q.Tokens) + l.queue*queue)
	})
}

// kvAware is vllm-router 0.1.17 in P/D mode: prefill by uncached tokens and those in its ledger, ties by
// load; decode by count, ties in turn.
type kvAware struct{ turn int }

// Pick adds.
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

// work is the tokens to compute until the request is prefilled: queued ones and its own.
func (q *Query) work(r *Replica) float64 { return float64(r.Tokens + q.Tokens - r.Matched) }

func requests(r *Replica) float64 { return float64(r.Requests) }

// least takes the smallest, by chance among equals.
func least(q *Query, rs []Replica, cost func(*Replica) float64) int {
	return policy.Least(rs, q.Rand, cost)
}
