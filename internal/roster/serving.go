package roster

import (
	"slices"

	"tandem/internal/replica"
)

// serving remembers which members of a view serve which model. Every plan asks that of all of them, and each
// may have a thousand names of adapters, in memory of its own.
type serving struct {
	of      *View
	byModel map[string][]bool // of models that somebody serves: clients make up other names
	nobody  []bool            // false for everybody
}

// Serving reports of each member, by slot, whether it answers for model. The caller holds the lock, and does
// not change what it gets.
func (ms *Members[M]) Serving(model string) []bool {
	s := &ms.serving
	if s.of != ms.View {
		*s = serving{of: ms.View, byModel: map[string][]bool{}, nobody: make([]bool, len(ms.View.Replicas))}
	}
	if known, ok := s.byModel[model]; ok {
		return known
	}
	serves := func(r *replica.Replica) bool { return r.Serves(model) }
	first := slices.IndexFunc(ms.View.Replicas, serves)
	if first < 0 {
		return s.nobody
	}
	all := make([]bool, len(ms.View.Replicas))
	for i := first; i < len(all); i++ {
		all[i] = serves(ms.View.Replicas[i])
	}
	s.byModel[model] = all
	return all
}
