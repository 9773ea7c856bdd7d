package orchestrator

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"tandem/internal/config"
	"tandem/internal/replica"
	"tandem/orchestrator/outlier"
	"tandem/orchestrator/planner"
)

// A replica that no replica of the other pool can work with takes part in no split: a prefill replica gets no request at all. That shows in nothing but its
// idleness, so it has a state.

// judgePairs notes of each replica whether it makes a pair with anybody. It is to be called when members change, when pairs do, and when the configuration does.
func (f *fleet) judgePairs() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.judgePairsLocked()
}

func (f *fleet) judgePairsLocked() {
	snap := f.o.snap.Load()
	if snap == nil {
		return
	}
	splits := snap.cfg.Local != config.LocalAlways && f.completeLocked()
	all := *f.reach.Load()
	for _, r := range all {
		cause := ""
		if splits {
			cause = f.unpaired(r, all)
		}
		r.w.state(r.member.ID, stateUnpaired, cause)
	}
}

// completeLocked reports whether both pools have replicas, and each has said what it is: one that has not may fit anybody.
func (f *fleet) completeLocked() bool {
	var n [2]int
	for _, w := range f.watchers {
		if !w.joined() {
			return false
		}
		n[w.role-replica.Prefill]++
	}
	return n[0] > 0 && n[1] > 0
}

// unpaired says why a replica makes a pair with none of all, "" where it does.
func (f *fleet) unpaired(r *reach, all map[replica.ID]*reach) string {
	var others []*reach
	for _, other := range all {
		if other.w.role != r.w.role {
			others = append(others, other)
		}
	}
	slices.SortFunc(others, func(a, b *reach) int { return cmp.Compare(a.member.ID, b.member.ID) })
	const most = 4 // of the others are named
	var why []string
	for _, other := range others {
		p, d := r, other
		if r.w.role == replica.Decode {
			p, d = other, r
		}
		reason := f.unpairedWith(&p.member, &d.member)
		if reason == "" {
			return ""
		}
		if len(why) < most {
			why = append(why, string(other.member.ID)+": "+reason)
		}
	}
	if more := len(others) - len(why); more > 0 {
		why = append(why, fmt.Sprintf("and %d more", more))
	}
	return "it makes a pair with no replica of the other pool: " + strings.Join(why, "; ")
}

// unpairedWith says why the two make no pair, "" where they do.
func (f *fleet) unpairedWith(p, d *replica.Replica) string {
	switch reason := planner.Incompatible(p, d); {
	case reason != "":
		return reason
	case !slices.ContainsFunc(p.Facts.Models, d.Serves):
		return "no model that both serve"
	case f.o.planner.Outliers().PairOut(outlier.Pair{Prefill: p.ID, Decode: d.ID}):
		return "transfers between them failed lately"
	}
	return ""
}
