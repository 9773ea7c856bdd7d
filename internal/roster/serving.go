package roster

import (
	"hash/fnv"
	"slices"

	"github.com/tandem-router/tandem/internal/kv"
	"github.com/tandem-router/tandem/internal/replica"
)

// serving remembers which members of a view serve which model. Every plan asks this for all members, and
// each member may have a thousand names of adapters, in memory of its own.
type serving struct {
	of      *View
	byModel map[string]servers // only models with a server: clients make up other names
	nobody  servers            // false for every member
}

// servers is the set of members that serve a model.
type servers struct {
	bySlot  []bool
	name    uint64   // name of the set, 0 for the empty set
	chain   kv.Chain // names the blocks of its prompts; zero while no size is known
	adapter string   // for the root of the chain
	base    string   // base model of the first
}

// Serving reports for each member, by slot, whether it answers for model. The caller holds the lock, and
// does not change the result.
func (ms *Members[M]) Serving(model string) []bool { return ms.servers(model).bySlot }

func (ms *Members[M]) servers(model string) servers {
	s := &ms.serving
	if s.of != ms.View {
		nobody := servers{bySlot: make([]bool, len(ms.View.Replicas))}
		*s = serving{of: ms.View, byModel: map[string]servers{}, nobody: nobody}
	}
	if known, ok := s.byModel[model]; ok {
		return known
	}
	serves := func(r *replica.Replica) bool { return r.Serves(model) }
	first := slices.IndexFunc(ms.View.Replicas, serves)
	if first < 0 {
		return s.nobody
	}
	all := servers{bySlot: make([]bool, len(ms.View.Replicas)), base: ms.View.Replicas[first].Facts.Model}
	for i := first; i < len(all.bySlot); i++ {
		if all.bySlot[i] = serves(ms.View.Replicas[i]); all.bySlot[i] {
			all.name += nameOf(ms.View.Replicas[i].ID) // the sum does not depend on the order
		}
	}
	if m := ms.sized(all.bySlot); m != nil {
		all.chain, all.adapter = kv.NewChain("", m.blockSize()), m.R.Adapter(model)
	}
	s.byModel[model] = all
	return all
}

// sized returns the first of some members that knows the size of its blocks, nil if none does. Events are
// believed first: if they tell another size than an engine's facts, the facts of other engines are probably
// wrong in the same way.
func (ms *Members[M]) sized(bySlot []bool) (first *Member) {
	for i, e := range ms.All {
		switch m := e.member(); {
		case !bySlot[i]:
		case m.blocks.told > 0:
			return m
		case first == nil && m.blockSize() > 0:
			first = m
		}
	}
	return first
}

// resize notes that a member's block size is known anew.
func (ms *Members[M]) resize() { ms.serving = serving{} }

// rename gives m the chain of its blocks. It reports whether m had another one.
func (ms *Members[M]) rename(m *Member) (chain kv.Chain, renamed bool) {
	size := m.blockSize()
	if size == 0 {
		size = ms.servers(m.R.Facts.Model).chain.BlockSize()
	}
	if renamed = size != m.blocks.chain.BlockSize(); renamed {
		m.blocks.chain = kv.NewChain("", size)
	}
	return m.blocks.chain, renamed
}

func nameOf(id replica.ID) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return h.Sum64()
}
