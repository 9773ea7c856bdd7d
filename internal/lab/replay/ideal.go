package replay

import (
	"errors"

	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
)

// Ideal measures what p asks of engines like the first prefill replica, or the first at all where there is no
// prefill pool, with one cache for all of them that never forgets. The times are those of p: dense by its
// scale.
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
