package planner

import (
	"cmp"
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/prefill"
)

// Failures of replicas and pairs concern a plan twice. What they are expected to cost is one of its terms.
// And who is ejected takes no part, unless more than half of those who could serve the request would be out:
// then those with the fewest failed trials are used as they are, and the decision says so. A pair of which a
// trial has shown that it gives wrong text is used by nobody: an error is better than a wrong answer.

// out is who is to be left out of a choice.
type out struct {
	prefills, splits, wholes []int // candidates: prefill; decode of transferred blocks; decode alone
	pairs                    []outlier.Pair
	forced                   []string // who is used all the same
}

// any reports whether anybody is to be left out.
func (o *out) any() bool { return len(o.prefills)+len(o.splits)+len(o.wholes)+len(o.pairs) > 0 }

// pairsAlone leaves out its pairs and nobody else, of whom it notes that they are used.
func (o *out) pairsAlone() *out {
	return &out{pairs: o.pairs, forced: append(o.forced, "all that are ejected")}
}

// suspect is a candidate that is ejected.
type suspect struct {
	at int
	id replica.ID
	outlier.Verdict
}

// worse reports whether s has failed more trials than o, or, where they are equal, more requests.
func (s *suspect) worse(o *suspect) bool {
	if s.Wait != o.Wait {
		return s.Wait > o.Wait
	}
	return s.Price > o.Price
}

// Outliers tells which replicas and pairs fail. Safe for concurrent use.
func (pl *Planner) Outliers() *outlier.Set { return &pl.outliers }

// failedPrefills notes what failures of the prefill candidates cost, and who of them is ejected.
func (pl *Planner) failedPrefills(view *prefill.View, now time.Time) {
	b := &pl.scratch
	b.outPrefills = b.outPrefills[:0]
	for i := range b.prefills {
		id := view.Replicas[b.prefills[i].Slot].ID
		v := pl.outliers.Look(id, outlier.Prefill, now)
		b.prefills[i].Failures = v.Price
		if v.Out {
			b.outPrefills = append(b.outPrefills, suspect{i, id, v})
		}
	}
}

// failedNow notes what failures of the decode candidates cost, and tells who is to be left out.
func (pl *Planner) failedNow(q *question, now time.Time) *out {
	b := &pl.scratch
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
	o.prefills = o.keepHalf(b.outPrefills, len(b.prefills))
	o.splits = o.keepHalf(splits, len(b.decodes)+pl.fullAndWell(q, outlier.Decode, len(splits), now))
	o.wholes = o.keepHalf(wholes, len(b.decodes)+pl.fullAndWell(q, outlier.Whole, len(wholes), now))
	return o
}

// fullAndWell counts the decode replicas that have no room now and are not ejected: those are worth waiting
// for. Without suspects nobody wants to know.
func (pl *Planner) fullAndWell(q *question, leg outlier.Leg, suspects int, now time.Time) int {
	if suspects == 0 || pl.scratch.rejected.Full == 0 {
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

// keepHalf returns the candidates to be left out, at most half of so many: those first whose trials failed
// most often. Of the others it notes that they are used.
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

// eject takes the plans of who is out from the table.
func (pl *Planner) eject(o *out) {
	t := &pl.scratch.table
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
		pl.excludePair(Pairing(p))
	}
}

// waits reports whether a replica that has no room now could serve the request later.
func (pl *Planner) waits(q *question, now time.Time) bool {
	if pl.scratch.rejected.Full == 0 {
		return false
	}
	all, _ := pl.excludedDecodes(q, now)
	return pl.later(q, all) != nil
}

// Incompatible returns the reason for which KV blocks of p mean nothing to d, "" if they do. Safe for
// concurrent use.
func Incompatible(p, d *replica.Replica) string { return incompatible(p, d) }

// unpaired returns the reason for which p and d make no pair for a model, "" if they make one.
func (pl *Planner) unpaired(p, d *replica.Replica, model string) string {
	if reason := cmp.Or(incompatible(p, d), OtherWeights(p, d, model)); reason != "" {
		return reason
	}
	return pl.outliers.WhyPairOut(outlier.Pair{Prefill: p.ID, Decode: d.ID})
}

// ejectedNow names the legs of candidates that are kept out, for people.
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
