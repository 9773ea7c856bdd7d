package cluster

import (
	"time"

	"github.com/tandem-router/tandem/internal/lab/enginesim/core"
)

// fetch is the answer to the question of an engine for blocks of another engine.
type fetch struct {
	to       *engine
	order    core.Order
	contents []uint64
}

// hostCopies is the bytes per second between the GPUs of an engine and its host memory: PCIe 5 with 16 lanes.
const hostCopies = 50e9

// SetHostMemory gives each engine host memory for KV, as a multiple of what its GPUs have. If pulls is set,
// other engines can pull blocks from there.
func (c *Config) SetHostMemory(times float64, pulls bool) {
	c.Pulls = pulls
	for side := range c.Nodes {
		for i := range c.Nodes[side] {
			e := &c.Nodes[side][i].Engine
			block := time.Duration(float64(max(e.BlockSize, 16)*c.TokenBytes) / hostCopies * 1e9)
			e.Tier = core.Tier{Blocks: int(times * float64(e.Blocks)), Read: block, Write: block}
			e.P2P = pulls
		}
	}
}

// sourceOf returns the engine from which the first leg of a call pulls blocks, if its router wants that.
func (c *Cluster) sourceOf(x *call) (source core.Field[core.KVSource]) {
	r, can := x.front.Router.(Puller)
	if !can {
		return source
	}
	side, i, tokens := r.Pull(&x.q)
	if tokens == 0 || c.engines.of[side][i].gone {
		return source
	}
	return core.Has(core.KVSource{ID: x.id(), Host: c.engines.of[side][i].core.EngineID(), Port: "5710"})
}

// probe asks an engine for blocks. The blocks occupy the links of both engines, as a transfer does.
func (c *Cluster) probe(e *engine, o *core.Order) {
	from := c.engines.byID[o.Peer.Host]
	f := &fetch{to: e, order: *o, contents: from.core.Offers(c.clock.now, o.Names)}
	f.order.Names = append(f.order.Names[:0:0], o.Names...)
	done := c.clock.now + c.cfg.Setup
	if n := len(f.contents); n > 0 {
		class := c.cfg.Nodes[from.side][from.index].Place.LinkTo(c.cfg.Nodes[e.side][e.index].Place)
		bytes := float64(n * e.core.Config().BlockSize * c.cfg.TokenBytes)
		start, took := max(c.clock.now, from.link, e.link), time.Duration(bytes/c.cfg.Links[class]*1e9)
		from.link, e.link = start+took, start+took
		done = start + took + c.cfg.Setup
	}
	c.clock.events.add(event{at: done, kind: fetched, fetch: f})
}

// fetched gives an engine the blocks that another engine had.
func (c *Cluster) fetched(f *fetch) error {
	f.to.core.Fetched(c.clock.now, &f.order, f.contents)
	return c.kick(f.to)
}
