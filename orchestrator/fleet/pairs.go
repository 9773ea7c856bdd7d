package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-router/tandem/internal/config"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/setup"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/orchestrator/planner"
)

// A replica that no replica of the other pool can work with takes part in no split: a prefill replica gets no
// request at all. That shows in nothing but its idleness, so it has a state.

// JudgePairs notes for each replica whether it makes a pair. Call it when facts about pairs change; the
// fleet itself calls it when members change.
func (f *Fleet) JudgePairs() {
	f.keep.mu.Lock()
	defer f.keep.mu.Unlock()
	f.judgePairsLocked()
}

// SetSplitting says whether requests may be split now. If not, it does not matter whether a replica makes a
// pair.
func (f *Fleet) SetSplitting(on bool) {
	f.keep.mu.Lock()
	defer f.keep.mu.Unlock()
	f.keep.splits = on
	f.judgePairsLocked()
	f.judgeSetupLocked()
}

func (f *Fleet) judgePairsLocked() {
	matters := f.keep.splits && f.keep.completeLocked()
	all := slices.SortedFunc(maps.Values(f.Endpoints()),
		func(a, b *Endpoint) int { return cmp.Compare(a.Member.ID, b.Member.ID) })
	others := map[replica.Role][]*Endpoint{} // of the other pool; sorted once, because there may be thousands
	for _, e := range all {
		side := replica.Prefill
		if e.Member.Role == replica.Prefill {
			side = replica.Decode
		}
		others[side] = append(others[side], e)
	}
	for _, e := range all {
		cause := ""
		if matters {
			cause = f.unpaired(e, others[e.Member.Role])
		}
		e.w.states.set(e.Member.ID, StateUnpaired, cause)
		cause = ""
		if f.keep.splits {
			cause = otherWeights(e, others[e.Member.Role])
		}
		e.w.states.set(e.Member.ID, StateAdapter, cause)
	}
}

// unpaired says why a replica makes a pair with none of others, the replicas of the other pool, and which
// flags to change; "" where it makes one.
func (f *Fleet) unpaired(e *Endpoint, others []*Endpoint) string {
	const most = 4 // of the others are named
	var why, do []string
	for _, other := range others {
		p, d := e, other
		if e.Member.Role == replica.Decode {
			p, d = other, e
		}
		reason := f.unpairedWith(&p.Member, &d.Member)
		if reason == "" {
			return ""
		}
		for _, change := range setup.Apart(&p.Member, &d.Member) {
			if len(do) < most && !slices.Contains(do, change) {
				do = append(do, change)
			}
		}
		if len(why) < most {
			why = append(why, string(other.Member.ID)+": "+reason)
		}
	}
	if more := len(others) - len(why); more > 0 {
		why = append(why, fmt.Sprintf("and %d more", more))
	}
	cause := "it makes a pair with no replica of the other pool: " + strings.Join(why, "; ")
	if len(do) > 0 {
		cause += "; what to do: " + strings.Join(do, "; ")
	}
	return cause
}

// unpairedWith says why the two make no pair, "" where they do.
func (f *Fleet) unpairedWith(p, d *replica.Replica) string {
	if reason := planner.Incompatible(p, d); reason != "" {
		return reason
	}
	if !slices.ContainsFunc(p.Facts.Models, d.Serves) {
		return "no model that both serve"
	}
	return f.opt.Outliers.WhyPairOut(outlier.Pair{Prefill: p.ID, Decode: d.ID})
}

// Two replicas may have an adapter of the same name from different paths. Nothing proves that the weights
// are the same, so the two replicas hand over no requests for the adapter. Only the time of such requests
// would show this, so it is a state.

// withoutFolders returns the roots of adapters without the folders that they lie in.
func withoutFolders(roots map[string]string, pool *config.Pool) map[string]string {
	if len(pool.AdapterFolders) == 0 || len(roots) == 0 {
		return roots
	}
	out := make(map[string]string, len(roots))
	for name, root := range roots {
		out[name] = pool.AdapterRoot(root)
	}
	return out
}

// otherWeights says which adapters of a replica have other weights on one of others, the replicas of the
// other pool, "" for none.
func otherWeights(e *Endpoint, others []*Endpoint) string {
	var found []string
	for _, name := range e.Member.Facts.Adapters {
		for _, other := range others {
			if planner.OtherWeights(&e.Member, &other.Member, name) != "" {
				found = append(found, fmt.Sprintf("%s: %s here, %s at %s", name,
					e.Member.Facts.AdapterRoots[name], other.Member.Facts.AdapterRoots[name], other.Member.ID))
				break
			}
		}
	}
	const most = 4 // adapters are named
	if more := len(found) - most; more > 0 {
		found = append(found[:most], fmt.Sprintf("and %d more", more))
	}
	if len(found) == 0 {
		return ""
	}
	return "clients that are served here get other weights than at the other replicas; requests for an " +
		"adapter are not handed over between them: " + strings.Join(found, "; ")
}
