package planner

import (
	"fmt"

	"github.com/tandem-router/tandem/internal/replica"
)

// Two replicas may have different weights under the same adapter name: while the adapter is exchanged, and
// where an operator forgot one replica. KV blocks computed with one set of weights are wrong for the other
// set. vLLM accepts such blocks, because it compares base models alone. All that an engine reports of an
// adapter is the path from which it loaded the adapter.

// OtherWeights returns the reason why d cannot use blocks that p computes for a model although both serve
// the same base model, "" if d can. Safe for concurrent use.
func OtherWeights(p, d *replica.Replica, model string) string {
	a, b := p.Facts.AdapterRoots[model], d.Facts.AdapterRoots[model]
	if a == b || a == "" || b == "" {
		return ""
	}
	return fmt.Sprintf("different weights of adapter %s: %s and %s", model, a, b)
}

// excludeOtherWeights takes the pairs out of the table of plans that have other weights under the name of the
// request's model.
func (pl *Planner) excludeOtherWeights(q *question) {
	if !pl.pairs.adapters {
		return
	}
	b := &pl.scratch
	for i := range b.prefills {
		p := pl.pairs.prefill.Replicas[b.prefills[i].Slot]
		root := p.Facts.AdapterRoots[q.Model]
		if root == "" {
			continue
		}
		for j := range b.decodes {
			d := pl.pairs.decode.Replicas[b.decodes[j].Slot]
			if other := d.Facts.AdapterRoots[q.Model]; other != root && other != "" {
				pl.excludePair(Pairing{p.ID, d.ID})
			}
		}
	}
}
