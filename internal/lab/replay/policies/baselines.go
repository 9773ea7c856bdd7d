package policies

import (
	"math"
	"time"
)

// hold as a prefill choice keeps a request at the router, where it is asked for again when an answer or a
// report has come.
const hold = -2

// vllmDP is vLLM's own balancing between data-parallel ranks: four times the waiting and once the running
// requests by the last report, with those sent since as waiting ones; the same on both sides.
type vllmDP struct{ waiting float64 }

func defaultVLLMDP() *vllmDP { return &vllmDP{waiting: 4} }

func (x *vllmDP) params() []Param {
	return []Param{
		{"waiting", &x.waiting, "weight of a waiting request; a running one weighs 1", []float64{1, 2, 4, 8, 16}},
	}
}

// Pick adds.
func (x *vllmDP) Pick(q *Query, ps, ds []Replica) (p, d int) {
	score := func(r *Replica) float64 { return x.waiting*float64(r.Waiting+r.Since) + float64(r.Running) }
	return least(q, ps, score), least(q, ds, score)
}

// conductor is Mooncake's: the least predicted time to first token, queue and own prefill by the profile;
// decode by the least predicted time between tokens. Its copies between prefill replicas are left out, since
// vLLM has no such thing: the threshold from which on it copies is infinite.
type conductor struct{}

// Pick predicts.
func (conductor) Pick(q *Query, ps, ds []Replica) (p, d int) {
	p = least(q, ps,
		func(r *Replica) float64 { return r.Work.Seconds() + r.Speed.Prefill(q.Tokens-r.Matched, r.Matched) })
	return p, least(q, ds, func(r *Replica) float64 { return q.tpot(r) })
}

// tpot is the predicted step with the request in the batch.
func (q *Query) tpot(r *Replica) float64 { return r.Speed.Step(r.Requests+1, r.Prompts+q.Tokens) }

// aibrixConductor is AIBrix's variant of it, in milliseconds with its constants: requests there times the
// mean prefill, a transfer and a prefill by lengths. Decode is AIBrix's default; its own variant for decode
// is the time a token takes there, whoever it is for, with one more request in the batch, half as much again
// from 90 % of KV in use on: the busiest replica gives tokens fastest, so that all goes there.
type aibrixConductor struct {
	prefill float64 // ms of a token to the power of 1.5
	decode  float64 // not 0: its own variant
	rest    aibrix
	mean    float64 // ms
	seen    float64
}

func defaultAIBrixConductor() *aibrixConductor { return &aibrixConductor{prefill: 0.001} }

func (x *aibrixConductor) params() []Param {
	return []Param{
		{
			"prefill", &x.prefill, "ms that an uncached token to the power of 1.5 takes",
			[]float64{0.0003, 0.001, 0.003, 0.01, 0.03},
		},
		{"decode", &x.decode, "1 for its own choice of decode, too", nil},
	}
}

// Pick adds milliseconds.
func (x *aibrixConductor) Pick(q *Query, ps, ds []Replica) (p, d int) {
	p = least(q, ps, func(r *Replica) float64 {
		cost := float64(r.Requests)*x.mean + x.prefill*math.Pow(float64(q.Tokens-r.Matched), 1.5) + 5
		if r.Matched > 0 {
			cost += 0.005*float64(r.Matched) + 1
		}
		return cost
	})
	x.seen++
	x.mean += (1e3*ps[p].Speed.Prefill(q.Tokens-ps[p].Matched, ps[p].Matched) - x.mean) / x.seen
	if x.decode == 0 {
		return p, x.rest.decode(q, ds)
	}
	return p, least(q, ds, conductorDecode)
}

// conductorDecode is milliseconds; where no token has come yet, 20 is taken for one.
func conductorDecode(r *Replica) float64 {
	n, token := float64(max(r.Requests, 1)), 20.0
	if r.Requests > 0 {
		token = 1e3 * r.Speed.Step(r.Requests, r.Prompts) / n
	}
	token *= 1 + 1/n
	if r.Usage > 0.9 {
		token *= 1.5
	}
	return token
}

// preble is Preble's E2 for the prefill side: follow the longest match where it is more than what is left,
// else the least load of the last minutes with the request on top; where loads are too unequal, what would
// follow to the most loaded goes to the least loaded. Load is prefill seconds, since nothing is decoded
// there. Its term for what would be evicted is left out: no router is told what that will be. Decode by
// count.
type preble struct {
	times, share, window float64
	sent                 []sending
	// Of the window; whole numbers, so that it is zero again when all is old.
	load []time.Duration
}

// sending is one request that preble has placed.
type sending struct {
	at   time.Time
	p    int
	work time.Duration
}

func defaultPreble() *preble { return &preble{times: 1.5, share: 0.5, window: 180} }

func (x *preble) params() []Param {
	return []Param{
		{"window", &x.window, "seconds that load counts", []float64{5, 15, 30, 60, 180}},
		{"times", &x.times, "factor by which loads may differ", nil},
		{"share", &x.share, "of the prompt from which on a match is followed", nil},
	}
}

// Pick exploits or explores.
func (x *preble) Pick(q *Query, ps, ds []Replica) (p, d int) {
	x.forget(q.Now, len(ps))
	own := func(i int) time.Duration {
		return time.Duration(1e9 * ps[i].Speed.Prefill(q.Tokens-ps[i].Matched, ps[i].Matched))
	}
	low, high := 0, 0
	for i := range ps {
		if x.load[i] < x.load[low] {
			low = i
		}
		if x.load[i] > x.load[high] {
			high = i
		}
	}
	p = least(q, ps, func(r *Replica) float64 { return -float64(r.Matched) })
	switch {
	case float64(ps[p].Matched) > x.share*float64(q.Tokens):
		if p == high && float64(x.load[high]) > x.times*float64(x.load[low]) {
			p = low
		}
	default:
		p = low
		for i := range ps {
			if x.load[i]+own(i) < x.load[p]+own(p) {
				p = i
			}
		}
	}
	x.sent = append(x.sent, sending{q.Now, p, own(p)})
	x.load[p] += own(p)
	return p, least(q, ds, requests)
}

// forget takes what is older than the window off the loads.
func (x *preble) forget(now time.Time, n int) {
	for len(x.load) < n {
		x.load = append(x.load, 0)
	}
	old := 0
	for old < len(x.sent) && now.Sub(x.sent[old].at).Seconds() > x.window {
		x.load[x.sent[old].p] -= x.sent[old].work
		old++
	}
	x.sent = x.sent[old:]
}

// bailian draws a replica in proportion to a weighted sum of cached share, few requests and few tokens, each
// stretched over the spread between the replicas; the same on both sides.
type bailian struct{ hit float64 }

func defaultBailian() *bailian { return &bailian{hit: 0.7} }

func (x *bailian) params() []Param {
	return []Param{{
		"hit", &x.hit, "weight of cached tokens; requests and tokens share what it lacks to 1",
		[]float64{0.5, 0.6, 0.7, 0.8, 0.9},
	}}
}

// Pick draws.
func (x *bailian) Pick(q *Query, ps, ds []Replica) (p, d int) {
	p = x.draw(q, ps, func(r *Replica) float64 { return q.work(r) })
	return p, x.draw(q, ds, func(r *Replica) float64 { return float64(r.Prompts) })
}

func (x *bailian) draw(q *Query, rs []Replica, tokens func(*Replica) float64) int {
	hit := stretched(rs, func(r *Replica) float64 { return float64(r.Matched) })
	few := stretched(rs, func(r *Replica) float64 { return -float64(r.Requests) })
	light := stretched(rs, func(r *Replica) float64 { return -tokens(r) })
	score := func(i int) float64 { return x.hit*hit(i) + (1-x.hit)/2*(few(i)+light(i)) }
	sum := 0.0
	for i := range rs {
		sum += score(i)
	}
	at := q.Rand.Float64() * sum
	for i := range rs {
		if at -= score(i); at < 0 {
			return i
		}
	}
	return len(rs) - 1
}

// stretched maps a value to 0..1 between the least and the most of all; to 1 where all are equal.
func stretched(rs []Replica, value func(*Replica) float64) func(int) float64 {
	low, high := math.Inf(1), math.Inf(-1)
	for i := range rs {
		low, high = min(low, value(&rs[i])), max(high, value(&rs[i]))
	}
	return func(i int) float64 {
		if high <= low {
			return 1
		}
		return (value(&rs[i]) - low) / (high - low)
	}
}

// polyServe takes the most loaded replica that still keeps the SLO by the profile, so that others stay free;
// any where none does.
type polyServe struct{ ttft, tpot float64 }

func defaultPolyServe() *polyServe { return &polyServe{ttft: 5, tpot: 0.1} }

func (x *polyServe) params() []Param {
	return []Param{
		{"ttft", &x.ttft, "seconds to the first token", []float64{0.5, 1, 2, 5, 10}},
		{"tpot", &x.tpot, "seconds from token to token", nil},
	}
}

// Pick packs.
func (x *polyServe) Pick(q *Query, ps, ds []Replica) (p, d int) {
	p = fullest(q, ps, x.ttft,
		func(r *Replica) float64 { return r.Work.Seconds() + r.Speed.Prefill(q.Tokens-r.Matched, r.Matched) })
	return p, fullest(q, ds, x.tpot, func(r *Replica) float64 {
		if r.Prompts+q.Tokens > r.Capacity {
			return math.Inf(1)
		}
		return q.tpot(r)
	})
}

// fullest takes the largest value within the limit, any where all are beyond.
func fullest(q *Query, rs []Replica, limit float64, value func(*Replica) float64) int {
	best := least(q, rs, func(r *Replica) float64 {
		if v := value(r); v <= limit {
			return -v
		}
		return 1
	})
	if value(&rs[best]) > limit {
		return q.Rand.IntN(len(rs))
	}
	return best
}

// retry is P/D-Serve's on-demand forwarding: a prefill replica takes a request only while it has a free slot;
// where none has, the request stays at the router and tries again. Of those with a slot it takes the one with
// the fewest requests; decode by count. Here a rejection costs no message.
type retry struct{ slots float64 }

func defaultRetry() *retry { return &retry{slots: 1} }

func (x *retry) params() []Param {
	return []Param{
		{"slots", &x.slots, "requests that a prefill replica takes at once", []float64{1, 2, 4, 8, 16}},
	}
}

// Pick asks for a slot.
func (x *retry) Pick(q *Query, ps, ds []Replica) (p, d int) {
	if p = least(q, ps, requests); requests(&ps[p]) >= x.slots {
		return hold, 0
	}
	return p, least(q, ds, requests)
}

// push is SkyWalker's selective pushing: only replicas without pending work are candidates, of these the one
// with the longest match; the others wait at the router, first come, first served. Decode by count.
type push struct{ pending float64 }

func defaultPush() *push { return &push{pending: 8192} }

func (x *push) params() []Param {
	return []Param{{
		"pending", &x.pending,
		"tokens sent and not computed from which on a replica has pending work; a step has 8,192",
		[]float64{1, 2048, 8192, 16_384, 65_536},
	}}
}

// Pick pushes to whoever is free.
func (x *push) Pick(q *Query, ps, ds []Replica) (p, d int) {
	free := func(r *Replica) bool { return float64(r.Tokens) < x.pending }
	p = least(q, ps, func(r *Replica) float64 {
		if !free(r) {
			return math.Inf(1)
		}
		return float64(r.Tokens) - 1e9*float64(r.Matched)
	})
	if !free(&ps[p]) {
		return hold, 0
	}
	return p, least(q, ds, requests)
}

// netKV takes the prefill replica with the least to compute, and then the decode replica to which the blocks
// that it lacks come soonest, by the speed of the path, with a step of its batch on top.
type netKV struct{ transfer float64 }

func defaultNetKV() *netKV { return &netKV{transfer: 1} }

func (x *netKV) params() []Param {
	return []Param{{
		"transfer", &x.transfer, "weight of the seconds of the transfer; those of a step weigh 1",
		[]float64{0.1, 0.3, 1, 3, 10},
	}}
}

// Pick takes the way into account.
func (x *netKV) Pick(q *Query, ps, ds []Replica) (p, d int) {
	p = least(q, ps, q.work)
	best := math.Inf(1)
	for i := range ds {
		r := &ds[i]
		cost := x.transfer*float64(q.Tokens-r.Matched)*q.PerToken(p, i) + q.tpot(r)
		if r.Prompts+q.Tokens > r.Capacity {
			cost += 1e3 // no room: only if nobody has
		}
		if cost < best {
			best, d = cost, i
		}
	}
	return p, d
}
