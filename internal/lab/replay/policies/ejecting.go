package policies

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// ejecting is another router's policy together with its protection against failing replicas: the policy does
// not see replicas that are ejected or have left. While none is ejected, nothing changes. For a policy that
// remembers replicas by index, or hashes to indices, the indices shift while a replica is ejected.
type ejecting struct {
	Picker
	detector
	alone bool // the policy's prefill list has decode replicas
	gone  [2][]bool
	tries map[*cluster.Query]int
	rnd   *rand.Rand

	near [2][]Replica // the remaining replicas of one pick
	at   [2][]int     // their indices
}

// detector says which replicas are ejected, and how often a request is tried again. i is the index on a side.
type detector interface {
	well(side cluster.Side, i int, now time.Time)   // the replica answered
	failed(side cluster.Side, i int, now time.Time) // it answered with an error, or refused the connection
	out(side cluster.Side, i int, now time.Time) bool
	again(n int, rnd *rand.Rand) (after time.Duration, ok bool) // after n failures of a request
}

func newEjecting(p Picker, d detector, c cluster.Config, alone bool, rnd *rand.Rand) *ejecting {
	e := &ejecting{Picker: p, detector: d, alone: alone, tries: map[*cluster.Query]int{}, rnd: rnd}
	for side := range e.gone {
		e.gone[side] = make([]bool, len(c.Nodes[side]))
	}
	return e
}

// Pick lets the policy pick among the remaining replicas.
func (e *ejecting) Pick(q *Query, ps, ds []Replica) (p, d int) {
	side := cluster.Prefill
	if e.alone {
		side = cluster.Decode
	}
	nearP, atP := e.left(0, side, ps, q.Now)
	nearD, atD := e.left(1, cluster.Decode, ds, q.Now)
	if len(nearP) == len(ps) && len(nearD) == len(ds) {
		return e.Picker.Pick(q, ps, ds)
	}
	inner := *q
	inner.PerToken = func(p, d int) float64 { return q.PerToken(atP[p], atD[d]) }
	p, d = e.Picker.Pick(&inner, nearP, nearD)
	if p >= 0 {
		p = atP[p]
	}
	return p, atD[d]
}

// left returns the replicas that may be picked, and their indices. If all are ejected, it returns all that
// have not left. If all have left, it returns all.
func (e *ejecting) left(slot int, side cluster.Side, rs []Replica, now time.Time) (near []Replica, at []int) {
	for _, rule := range []func(i int) bool{
		func(i int) bool { return !e.gone[side][i] && !e.out(side, i, now) },
		func(i int) bool { return !e.gone[side][i] },
		func(int) bool { return true },
	} {
		near, at = e.near[slot][:0], e.at[slot][:0]
		for i := range rs {
			if rule(i) {
				near, at = append(near, rs[i]), append(at, i)
			}
		}
		e.near[slot], e.at[slot] = near, at
		if len(near) > 0 {
			break
		}
	}
	return near, at
}

// verdict decides whether q is tried again.
func (e *ejecting) verdict(q *cluster.Query) cluster.Verdict {
	e.tries[q]++
	after, ok := e.again(e.tries[q], e.rnd)
	if !ok {
		delete(e.tries, q)
	}
	return cluster.Verdict{Again: ok, After: after}
}

// envoy is Envoy's outlier detection with its defaults. Five failures in a row eject a replica for 30 s times
// the number of its ejections, at most 300 s. A sweep runs every 10 s. At most a tenth of a pool is ejected,
// but always at least one replica. Each sweep in which a replica is not ejected lowers its number of
// ejections by one. Requests are tried three times, as in Tandem; Envoy's default is two.
type envoy struct {
	hosts [2][]envoyHost
	swept time.Time
}

type envoyHost struct {
	row, times int
	ejected    bool
	since      time.Time
}

const (
	envoyRow     = 5
	envoySweep   = 10 * time.Second
	envoyBase    = 30 * time.Second
	envoyLongest = 300 * time.Second
	envoyPercent = 10
	envoyBackoff = 25 * time.Millisecond
)

func newEnvoy(c cluster.Config) *envoy {
	e := &envoy{}
	for side := range e.hosts {
		e.hosts[side] = make([]envoyHost, len(c.Nodes[side]))
	}
	return e
}

func (e *envoy) sweep(now time.Time) {
	if e.swept.IsZero() {
		e.swept = now
	}
	for ; now.Sub(e.swept) >= envoySweep; e.swept = e.swept.Add(envoySweep) {
		at := e.swept.Add(envoySweep)
		for side := range e.hosts {
			for i := range e.hosts[side] {
				e.hosts[side][i].sweep(at)
			}
		}
	}
}

func (h *envoyHost) sweep(at time.Time) {
	switch {
	case h.ejected && at.Sub(h.since) >= min(time.Duration(h.times)*envoyBase, envoyLongest):
		h.ejected, h.row = false, 0
	case !h.ejected && h.times > 0:
		h.times--
	}
}

func (e *envoy) well(side cluster.Side, i int, now time.Time) {
	e.sweep(now)
	e.hosts[side][i].row = 0
}

func (e *envoy) failed(side cluster.Side, i int, now time.Time) {
	e.sweep(now)
	h := &e.hosts[side][i]
	if h.row++; h.row < envoyRow {
		return
	}
	h.row = 0
	out := 0
	for k := range e.hosts[side] {
		if e.hosts[side][k].ejected {
			out++
		}
	}
	if !h.ejected && (out == 0 || 100*out < envoyPercent*len(e.hosts[side])) {
		h.ejected, h.since = true, now
		h.times++
	}
}

func (e *envoy) out(side cluster.Side, i int, now time.Time) bool {
	e.sweep(now)
	return e.hosts[side][i].ejected
}

func (e *envoy) again(n int, rnd *rand.Rand) (time.Duration, bool) {
	most := min(float64(envoyBackoff)*(math.Exp2(float64(n))-1), 10*float64(envoyBackoff))
	return time.Duration(rnd.Float64() * most), n < retries.Attempts
}

// breaker is smg's circuit breaker with its defaults. It opens after ten failures in a row and is half-open
// 60 s later. Then three successes close it, and one failure opens it again. A request is tried again five
// times.
type breaker struct{ hosts [2][]circuit }

type circuit struct {
	row, good int
	open      bool // or half-open
	since     time.Time
}

const (
	breakerRow     = 10
	breakerGood    = 3
	breakerOpen    = 60 * time.Second
	breakerTries   = 5
	breakerBackoff = 50 * time.Millisecond
	breakerFactor  = 1.5
	breakerLongest = 30 * time.Second
	breakerJitter  = 0.2
)

func newBreaker(c cluster.Config) *breaker {
	b := &breaker{}
	for side := range b.hosts {
		b.hosts[side] = make([]circuit, len(c.Nodes[side]))
	}
	return b
}

func (b *breaker) well(side cluster.Side, i int, now time.Time) {
	h := &b.hosts[side][i]
	h.row = 0
	if h.open && !b.out(side, i, now) {
		if h.good++; h.good >= breakerGood {
			*h = circuit{}
		}
	}
}

func (b *breaker) failed(side cluster.Side, i int, now time.Time) {
	h := &b.hosts[side][i]
	h.row++
	if half := h.open && !b.out(side, i, now); half || !h.open && h.row >= breakerRow {
		*h = circuit{open: true, since: now}
	}
}

func (b *breaker) out(side cluster.Side, i int, now time.Time) bool {
	h := &b.hosts[side][i]
	return h.open && now.Sub(h.since) < breakerOpen
}

func (b *breaker) again(n int, rnd *rand.Rand) (time.Duration, bool) {
	wait := min(float64(breakerBackoff)*math.Pow(breakerFactor, float64(n-1)), float64(breakerLongest))
	return time.Duration(wait * (1 - breakerJitter + 2*breakerJitter*rnd.Float64())), n <= breakerTries
}

var _ cluster.Survivor = (*Field)(nil)

// Failed releases the request's bookings. The detector decides whether to try again.
func (f *Field) Failed(q *cluster.Query, x cluster.Failure, now time.Time) cluster.Verdict {
	b := &f.placed[q.Slot]
	b.computed()
	if x.Leg == cluster.Prefill {
		f.sides[cluster.Prefill][b.p].end(q.Tokens)
	}
	f.sides[cluster.Decode][b.d].end(q.Tokens)
	f.sides[cluster.Decode][b.d].promise(q, -1)
	f.guard.failed(x.Leg, x.Replica, now)
	return f.guard.verdict(q)
}

// Member shows a replica to the policy or hides it. A replica that comes back has an empty cache.
func (f *Field) Member(side cluster.Side, i int, here bool, _ time.Time) {
	f.guard.gone[side][i] = !here
	if ix := f.index[side]; ix != nil {
		ix.Forget(kv.Holder(i))
	}
}
