package fleet

import (
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

// pairing is which replicas make pairs. The fleet's mutex guards it.
type pairing struct {
	outliers *outlier.Set
	splits   bool // the configuration lets requests be split
	// For each replica that is known to make a pair: a replica of the other pool with which it does.
	mates map[*Endpoint]*Endpoint
}

// judge notes for each of all replicas, sorted by name, whether it makes a pair. here has the same replicas
// by name. tried says that each server has answered, or was asked in vain: before that, a server that is
// being asked may fit any replica, so no replica becomes unpaired. A replica whose mate is still there is not
// judged again. kv is for what people are told: see [Fleet.SetConnector].
func (p *pairing) judge(kv *setup.KV, all []*Endpoint, here map[replica.ID]*Endpoint, tried bool) {
	others := map[replica.Role][]*Endpoint{} // of the other pool
	for _, e := range all {
		of := replica.Prefill + replica.Decode - e.Member.Role
		others[of] = append(others[of], e)
	}
	maps.DeleteFunc(p.mates, func(e, mate *Endpoint) bool {
		return here[e.Member.ID] != e || here[mate.Member.ID] != mate
	})
	roots := map[replica.Role]adapterRoots{
		replica.Prefill: rootsOf(others[replica.Prefill]), replica.Decode: rootsOf(others[replica.Decode]),
	}
	for i, e := range all {
		role := e.Member.Role
		if p.mates[e] == nil {
			cause := ""
			judged := len(others[role]) > 0 && (tried || e.w.states.has(e.Member.ID, StateUnpaired))
			if p.splits && judged && !p.findMate(e, others[role], i) {
				cause = p.unpaired(kv, e, others[role])
			}
			e.w.states.set(e.Member.ID, StateUnpaired, cause)
		}
		weights := ""
		if p.splits {
			weights = otherWeights(e, others[role], roots[role])
		}
		e.w.states.set(e.Member.ID, StateAdapter, weights)
	}
}

// findMate looks for a replica among others that makes a pair with e. It begins at another one for each e, so
// that few replicas lose their mate when one replica leaves.
func (p *pairing) findMate(e *Endpoint, others []*Endpoint, from int) (found bool) {
	for i := range others {
		mate := others[(from+i)%len(others)]
		if pre, dec := inOrder(e, mate); p.apart(pre, dec) == "" {
			p.mates[e] = mate
			return true
		}
	}
	return false
}

// inOrder returns a prefill and a decode replica in this order.
func inOrder(a, b *Endpoint) (pre, dec *Endpoint) {
	if a.Member.Role == replica.Decode {
		return b, a
	}
	return a, b
}

// unpaired says why a replica makes a pair with none of others, the replicas of the other pool, and which
// flags to change.
func (p *pairing) unpaired(kv *setup.KV, e *Endpoint, others []*Endpoint) string {
	const most = 4 // of the others are named
	var why, do []string
	for _, other := range others {
		pre, dec := inOrder(e, other)
		reason := p.apart(pre, dec)
		for _, change := range setup.Apart(*kv, &pre.Member, &dec.Member) {
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

// apart says why the two make no pair, "" where they do.
func (p *pairing) apart(pre, dec *Endpoint) string {
	if reason := planner.Incompatible(&pre.Member, &dec.Member); reason != "" {
		return reason
	}
	if !slices.ContainsFunc(pre.Member.Facts.Models, dec.Member.Serves) {
		return "no model that both serve"
	}
	return p.outliers.WhyPairOut(outlier.Pair{Prefill: pre.Member.ID, Decode: dec.Member.ID})
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

// adapterRoots are the different paths from which some replicas have loaded each adapter.
type adapterRoots map[string][]string

func rootsOf(es []*Endpoint) adapterRoots {
	roots := adapterRoots{}
	for _, e := range es {
		for name, root := range e.Member.Facts.AdapterRoots {
			if root != "" && !slices.Contains(roots[name], root) {
				roots[name] = append(roots[name], root)
			}
		}
	}
	return roots
}

// otherWeights says which adapters of a replica have other weights on one of others, the replicas of the
// other pool, "" for none.
func otherWeights(e *Endpoint, others []*Endpoint, roots adapterRoots) string {
	var found []string
	for _, name := range e.Member.Facts.Adapters {
		own, known := e.Member.Facts.AdapterRoots[name], roots[name]
		if len(known) == 0 || len(known) == 1 && known[0] == own {
			continue // no other one can differ
		}
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
