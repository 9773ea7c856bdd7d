package planner

import (
	"math"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/prefill"
	"github.com/tandem-router/tandem/scoring"
)

// comparison compares the plans for one request: it has every candidate, the table of costs, and the choice.
// The next request uses its memory again. Guarded by Planner.mu.
type comparison struct {
	policy *policyInForce
	pairs  *pairs

	prefills []prefill.Candidate
	decodes  []decode.Candidate
	rejected decode.Rejected

	forced string // used although ejected, "" for none

	table  scoring.Table
	best   [keptSplits]scoring.Choice
	locals [keptLocals]scoring.Choice
	chosen scoring.Choice
	ties   int
	plans  int
}

// How many of the best plans a decision keeps.
const (
	keptSplits = 4
	keptLocals = 2
)

// excludePair takes a pair out of the table of plans, if it is there.
func (b *comparison) excludePair(pair Pairing) {
	if at := b.pairs.at(pair); at >= 0 {
		b.table.ExcludePair(at)
	}
}

// ready returns how long it takes until the prefill candidate that costs least by itself has computed the
// prompt, 0 where there is none.
func (b *comparison) ready() time.Duration {
	t := &b.table
	if best := t.Cheapest(); best >= 0 {
		return seconds(t.Senders[best].Ready)
	}
	return 0
}

// pricePrefills makes the prefill candidates the senders of the table of plans.
func (b *comparison) pricePrefills() {
	t := &b.table
	t.Reset()
	for i := range b.prefills {
		c := &b.prefills[i]
		t.AddSender(b.policy.model, &c.Prefill, c.Slot)
	}
}

// priceDecodes makes the decode candidates its receivers, and completes it.
func (b *comparison) priceDecodes(q *question) {
	t := &b.table
	t.PairRates, t.Ties = b.pairs.rates, b.policy.model.Ties(b.policy.TieAbsolute, b.policy.TieRelative)
	for j := range b.decodes {
		c := &b.decodes[j]
		t.AddReceiver(b.policy.model, &c.Decode, c.Slot)
		if q.local {
			t.Local = append(t.Local, b.alone(c))
		}
	}
}

// alone returns what the decode candidate c costs by itself, +Inf where it has no room for that yet while
// another could compute the prompt meanwhile.
func (b *comparison) alone(c *decode.Candidate) float64 {
	if c.Crowded && len(b.prefills) > 0 {
		return math.Inf(1)
	}
	return b.policy.model.Local(&c.Decode).Total()
}

// excludeSaturated takes the pairs of saturated decode replicas out of the table.
func (b *comparison) excludeSaturated() {
	for j := range b.decodes {
		if b.decodes[j].Saturated {
			b.table.ExcludeReceiver(j)
		}
	}
}

// excludeOtherWeights takes the pairs out of the table of plans that have other weights under the name of the
// request's model.
func (b *comparison) excludeOtherWeights(q *question) {
	if !b.pairs.adapters {
		return
	}
	for i := range b.prefills {
		p := b.pairs.prefill.Replicas[b.prefills[i].Slot]
		root := p.Facts.AdapterRoots[q.Model]
		if root == "" {
			continue
		}
		for j := range b.decodes {
			d := b.pairs.decode.Replicas[b.decodes[j].Slot]
			if other := d.Facts.AdapterRoots[q.Model]; other != root && other != "" {
				b.excludePair(Pairing{Prefill: p.ID, Decode: d.ID})
			}
		}
	}
}

// pairsWith reports whether prefill candidate i makes a pair with any decode candidate.
func (b *comparison) pairsWith(i int) bool {
	for j := range b.decodes {
		if b.table.Can(i, j) {
			return true
		}
	}
	return false
}

// terms returns the terms of the plan c.
func (b *comparison) terms(c scoring.Choice) scoring.Terms {
	if c.Prefill < 0 {
		return b.policy.model.Local(&b.decodes[c.Decode].Decode)
	}
	perByte := b.table.Rate(int(c.Prefill), int(c.Decode))
	return scoring.Split(b.policy.model, &b.prefills[c.Prefill].Prefill, &b.decodes[c.Decode].Decode, perByte)
}
