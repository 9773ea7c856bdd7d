package planner

import (
	"cmp"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/prefill"
)

// Failures of replicas and pairs affect a plan in two ways. Their expected cost is one of the plan's terms.
// And an ejected replica takes no part, unless more than half of the candidates for the request would be
// out. Then the planner uses the candidates with the fewest failed trials, and the decision says so. A pair
// that gave wrong text in a trial is never used: an error is better than a wrong answer.

// out lists the candidates and pairs that a choice leaves out.
type out struct {
	prefills, splits, wholes []int // candidates: prefill; decode of transferred blocks; decode alone
	pairs                    []outlier.Pair
	forced                   []string // used although ejected
}

// any reports whether a candidate or a pair is left out.
func (o *out) any() bool { return len(o.prefills)+len(o.splits)+len(o.wholes)+len(o.pairs) > 0 }

// pairsAlone leaves out the same pairs and no candidate. It notes that all ejected candidates are used.
func (o *out) pairsAlone() *out {
	return &out{pairs: o.pairs, forced: append(o.forced, "all that are ejected")}
}

// suspect is an ejected candidate.
type suspect struct {
	at int
	id replica.ID
	outlier.Verdict
}

// worse reports whether s failed more trials than o, or, with equal trials, more requests.
func (s *suspect) worse(o *suspect) bool {
	if s.Wait != o.Wait {
		return s.Wait > o.Wait
	}
	return s.Price > o.Price
}

// Outliers returns the failure counts of replicas and pairs. Safe for concurrent use.
func (pl *Planner) Outliers() *outlier.Set { return &pl.outliers }

// failedPrefills prices the failures of the prefill candidates and lists the ejected ones.
func (pl *Planner) failedPrefills(view *prefill.View, now time.Time) {
	b := pl.comparison
	pl.suspects = pl.suspects[:0]
	for i := range b.prefills {
		id := view.Replicas[b.prefills[i].Slot].ID
		v := pl.outliers.Look(id, outlier.Prefill, now)
		b.prefills[i].Failures = v.Price
		if v.Out {
			pl.suspects = append(pl.suspects, suspect{i, id, v})
		}
	}
}

// failedNow prices the failures of the decode candidates, and returns what the choice leaves out.
func (pl *Planner) failedNow(q *question, now time.Time) *out {
	b := pl.comparison
	var splits, wholes []suspect
	for j := range b.decodes {
		id := pl.pairs.decode.Replicas[b.decodes[j].Slot].ID
		v := pl.outliers.Look(id, outlier.Decode, now)
		b.decodes[j].Failures = v.Price
		if v.Out {
			splits = append(splits, suspect{j, id, v})
		}
		if !q.LocalOK {
			continue
		}
		v = pl.outliers.Look(id, outlier.Whole, now)
		b.decodes[j].Local.Failures = v.Price
		if v.Out {
			wholes = append(wholes, suspect{j, id, v})
		}
	}
	o := &out{pairs: pl.outliers.PairsOut(now)}
	o.prefills = o.keepHalf(pl.suspects, len(b.prefills))
	o.splits = o.keepHalf(splits, len(b.decodes)+pl.fullAndWell(q, outlier.Decode, len(splits), now))
	o.wholes = o.keepHalf(wholes, len(b.decodes)+pl.fullAndWell(q, outlier.Whole, len(wholes), now))
	return o
}

// fullAndWell counts the decode replicas that have no room now and are not ejected: it is worth waiting for
// them. Without suspects the count is not needed, and is 0.
func (pl *Planner) fullAndWell(q *question, leg outlier.Leg, suspects int, now time.Time) int {
	if suspects == 0 || pl.comparison.rejected.Full == 0 {
		return 0
	}
	n := 0
	all, _ := pl.excludedDecodes(q, now)
	for _, e := range all {
		if e.Room > 0 && !pl.outliers.Look(e.ID, leg, now).Out {
			n++
		}
	}
	return n
}

// keepHalf returns the candidates to leave out, at most half of the number of. Candidates with the most
// failed trials are left out first. keepHalf notes that the other suspects are used.
func (o *out) keepHalf(suspects []suspect, of int) []int {
	var left []int
	for len(suspects) > 0 {
		worst := 0
		for i := range suspects {
			if suspects[i].worse(&suspects[worst]) {
				worst = i
			}
		}
		if 2*(len(left)+1) > of {
			break
		}
		left = append(left, suspects[worst].at)
		suspects[worst] = suspects[len(suspects)-1]
		suspects = suspects[:len(suspects)-1]
	}
	for _, s := range suspects {
		if !slices.Contains(o.forced, string(s.id)) {
			o.forced = append(o.forced, string(s.id))
		}
	}
	return left
}

// eject takes the plans with left-out candidates and pairs from the table.
func (pl *Planner) eject(o *out) {
	t := &pl.comparison.table
	for _, i := range o.prefills {
		t.ExcludeSender(i)
	}
	for _, j := range o.splits {
		t.ExcludeReceiver(j)
	}
	for _, j := range o.wholes {
		t.ExcludeLocal(j)
	}
	for _, p := range o.pairs {
		pl.comparison.excludePair(Pairing(p))
	}
}

// waits reports whether a replica that has no room now could serve the request later.
func (pl *Planner) waits(q *question, now time.Time) bool {
	if pl.comparison.rejected.Full == 0 {
		return false
	}
	all, _ := pl.excludedDecodes(q, now)
	return pl.later(q, all) != nil
}

// Incompatible returns the reason why d cannot use KV blocks of p, "" if it can. Safe for concurrent use.
func Incompatible(p, d *replica.Replica) string { return incompatible(p, d) }

// unpaired returns the reason why p and d make no pair for a model, "" if they make one.
func (pl *Planner) unpaired(p, d *replica.Replica, model string) string {
	if reason := cmp.Or(incompatible(p, d), OtherWeights(p, d, model)); reason != "" {
		return reason
	}
	return pl.outliers.WhyPairOut(outlier.Pair{Prefill: p.ID, Decode: d.ID})
}

// ejectedNow names the ejected legs of replicas, for people.
func (pl *Planner) ejectedNow(now time.Time) []Exclusion {
	if !pl.outliers.Active(now) {
		return nil
	}
	var all []Exclusion
	for _, s := range pl.outliers.Status(now) {
		if s.Replica == "" || s.State == outlier.InUse {
			continue
		}
		pool := "decode"
		if s.Leg == outlier.Prefill.String() {
			pool = "prefill"
		}
		all = append(all,
			Exclusion{Pool: pool, Replica: s.Replica, Reason: s.State.String() + " as " + s.Leg + ": " + s.Cause})
	}
	return all
}
