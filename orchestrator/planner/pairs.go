package planner

import (
	"fmt"
	"slices"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/prefill"
	"github.com/tandem-router/tandem/scoring"
)

// pairs is what holds for each prefill replica together with each decode replica: whether they can work
// together, and how long a byte takes between them. It is made again when a member list or the policy
// changes. Guarded by Planner.mu.
type pairs struct {
	prefill *prefill.View
	decode  *decode.View
	rates   scoring.PairRates  // by prefill slot and decode slot
	learned scoring.PairRates  // the same by what was learned, where rates is not and somebody wants to know
	slots   map[replica.ID]int // of the replicas of both views
	// Some prefill replica has adapters: whether a pair works together hangs on the request's model, too.
	adapters bool

	links    map[Pairing]*link
	slow     map[Pairing]*link     // those of them that are believed to be slower than the policy has them
	now      time.Time             // as of which they are believed
	engines  map[replica.ID]engine // whose links they are, as of the newest table
	handover scoring.Handover      // of all pairs
}

func newPairs() pairs { return pairs{links: map[Pairing]*link{}, slow: map[Pairing]*link{}} }

// refresh brings the table up to the given views.
func (t *pairs) refresh(pv *prefill.View, dv *decode.View, policy *Policy) {
	if t.prefill == pv && t.decode == dv {
		return
	}
	t.renameLinks(pv, dv)
	t.prefill, t.decode = pv, dv
	t.slots = make(map[replica.ID]int, len(pv.Replicas)+len(dv.Replicas))
	t.adapters = slices.ContainsFunc(pv.Replicas,
		func(r *replica.Replica) bool { return len(r.Facts.AdapterRoots) > 0 })
	for _, view := range []*prefill.View{pv, dv} {
		for i, r := range view.Replicas {
			t.slots[r.ID] = i
		}
	}
	if len(t.links) > 4*len(t.prefill.Replicas)*len(t.decode.Replicas)+64 {
		t.dropLeft()
	}
	t.fill(&t.rates, policy, policy.Calibration == CalibrateOn)
	if policy.Calibration == CalibrateShadow {
		t.fill(&t.learned, policy, true)
	}
}

// fill makes the rates of all pairs, as learned or as the policy has them.
func (t *pairs) fill(rates *scoring.PairRates, policy *Policy, learned bool) {
	rates.Reset(len(t.decode.Replicas))
	for _, p := range t.prefill.Replicas {
		for _, d := range t.decode.Replicas {
			rates.Add(t.rate(p, d, policy, learned))
		}
	}
}

// stale makes the next refresh build the table again.
func (t *pairs) stale() { t.prefill, t.decode = nil, nil }

// renameLinks keeps what was learned of replicas that have another name in the given views.
func (t *pairs) renameLinks(pv *prefill.View, dv *decode.View) {
	was := t.engines
	t.engines = enginesOf(pv.Replicas, dv.Replicas)
	renames := replica.RenamesOf(was, t.engines)
	if len(renames) == 0 {
		return
	}
	rename := func(was Pairing) (Pairing, bool) {
		p, one := renames.Now(was.Prefill)
		d, other := renames.Now(was.Decode)
		return Pairing{p, d}, one && other
	}
	t.links, t.slow = replica.Rekey(t.links, rename), replica.Rekey(t.slow, rename)
}

// engine tells a replica from the others of both pools, whatever it is called.
type engine struct {
	role replica.Role
	url  string
	rank int
}

func enginesOf(views ...[]*replica.Replica) map[replica.ID]engine {
	engines := map[replica.ID]engine{}
	for _, view := range views {
		for _, r := range view {
			if r.URL != "" {
				engines[r.ID] = engine{r.Role, r.URL, r.Rank}
			}
		}
	}
	return engines
}

// dropLeft forgets the links of replicas that have left. What was learned of those that stay stays.
func (t *pairs) dropLeft() {
	for pair := range t.links {
		if t.at(pair) < 0 {
			delete(t.links, pair)
			delete(t.slow, pair)
		}
	}
}

// rate returns the seconds a byte from p to d, as learned or as the policy has it, below zero if they cannot
// work together.
func (t *pairs) rate(p, d *replica.Replica, policy *Policy, learned bool) float64 {
	if incompatible(p, d) != "" {
		return -1
	}
	if !learned {
		return policy.seed(p, d)
	}
	pair := Pairing{p.ID, d.ID}
	return t.believe(pair, t.links[pair], policy.seed(p, d))
}

// believe returns the seconds a byte that are believed of l, and keeps account of which links are slow: they
// may have been away, or come from the process before.
func (t *pairs) believe(pair Pairing, l *link, seed float64) float64 {
	perByte := l.perByte(seed, t.now)
	if perByte > seed*slower {
		t.slow[pair] = l
	} else {
		delete(t.slow, pair)
	}
	return perByte
}

// transferred is a transfer that is done. Times are seconds.
type transferred struct {
	bytes  float64
	took   float64 // from when the request was sent until a step could begin with it
	behind float64 // of these, as predicted, for blocks of others to the same replica
}

// learn takes in a transfer from p to d. Others that were on their way take their part of its time, by how
// long all of them were predicted to take, whether an engine moves them one after the other or all at once.
// What took less than is predicted for handing over was fast all the same.
func (t *pairs) learn(p, d *replica.Replica, policy *Policy, x transferred) {
	pair, seed := Pairing{p.ID, d.ID}, policy.seed(p, d)
	l := t.links[pair]
	if l == nil {
		l = &link{}
		t.links[pair] = l
	}
	own, setup := x.bytes*l.perByte(seed, t.now), policy.Setup.Seconds()
	t.handover.Learn(setup, x.took, own+x.behind)
	moved := x.took - t.handover.Seconds(setup)
	if moved <= 0 {
		moved = x.took / 2
	}
	l.learn(seed, x.bytes, moved*own/(own+x.behind), t.now)
	t.show(pair, l, seed, policy)
}

// show puts what is believed of a link into the table that has what was learned.
func (t *pairs) show(pair Pairing, l *link, seed float64, policy *Policy) {
	perByte := t.believe(pair, l, seed)
	rates := &t.rates
	switch policy.Calibration {
	case CalibrateOff:
		return
	case CalibrateShadow:
		rates = &t.learned
	}
	if at := t.at(pair); at >= 0 && rates.PerByte[at] >= 0 {
		rates.Set(at, perByte)
	}
}

// ease brings what is believed of slow links up to now, every second.
func (t *pairs) ease(policy *Policy, now time.Time) {
	if now.Sub(t.now) < time.Second {
		return
	}
	t.now = now
	for pair, l := range t.slow {
		at := t.at(pair)
		if at < 0 {
			delete(t.slow, pair)
			continue
		}
		n := len(t.decode.Replicas)
		t.show(pair, l, policy.seed(t.prefill.Replicas[at/n], t.decode.Replicas[at%n]), policy)
	}
}

// at returns the place of the pair in the table, -1 if it is not there.
func (t *pairs) at(pair Pairing) int {
	if t.prefill == nil {
		return -1
	}
	i, known := t.slots[pair.Prefill]
	j, both := t.slots[pair.Decode]
	if known && both && i < len(t.prefill.Replicas) && j < len(t.decode.Replicas) &&
		t.prefill.Replicas[i].ID == pair.Prefill && t.decode.Replicas[j].ID == pair.Decode {
		return i*len(t.decode.Replicas) + j
	}
	return -1
}

// incompatible returns why KV blocks of p mean nothing to d: the parts of vLLM's own compatibility check that
// we can see. What is unknown is taken to fit. An engine that stands in both pools hands nothing over to
// itself: it has the blocks, and would compute the prompt beside its own decoding to no end.
func incompatible(p, d *replica.Replica) string {
	if p.URL != "" && p.SameEngine(d) {
		return "they are one engine"
	}
	a, b := &p.Facts, &d.Facts
	for _, x := range [...]struct{ what, p, d string }{
		{"model roots", a.Root, b.Root},
		{"versions", a.Version, b.Version},
		{"KV cache types", a.CacheDType, b.CacheDType},
		{"connectors", a.Connector, b.Connector},
	} {
		if x.p != x.d && x.p != "" && x.d != "" {
			return fmt.Sprintf("different %s: %s and %s", x.what, x.p, x.d)
		}
	}
	if a.BlockSize != b.BlockSize && a.BlockSize > 0 && b.BlockSize > 0 {
		return fmt.Sprintf("different block sizes: %d and %d", a.BlockSize, b.BlockSize)
	}
	return ""
}

// seed returns the seconds a byte that the policy gives for the path from p to d.
func (p *Policy) seed(from, to *replica.Replica) float64 {
	a, b := from.Place, to.Place
	if a.Host == "" && b.Host == "" && from.Host != "" && from.Host == to.Host {
		return 1 / p.Links[replica.SameHost]
	}
	return 1 / p.Links[a.LinkTo(b)]
}
