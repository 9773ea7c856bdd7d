package planner

import (
	"fmt"
	"slices"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/prefill"
	"github.com/tandem-router/tandem/scoring"
)

// pairs is the table of all pairs of a prefill and a decode replica: whether the two can work together, and
// the seconds per byte between them. The table is built again when a member list or the policy changes.
// Guarded by Planner.mu.
type pairs struct {
	policy  *policyInForce
	prefill *prefill.View
	decode  *decode.View
	rates   scoring.PairRates  // by prefill slot and decode slot
	slots   map[replica.ID]int // of the replicas of both views
	// Some prefill replica has adapters: whether a pair works together hangs on the request's model, too.
	adapters bool

	links    links
	engines  map[replica.ID]engine // the owners of the links, as of the newest table
	handover estimate.Handover     // of all pairs
}

func newPairs(policy *policyInForce) *pairs { return &pairs{policy: policy, links: newLinks()} }

// refresh brings the table up to the given views.
func (t *pairs) refresh(pv *prefill.View, dv *decode.View) {
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
	if len(t.links.of) > 4*len(t.prefill.Replicas)*len(t.decode.Replicas)+64 {
		t.dropLeft()
	}
	t.fill()
}

// fill makes the rates of all pairs.
func (t *pairs) fill() {
	t.links.filled(&t.policy.Links)
	t.rates.Reset(len(t.decode.Replicas))
	for _, p := range t.prefill.Replicas {
		for _, d := range t.decode.Replicas {
			t.rates.Add(t.rate(p, d))
		}
	}
}

// stale makes the next refresh build the table again.
func (t *pairs) stale() { t.prefill, t.decode = nil, nil }

// renameLinks keeps the learned links of replicas that have another name in the given views.
func (t *pairs) renameLinks(pv *prefill.View, dv *decode.View) {
	was := t.engines
	t.engines = enginesOf(pv.Replicas, dv.Replicas)
	renames := replica.RenamesOf(was, t.engines)
	if len(renames) == 0 {
		return
	}
	t.links.rename(func(was Pairing) (Pairing, bool) { return was.Now(renames) })
}

// engine identifies a replica of either pool apart from its name.
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

// dropLeft drops the links of replicas that have left. Links of the other replicas keep their estimates.
func (t *pairs) dropLeft() {
	for pair := range t.links.of {
		if t.at(pair) < 0 {
			t.links.drop(pair)
		}
	}
}

// rate returns the estimated seconds per byte from p to d, below zero if they cannot work together.
func (t *pairs) rate(p, d *replica.Replica) float64 {
	if Incompatible(p, d) != "" {
		return -1
	}
	return t.links.perByte(Pairing{Prefill: p.ID, Decode: d.ID}, kindOf(p, d), t.policy.seed(p, d))
}

// show enters the estimate of a link into the table.
func (t *pairs) show(pair Pairing, kind replica.Link, configured float64) {
	perByte := t.links.perByte(pair, kind, configured)
	if at := t.at(pair); at >= 0 && t.rates.PerByte[at] >= 0 {
		t.rates.Set(at, perByte)
	}
}

// refill makes the table anew, where there is one.
func (t *pairs) refill() {
	if t.prefill != nil {
		t.fill()
	}
}

// learn teaches the link of x a range for its seconds per byte.
func (t *pairs) learn(x *flight, is estimate.Range, now time.Time) {
	s := estimate.Sample{Of: estimate.LinkTime, At: now, Range: is}
	t.links.kinds[x.kind].Learn(t.links.get(x.pair), x.configured, s)
	t.show(x.pair, x.kind, x.configured)
	if t.links.differ(&t.policy.Links) {
		t.refill()
	}
}

// ease updates, every second, the estimates of links on which no transfer arrives.
func (t *pairs) ease(now time.Time) {
	if now.Sub(t.links.now) < time.Second {
		return
	}
	t.links.now = now
	for kind := range t.links.kinds {
		if t.links.awaited[kind] > 0 {
			t.links.kinds[kind].Touch(nil, now)
		}
		t.links.kinds[kind].Begin(now)
	}
	if t.links.differ(&t.policy.Links) {
		t.refill()
		return
	}
	for pair := range t.links.slow {
		at := t.at(pair)
		if at < 0 {
			delete(t.links.slow, pair)
			continue
		}
		n := len(t.decode.Replicas)
		p, d := t.prefill.Replicas[at/n], t.decode.Replicas[at%n]
		t.show(pair, kindOf(p, d), t.policy.seed(p, d))
	}
}

// touch notes that a request is sent over a link. If the link is assumed to be faster than measured, no
// other request follows until this one has measured it.
func (t *pairs) touch(p, d *replica.Replica, now time.Time) {
	pair, kind := Pairing{Prefill: p.ID, Decode: d.ID}, kindOf(p, d)
	t.links.kinds[kind].Touch(t.links.of[pair], now)
	t.links.now = now
	if t.links.differ(&t.policy.Links) {
		t.refill()
	}
	if t.links.slow[pair] != nil {
		t.show(pair, kind, t.policy.seed(p, d))
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

// decodes returns the base model of a decode replica, "" unknown.
func (t *pairs) decodes(id replica.ID) string {
	at, known := t.slots[id]
	if !known || t.decode == nil || at >= len(t.decode.Replicas) || t.decode.Replicas[at].ID != id {
		return ""
	}
	return t.decode.Replicas[at].Facts.Model
}

// Incompatible returns the reason why d cannot use KV blocks of p, "" if it can: the parts of vLLM's own
// compatibility check that the router can see. Unknown facts count as compatible. An engine that stands in
// both pools hands nothing over to itself: it has the blocks already, and a prefill leg would only compete
// with its own decoding. Safe for concurrent use.
func Incompatible(p, d *replica.Replica) string {
	if p.URL != "" && p.SameEngine(d) {
		return "they are one engine"
	}
	a, b := &p.Facts, &d.Facts
	if p.Role == replica.Prefill && a.NoHandoff != "" {
		return string(p.ID) + " hands nothing over: " + a.NoHandoff
	}
	if a.Ends(b) {
		return fmt.Sprintf("%s has the NIXL connector, and %s the Mooncake connector", d.ID, p.ID)
	}
	if d.Role == replica.Decode && b.NoHandoff != "" {
		return string(d.ID) + " takes nothing over: " + b.NoHandoff
	}
	if a.Started > 0 && a.Started < b.Reborn {
		return fmt.Sprintf("%s may know the former process of %s, and cannot write to this one: restart %s",
			p.ID, d.ID, p.ID)
	}
	for _, x := range [...]struct{ what, p, d string }{
		{"revisions", p.Revision, d.Revision},
		{"model roots", a.Root, b.Root},
		{"versions", a.Version, b.Version},
		{"KV cache types", a.CacheDType, b.CacheDType},
		{"connectors", a.Connector, b.Connector},
	} {
		if !replica.Agree(x.p, x.d) {
			return fmt.Sprintf("different %s: %s at %s and %s at %s", x.what, x.p, p.ID, x.d, d.ID)
		}
	}
	if !replica.Agree(a.Tokens[0], b.Tokens[0]) {
		return fmt.Sprintf("different tokenizers: %s and %s make other token ids of a sample text", p.ID, d.ID)
	}
	if !replica.Agree(a.BlockSize, b.BlockSize) {
		return fmt.Sprintf("different block sizes: %d at %s and %d at %s", a.BlockSize, p.ID, b.BlockSize, d.ID)
	}
	return ""
}

// pullTime returns the seconds in which to pulls so many tokens from another engine, of either pool, below 0
// if that is impossible. Within a pool no handoff measures the path: it counts as fast as others of its kind.
func (t *pairs) pullTime(from, to *replica.Replica, tokens int) float64 {
	if t.policy.Weights.Units != scoring.InSeconds || to.PullPort == 0 || Incompatible(from, to) != "" {
		return -1
	}
	pair := Pairing{Prefill: from.ID, Decode: to.ID}
	if from.Role == replica.Decode { // the blocks take the path of a handoff in the other direction
		pair = Pairing{Prefill: to.ID, Decode: from.ID}
	}
	perByte := t.links.perByte(pair, kindOf(from, to), t.policy.seed(from, to))
	return t.policy.times.Setup + float64(tokens)*t.policy.bytesOf(from.Facts.Model)*perByte
}

// seed returns the seconds a byte that the policy gives for the path from p to d.
func (p *Policy) seed(from, to *replica.Replica) float64 { return 1 / p.Links[kindOf(from, to)] }

// kindOf returns the kind of path from p to d.
func kindOf(p, d *replica.Replica) replica.Link {
	if p.Place.Host == "" && d.Place.Host == "" && p.Host != "" && p.Host == d.Host {
		return replica.SameHost
	}
	return p.Place.LinkTo(d.Place)
}
