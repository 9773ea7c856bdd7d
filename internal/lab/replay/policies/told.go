package policies

import (
	"cmp"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/lab/replay/cluster"
	"github.com/tandem-router/tandem/internal/roster"
)

// indexingOf returns how production's indexes are fed from the routers' facts.
func indexingOf(told *cluster.Misstated) roster.Indexing {
	switch {
	case told.Nothing:
		return roster.Indexing{Mode: roster.Off}
	case told.Text > 0:
		const bytes = 4
		return roster.Indexing{ChunkBytes: bytes * cluster.Chunk, CharsPerToken: bytes}
	}
	return roster.Indexing{}
}

// saidOf returns the speed of engines as an operator would configure it: the rates of the first engine, for a
// prompt of usual length and for a single answer.
func saidOf(c *cluster.Config, side cluster.Side) estimate.Speed {
	if len(c.Nodes[side]) == 0 {
		return estimate.Speed{}
	}
	const prompt = 2000
	node := c.ToldNode(side, 0)
	cost, engine := node.Engine.Cost, profile(&node)
	host := cost.Host / cmp.Or(cost.Speed, 1)
	return estimate.Rates(prompt/(host+engine.Prefill(prompt, 0)), 1/(host+engine.Step(1, prompt)))
}
