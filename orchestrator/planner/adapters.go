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
