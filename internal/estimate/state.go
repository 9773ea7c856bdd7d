package estimate

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// State is the saved form of all learned values. It holds no prompts, and only hashes of tenants.
type State struct {
	At      time.Time      `json:"at"` // when it was made
	Lengths []GroupLengths `json:"lengths"`
	Speeds  []EngineSpeeds `json:"speeds"`
	Links   []PairLink     `json:"links"`
}

// EngineKey identifies the replica that something was learned of: rank and address, model, release, and the
// fingerprint of the configuration.
type EngineKey struct {
	Prefill bool   `json:"prefill"` // of the prefill pool
	URL     string `json:"url"`
	Rank    int    `json:"rank,omitzero"`
	Root    string `json:"root"`
	Version string `json:"version"`
	Print   string `json:"fingerprint,omitzero"` // of version and configuration
}

// EngineSpeeds is the measured speed of one replica.
type EngineSpeeds struct {
	Engine EngineKey   `json:"engine"`
	Pool   *FitState   `json:"prefill,omitzero"` // of the prefill pool
	Reads  []ReadState `json:"reads,omitempty"`  // of the prefill pool
	Decode Speeds      `json:"decode,omitzero"`  // of the decode pool
}

// Speeds is the measured speed of one replica.
type Speeds struct {
	Prefill *FitState   `json:"prefill,omitzero"` // of the decode pool: local prefills
	Steps   *FitState   `json:"steps,omitzero"`
	Reads   []ReadState `json:"reads,omitempty"`
}

// PairLink is the measured link between two replicas.
type PairLink struct {
	LinkState
	From EngineKey `json:"from"`
	To   EngineKey `json:"to"`
}

// GroupLengths is the observed lengths of one group of answers.
type GroupLengths struct {
	Of         string `json:"of"` // a constant lengthsOf... below, or the name of a kind of group
	Model      string `json:"model,omitzero"`
	Tenant     uint32 `json:"tenant,omitzero"`
	API        uint8  `json:"api,omitzero"`
	Tools      bool   `json:"tools,omitzero"`
	Structured bool   `json:"form,omitzero"`
	Stops      bool   `json:"stops,omitzero"`
	Long       uint8  `json:"long,omitzero"` // how long the prompt is

	LengthCounts
}

const (
	lengthsOfAll   = "all"
	lengthsOfEnds  = "ends" // all answers; cut answers with their length at the cut
	lengthsOfModel = "model"
)

// maxModels bounds the number of models whose lengths are restored.
const maxModels = 1024

// State returns the observed lengths of all groups, the most recently used last.
func (l *Lengths) State() []GroupLengths {
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

// byAge lists the groups, the most recently used last.
func (l *Lengths) byAge() []group {
	return slices.SortedFunc(maps.Keys(l.groups), func(a, b group) int {
		return cmp.Or(cmp.Compare(l.groups[a].met, l.groups[b].met), cmp.Compare(a.of, b.of))
	})
}

// Restore lets groups without samples begin with saved lengths of the weight believed (0..1). It returns how
// many groups it restored.
func (l *Lengths) Restore(all []GroupLengths, believed float64) (taken int) {
	for i := range all {
		g := &all[i]
		if of := l.restored(g); of != nil && of.Restore(g.LengthCounts, believed) {
			taken++
		}
	}
	l.WorkOut()
	return taken
}

// restored returns the lengths that g is about, nil if the group is unknown or there are too many groups.
func (l *Lengths) restored(g *GroupLengths) *OutputLength {
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
		return l.OfModel(g.Model, true)
	case g.Of == ofTenant.String() && g.Tenant != 0:
		return l.ofTenant(is, l.OfModel(g.Model, true), true)
	case g.Of == ofClass.String():
		return l.of(is, true)
	}
	return nil
}
