package planner

import (
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

// ejections are the candidates and pairs that a choice leaves out because they fail.
type ejections struct {
	suspects                 []suspect // ejected prefill candidates
	prefills, splits, wholes []int     // candidates: prefill; decode of transferred blocks; decode alone
	pairs                    []Pairing
	forced                   []string // used although ejected
}

// any reports whether a candidate or a pair is left out.
func (o *ejections) any() bool { return len(o.prefills)+len(o.splits)+len(o.wholes)+len(o.pairs) > 0 }

// keepPairs leaves out the same pairs and no candidate. It notes that all ejected candidates are used.
func (o *ejections) keepPairs() {
	*o = ejections{pairs: o.pairs, forced: append(o.forced, "all that are ejected")}
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

// pricePrefills prices the failures of the prefill candidates and lists the ejected ones.
func (o *ejections) pricePrefills(r *refusal, view *prefill.View, now time.Time) {
	b := r.comparison
	for i := range b.prefills {
		id := view.Replicas[b.prefills[i].Slot].ID
		v := r.outliers.Look(id, outlier.Prefill, now)
		b.prefills[i].Failures = v.Price
		if v.Out {
			o.suspects = append(o.suspects, suspect{i, id, v})
		}
	}
}

// priceDecodes prices the failures of the decode candidates, and finds what the choice leaves out.
func (o *ejections) priceDecodes(r *refusal, q *question, now time.Time) {
	b := r.comparison
	var splits, wholes []suspect
	for j := range b.decodes {
		id := b.pairs.decode.Replicas[b.decodes[j].Slot].ID
		v := r.outliers.Look(id, outlier.Decode, now)
		b.decodes[j].Failures = v.Price
		if v.Out {
			splits = append(splits, suspect{j, id, v})
		}
		if !q.local {
			continue
		}
		v = r.outliers.Look(id, outlier.Whole, now)
		b.decodes[j].Local.Failures = v.Price
		if v.Out {
			wholes = append(wholes, suspect{j, id, v})
		}
	}
	o.pairs = r.outliers.PairsOut(now)
	o.prefills = o.keepHalf(o.suspects, len(b.prefills))
	o.splits = o.keepHalf(splits, len(b.decodes)+r.fullAndWell(q, outlier.Decode, len(splits), now))
	o.wholes = o.keepHalf(wholes, len(b.decodes)+r.fullAndWell(q, outlier.Whole, len(wholes), now))
}

// keepHalf returns the candidates to leave out, at most half of the number of. Candidates with the most
// failed trials are left out first. keepHalf notes that the other suspects are used.
func (o *ejections) keepHalf(suspects []suspect, of int) []int {
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

// from takes the plans with left-out candidates and pairs from the table of b.
func (o *ejections) from(b *comparison) {
	t := &b.table
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
		b.excludePair(p)
	}
}
