package estimate

// Models keeps apart what is learned of the replicas of one pool, by their base models. L is what else the
// pool keeps for each model. The zero Models knows no model. It is not safe for concurrent use.
type Models[L any] struct {
	stated  Speed // by the operator
	further int   // samples, see [Pool]
	byBase  map[string]*ModelPool[L]
}

// ModelPool is what is learned of the replicas with one base model.
type ModelPool[L any] struct {
	Base string
	Pool
	Also L
}

// Configure sets the operator's values, and the samples beyond the usual number before a measured speed
// counts. Both hold for every model.
func (m *Models[L]) Configure(told Speed, samples int) {
	m.stated, m.further = told, samples
	for _, one := range m.byBase {
		one.Told, one.Samples = told, samples
	}
}

// About returns what is learned of a base model. A new model knows nothing of the others.
func (m *Models[L]) About(base string) *ModelPool[L] {
	one := m.byBase[base]
	if one == nil {
		one = &ModelPool[L]{Base: base, Pool: Pool{Told: m.stated, Samples: m.further}}
		if m.byBase == nil {
			m.byBase = map[string]*ModelPool[L]{}
		}
		m.byBase[base] = one
	}
	return one
}
