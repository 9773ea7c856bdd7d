package planner

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// links is the learned speeds of the paths between replicas. Guarded by Planner.mu.
type links struct {
	of    map[Pairing]*estimate.Link
	kinds [replica.Links]estimate.Kind
	// The time, and the seconds per byte of links without samples, with which the table of pairs was filled.
	now    time.Time
	common [replica.Links]float64
	// Booked transfers that have not arrived. Their kinds of links are in use.
	awaited [replica.Links]int
	// Links believed slower than their kind. The belief fades while no transfer uses the link.
	slow map[Pairing]*estimate.Link
}

func newLinks() links {
	return links{of: map[Pairing]*estimate.Link{}, slow: map[Pairing]*estimate.Link{}}
}

// get returns the link of a pair, and makes a missing one.
func (x *links) get(pair Pairing) *estimate.Link {
	if x.of[pair] == nil {
		x.of[pair] = &estimate.Link{}
	}
	return x.of[pair]
}

// perByte returns the estimated seconds per byte of a pair, and records which links are slow.
func (x *links) perByte(pair Pairing, kind replica.Link, configured float64) float64 {
	l, k := x.of[pair], &x.kinds[kind]
	believed := k.PerByte(l, configured, x.now)
	if l != nil && believed > slower*k.PerByte(nil, configured, x.now) {
		x.slow[pair] = l
	} else {
		delete(x.slow, pair)
	}
	return believed
}

const (
	slower   = 1.1  // times what its kind is taken for, from which on a link counts as slow
	filledBy = 1.05 // times what the table has, from which on a kind's links are entered anew
)

// drop forgets the link of a pair.
func (x *links) drop(pair Pairing) {
	delete(x.of, pair)
	delete(x.slow, pair)
}

// rename keeps the learned speeds of renamed pairs. to returns false for a pair of which a replica left.
func (x *links) rename(to func(Pairing) (Pairing, bool)) {
	x.of, x.slow = replica.Rekey(x.of, to), replica.Rekey(x.slow, to)
}

// differ reports whether what kinds are taken for is not what the table was filled with.
func (x *links) differ(configured *[replica.Links]float64) bool {
	for kind := range x.kinds {
		now := x.kinds[kind].PerByte(nil, 1/configured[kind], x.now)
		if was := x.common[kind]; now > was*filledBy || now < was/filledBy {
			return true
		}
	}
	return false
}

// filled notes what the table is filled with.
func (x *links) filled(configured *[replica.Links]float64) {
	for kind := range x.kinds {
		x.common[kind] = x.kinds[kind].PerByte(nil, 1/configured[kind], x.now)
	}
}

// LinkSpeed is the known speed of the path between two replicas.
type LinkSpeed struct {
	Pairing
	Kind           replica.Link  // of the path
	BytesPerSecond float64       // estimate
	Configured     float64       // bytes per second in the configuration for paths of this kind
	Error          float64       // plausible error of the bandwidth either way, as a factor ≥ 1
	Samples        int           // measured transfers
	Age            time.Duration // since the newest measured transfer
}

// speeds lists the measured links of the table, in order of their pairs.
func (t *pairs) speeds(now time.Time) []LinkSpeed {
	if t.prefill == nil || t.decode == nil {
		return nil // no plan was made since the policy changed
	}
	var all []LinkSpeed
	for pair, link := range t.links.of {
		p, known := t.slots[pair.Prefill]
		d, both := t.slots[pair.Decode]
		if !known || !both {
			continue // a replica of the pair has left
		}
		from, to := t.prefill.Replicas[p], t.decode.Replicas[d]
		kind, configured := kindOf(from, to), t.policy.seed(from, to)
		e := t.links.kinds[kind].Estimate(link, configured, now)
		if e.Samples > 0 {
			all = append(all, LinkSpeed{
				Pairing: pair, Kind: kind, BytesPerSecond: 1 / e.Value, Configured: 1 / configured, Error: e.Error,
				Samples: e.Samples, Age: e.Age,
			})
		}
	}
	slices.SortFunc(all, func(a, b LinkSpeed) int {
		return cmp.Or(cmp.Compare(a.Prefill, b.Prefill), cmp.Compare(a.Decode, b.Decode))
	})
	return all
}

// sample returns the seconds per byte of a link by one transfer. The transfer was under way for between
// least and most seconds besides the wire. moved is the seconds of blocks that moved at its ends meanwhile,
// at the configured speeds of links.
func sample(took, least, most float64, moved estimate.Range, configured float64) estimate.Range {
	s := estimate.Range{Low: max(0, took-most) / moved.High * configured, High: math.Inf(1)}
	if took > least {
		s.High = (took - least) / moved.Low * configured
	}
	return s
}
