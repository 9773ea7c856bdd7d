package planner

import (
	"fmt"

	"github.com/tandem-router/tandem/internal/replica"
)

// An adapter may have other weights under the same name on another replica: while it is exchanged, and where
// somebody forgot one. Blocks that were computed with the ones mean nothing to the others, and vLLM takes
// them: it compares base models alone. All that an engine tells of an adapter is the path it has it from.

// OtherWeights returns the reason for which blocks that p computes for a model mean nothing to d, although
// those of their base model do, "" if they do. Safe for concurrent use.
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
