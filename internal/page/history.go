package page

import (
	"math"
	"sync"
	"time"
)

// How long and how finely [History] remembers.
const (
	HistoryStep   = 10 * time.Second
	HistoryPoints = 360 // an hour
)

// History keeps the last hour of a router: a point for each [HistoryStep], of all requests and of each
// replica. Its memory has a bound: 10 kB a replica and 25 kB for the whole.
//
// Safe for concurrent use.
type History struct {
	mu       sync.Mutex // guards the following
	closed   time.Time  // when the newest point was, zero before the first
	open     current    // of the point that is being made
	fleet    ring[fleetPoint]
	replicas map[string]*replicaPast
}

// Ended is a request that has ended, as the history counts it. Unknown times and tokens are -1.
type Ended struct {
	Prefill, Decode string // replicas; Prefill is empty where the request was not split
	Failed          bool
	Split           bool
	First           float64 // TTFT in ms, of streams
	Token           float64 // ITL in ms, of streams
	Prompt          int     // in tokens; the next two: cached on the best replica, and as the engine reported
	Available       int
	Delivered       int
}

// fleetPoint is one step of all requests. Unknown numbers are NaN.
type fleetPoint struct {
	requests, failed, split      uint32
	prompt, available, delivered uint32 // thousands of tokens would do; 2^32 tokens do not come in 10 s
	first, token                 [3]float32
	missed                       bool // nothing is known of the step
	prefillKV, decodeKV          float32
}

// replicaPoint is one step of a replica.
type replicaPoint struct {
	// Unknown is unknownCount. KV is the share of blocks in use, in thousandths.
	kv, running, waiting, requests, failed uint16

	first [2]float32 // p50 and p90
	token float32    // p50
}

const unknownCount = math.MaxUint16

// replicaPast is the kept history of a replica.
type replicaPast struct {
	open   current
	points ring[replicaPoint]
}

// current is the counts since the newest point.
type current struct {
	requests, failed, split      int
	prompt, available, delivered int
	first, token                 histogram
}

// ring keeps the newest [HistoryPoints] values.
type ring[P any] struct {
	points []P
	next   int // where the next one goes, once there are as many as are kept
}

func (r *ring[P]) push(p P) {
	if r.points == nil {
		r.points = make([]P, 0, HistoryPoints)
	}
	if len(r.points) < HistoryPoints {
		r.points = append(r.points, p)
		return
	}
	r.points[r.next] = p
	r.next = (r.next + 1) % HistoryPoints
}

// at returns a point by its number, from the oldest on.
func (r *ring[P]) at(i int) *P { return &r.points[(r.next+i)%len(r.points)] }

// NewHistory returns one in which nothing has happened.
func NewHistory() *History { return &History{replicas: map[string]*replicaPast{}} }

// Add adds a request that has ended.
func (h *History) Add(e Ended) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open.add(&e)
	for _, name := range [...]string{e.Prefill, e.Decode} {
		if name == "" {
			continue
		}
		r := h.replicas[name]
		if r == nil {
			r = &replicaPast{}
			h.replicas[name] = r
		}
		r.open.add(&e)
	}
}

func (c *current) add(e *Ended) {
	c.requests++
	if e.Failed {
		c.failed++
	}
	if e.Split {
		c.split++
	}
	c.first.add(e.First)
	c.token.add(e.Token)
	if e.Available >= 0 && e.Delivered >= 0 {
		c.prompt += e.Prompt
		c.available += e.Available
		c.delivered += e.Delivered
	}
}

// Close ends a step at now, at which these are the replicas. Steps that were missed, since the process stood
// still, are points without known values. A replica that is not among them is forgotten.
func (h *History) Close(now time.Time, replicas []Replica) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closed.IsZero() {
		missed := int(math.Round(float64(now.Sub(h.closed))/float64(HistoryStep))) - 1
		for range min(missed, HistoryPoints) {
			p := (&current{}).point(nil)
			p.missed = true
			h.fleet.push(p)
			for _, r := range h.replicas {
				r.points.push(missedPoint())
			}
		}
	}
	h.closed = now
	h.fleet.push(h.open.point(replicas))
	h.open = current{}
	h.closeReplicas(replicas)
}

func (h *History) closeReplicas(replicas []Replica) {
	kept := make(map[string]*replicaPast, len(replicas))
	for i := range replicas {
		r := &replicas[i]
		past := h.replicas[r.Name]
		if past == nil {
			past = &replicaPast{}
		}
		past.points.push(past.open.of(r))
		past.open = current{}
		kept[r.Name] = past
	}
	h.replicas = kept
}

// point makes a point of the counts, with the mean KV use of each pool.
func (c *current) point(replicas []Replica) fleetPoint {
	p := fleetPoint{
		requests: uint32(c.requests), failed: uint32(c.failed), split: uint32(c.split),
		prompt: uint32(c.prompt), available: uint32(c.available), delivered: uint32(c.delivered),
		prefillKV: meanKV(replicas, "prefill"), decodeKV: meanKV(replicas, "decode"),
	}
	for i, q := range [...]float64{0.5, 0.9, 0.99} {
		p.first[i] = c.first.quantile(q)
		p.token[i] = c.token.quantile(q)
	}
	return p
}

func meanKV(replicas []Replica, pool string) float32 {
	sum, n := 0.0, 0
	for i := range replicas {
		if r := &replicas[i]; r.Pool == pool && r.Up && r.Usage >= 0 {
			sum += r.Usage
			n++
		}
	}
	return float32(sum / float64(n)) // 0/0 is NaN
}

// of makes a point of a replica.
func (c *current) of(r *Replica) replicaPoint {
	p := replicaPoint{
		kv: unknownCount, running: small(r.Running), waiting: small(r.Waiting), requests: small(c.requests),
		failed: small(c.failed), token: c.token.quantile(0.5),
	}
	p.first = [2]float32{c.first.quantile(0.5), c.first.quantile(0.9)}
	if r.Usage >= 0 {
		p.kv = uint16(1000 * min(r.Usage, 1))
	}
	return p
}

// missedPoint is a point without known values.
func missedPoint() replicaPoint {
	p := (&current{}).of(&Replica{Usage: -1, Running: -1, Waiting: -1})
	p.requests, p.failed = unknownCount, unknownCount
	return p
}

// small is a count, unknownCount of one below 0.
func small(n int) uint16 {
	if n < 0 {
		return unknownCount
	}
	return uint16(min(n, unknownCount-1))
}

// number is a count for people, NaN of one that is unknown.
func number(n uint16) float32 {
	if n == unknownCount {
		return float32(math.NaN())
	}
	return float32(n)
}

// histogram counts times in ms, in classes. Each class ends 8 % above the class before it.
type histogram [160]uint32

const (
	shortest = 0.5 // ms; the first class ends there
	wider    = 1.08
)

// add counts a time. One below 0 is unknown.
func (h *histogram) add(ms float64) {
	if !(ms >= 0) {
		return
	}
	class := 0
	if ms > shortest {
		class = min(int(math.Ceil(math.Log(ms/shortest)/math.Log(wider))), len(h)-1)
	}
	h[class]++
}

// quantile returns the middle of the class that the quantile q lies in, NaN of nothing.
func (h *histogram) quantile(q float64) float32 {
	total := uint32(0)
	for _, n := range h {
		total += n
	}
	if total == 0 {
		return float32(math.NaN())
	}
	rank, seen := uint32(q*float64(total)), uint32(0)
	for class, n := range h {
		if seen += n; seen > rank {
			return float32(shortest * math.Pow(wider, float64(class)-0.5))
		}
	}
	return float32(shortest * math.Pow(wider, float64(len(h))))
}

// Sums counts the requests of the newest steps, and how many requests were split. steps is how many steps to
// sum. full is false where there have not been as many steps yet.
func (h *History) Sums(steps int) (requests, split int, full bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.fleet.points)
	for i := max(0, n-steps); i < n; i++ {
		requests += int(h.fleet.at(i).requests)
		split += int(h.fleet.at(i).split)
	}
	return requests, split, n >= steps
}
