package replay

import (
	"errors"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// Ideal measures what p asks of engines with one cache for all engines that never forgets. The engines are
// like the first prefill replica, or the first replica at all where there is no prefill pool. The times are
// the times of p: its scale makes them dense.
func (p Play) Ideal() (x *cluster.Ideal, err error) {
	p = p.withDefaults()
	fleet, err := p.Fleet()
	if err != nil {
		return nil, err
	}
	source, err := p.open(fleet)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	nodes := fleet.Nodes[cluster.Prefill]
	if len(nodes) == 0 {
		nodes = fleet.Nodes[cluster.Decode]
	}
	return cluster.Measure(source, nodes[0].Engine)
}
