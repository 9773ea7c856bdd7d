package roster

import (
	"hash/fnv"
	"slices"

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
	bySlot []bool
	name   uint64 // name of the set, 0 for the empty set
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
	all := servers{bySlot: make([]bool, len(ms.View.Replicas))}
	for i := first; i < len(all.bySlot); i++ {
		if all.bySlot[i] = serves(ms.View.Replicas[i]); all.bySlot[i] {
			all.name += nameOf(ms.View.Replicas[i].ID) // the sum does not depend on the order
		}
	}
	s.byModel[model] = all
	return all
}

func nameOf(id replica.ID) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id))
	return h.Sum64()
}
