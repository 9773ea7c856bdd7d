package decode

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// This file is what the pool has learned as it outlives a process.

// GroupLengths is what was seen of the lengths of one group of answers.
type GroupLengths struct {
	Of         string `json:"of"` // one of those below, or a kind of group
	Model      string `json:"model,omitzero"`
	Tenant     uint32 `json:"tenant,omitzero"`
	API        uint8  `json:"api,omitzero"`
	Tools      bool   `json:"tools,omitzero"`
	Structured bool   `json:"form,omitzero"`
	Stops      bool   `json:"stops,omitzero"`
	Long       uint8  `json:"long,omitzero"` // how long the prompt is

	estimate.LengthCounts
}

const (
	lengthsOfAll   = "all"
	lengthsOfEnds  = "ends" // of all, cut ones as short as they were
	lengthsOfModel = "model"
)

// maxModels is of how many models lengths are restored.
const maxModels = 1024

// Lengths returns what was seen of all groups, those last that were met last.
func (p *Pool) Lengths() []GroupLengths {
	p.members.Lock()
	defer p.members.Unlock()
	l := &p.lengths
	out := []GroupLengths{
		{Of: lengthsOfAll, LengthCounts: l.all.Counts()},
		{Of: lengthsOfEnds, LengthCounts: l.ends.Counts()},
		{Of: ofHints.String(), LengthCounts: l.hinted.Counts()},
	}
	for _, model := range slices.Sorted(maps.Keys(l.models)) {
		out = append(out, GroupLengths{Of: lengthsOfModel, Model: model, LengthCounts: l.models[model].Counts()})
	}
	for _, g := range l.byAge() {
		out = append(out, GroupLengths{
			Of: g.of.String(), Model: g.model, Tenant: g.tenant, API: g.api, Tools: g.tools,
			Structured: g.structured, Stops: g.stops, Long: g.long, LengthCounts: l.groups[g].Counts(),
		})
	}
	return out
}

// byAge lists the groups, those last that were met last.
func (l *lengths) byAge() []group {
	return slices.SortedFunc(maps.Keys(l.groups), func(a, b group) int {
		return cmp.Or(cmp.Compare(l.groups[a].met, l.groups[b].met), cmp.Compare(a.of, b.of))
	})
}

// RestoreLengths lets the lengths of groups of which nothing was seen yet begin with what was seen before, as
// far as that is believed (0..1). It returns how many it took.
func (p *Pool) RestoreLengths(all []GroupLengths, believed float64) (taken int) {
	p.members.Lock()
	defer p.members.Unlock()
	for i := range all {
		g := &all[i]
		if of := p.lengths.restored(g); of != nil && of.Restore(g.LengthCounts, believed) {
			taken++
		}
	}
	p.lengths.workOut()
	return taken
}

// restored returns the lengths that g is about, nil where there are too many already or no such ones.
func (l *lengths) restored(g *GroupLengths) *estimate.OutputLength {
	l.met += 2
	is := group{
		of: ofClass, model: g.Model, tenant: g.Tenant, api: g.API, tools: g.Tools, structured: g.Structured,
		stops: g.Stops, long: min(g.Long, 2),
	}
	switch {
	case g.Of == lengthsOfAll:
		return l.all
	case g.Of == lengthsOfEnds:
		return l.ends
	case g.Of == ofHints.String():
		return l.hintsOf(g.Tenant, true)
	case l.models[g.Model] == nil && len(l.models) >= maxModels:
		return nil
	case g.Of == lengthsOfModel:
		return l.ofModel(g.Model, true)
	case g.Of == ofTenant.String() && g.Tenant != 0:
		return l.ofTenant(is, l.ofModel(g.Model, true), true)
	case g.Of == ofClass.String():
		return l.of(is, true)
	}
	return nil
}

// Speeds is what was measured of one member.
type Speeds struct {
	Prefill *estimate.FitState `json:"prefill,omitzero"` // of its own prefills
	Steps   *estimate.FitState `json:"steps,omitzero"`
}

// SpeedsOf returns what was measured of id; false where that is nothing.
func (p *Pool) SpeedsOf(id replica.ID) (s Speeds, known bool) {
	p.members.Lock()
	defer p.members.Unlock()
	m, ok := p.members.Find(id)
	if !ok {
		return s, false
	}
	return m.measured.state()
}

// RestoreSpeeds lets id, of which nothing was measured yet, begin with what was measured before. It reports
// whether anything was taken.
func (p *Pool) RestoreSpeeds(id replica.ID, s Speeds, now time.Time) (taken bool) {
	p.members.Lock()
	defer p.members.Unlock()
	m, ok := p.members.Find(id)
	return ok && m.measured.restore(s, now)
}
