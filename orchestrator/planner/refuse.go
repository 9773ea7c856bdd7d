package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
	"github.com/tandem-router/tandem/orchestrator/outlier"
	"github.com/tandem-router/tandem/prefill"
)

// refusal says why a request has no plan, and why replicas and pairs take no part in a plan. It asks the
// pools again, this time for reasons. Guarded by Planner.mu.
type refusal struct {
	prefill    *prefill.Pool
	decode     *decode.Pool
	outliers   *outlier.Set
	comparison *comparison
}

// refuse says why the comparison has no plan. A replica that became a candidate meanwhile has no reason, and
// makes the caller plan again.
func (r *refusal) refuse(q *question, now time.Time) error {
	b := r.comparison
	var outP []prefill.Excluded
	var nowP []prefill.Candidate
	if q.SplitOK {
		nowP, _ = r.prefill.Candidates(&q.prefill, now, nil, &outP)
	}
	outD, nowD := r.decodes(q, now)
	if err := r.later(q, outD); err != nil {
		return err
	}
	switch {
	case len(nowP) > len(b.prefills) || nowD > len(b.decodes):
		return errChanged
	case !q.SplitOK && !q.local:
		return &NoReplica{Pool: "pair", Reason: "the request may neither be split nor served by one replica"}
	case len(b.decodes) == 0:
		return &NoReplica{
			Pool: "decode", Reason: listDecodes(outD),
			TooLarge: b.rejected.Small > 0 && b.rejected.Ill == 0,
			Draining: slices.ContainsFunc(outD, func(e decode.Excluded) bool { return e.Reason == roster.Draining }),
		}
	case len(b.prefills) == 0:
		return &NoReplica{
			Pool: "prefill", Reason: listPrefills(outP), TooLarge: tooLarge(outP),
			Draining: slices.ContainsFunc(outP, func(e prefill.Excluded) bool { return e.Reason == roster.Draining }),
		}
	}
	return &NoReplica{Pool: "pair", Reason: r.listPairs(q)}
}

// decodes returns the decode replicas that are no candidates, and the number of the others.
func (r *refusal) decodes(q *question, now time.Time) (out []decode.Excluded, candidates int) {
	others, _, _ := r.decode.Candidates(&q.decode, now, nil, &out)
	return out, len(others)
}

// later returns an error that asks for patience, if a replica without room now could serve the request
// later.
func (r *refusal) later(q *question, out []decode.Excluded) error {
	var first *decode.Excluded
	perSecond := 0.0 // similar requests that find room, on all replicas together
	for i := range out {
		e := &out[i]
		if e.Room <= 0 || !q.local && !r.pairable(q, e.ID) {
			continue
		}
		if first == nil || e.Room < first.Room {
			first = e
		}
		if e.Every > 0 {
			perSecond += 1 / e.Every.Seconds()
		}
	}
	if first == nil {
		return nil
	}
	var reasons []string
	part := first.Part
	for i := range out {
		if out[i].Room > 0 {
			part = min(part, out[i].Part)
			reasons = append(reasons, string(out[i].ID)+" "+out[i].Reason)
		}
	}
	full := &NoRoom{Reason: "decode: " + some(reasons), Retry: max(first.Room, decode.MinRetry), Part: part}
	if perSecond > 0 {
		full.Every = seconds(1 / perSecond)
	}
	return full
}

// pairable reports whether some prefill candidate can work with the decode replica id.
func (r *refusal) pairable(q *question, id replica.ID) bool {
	b := r.comparison
	at := slices.IndexFunc(b.pairs.decode.Replicas, func(d *replica.Replica) bool { return d.ID == id })
	for i := range b.prefills {
		p := b.pairs.prefill.Replicas[b.prefills[i].Slot]
		if at >= 0 && r.unpaired(p, b.pairs.decode.Replicas[at], q.Model) == "" &&
			!slices.Contains(q.AvoidPairs, Pairing{Prefill: p.ID, Decode: id}) {
			return true
		}
	}
	return false
}

// fullAndWell counts the decode replicas that have no room now and are not ejected: it is worth waiting for
// them. Without suspects the count is not needed, and is 0.
func (r *refusal) fullAndWell(q *question, leg outlier.Leg, suspects int, now time.Time) int {
	if suspects == 0 || r.comparison.rejected.Full == 0 {
		return 0
	}
	n := 0
	all, _ := r.decodes(q, now)
	for _, e := range all {
		if e.Room > 0 && !r.outliers.Look(e.ID, leg, now).Out {
			n++
		}
	}
	return n
}

// waits reports whether a replica that has no room now could serve the request later.
func (r *refusal) waits(q *question, now time.Time) bool {
	if r.comparison.rejected.Full == 0 {
		return false
	}
	all, _ := r.decodes(q, now)
	return r.later(q, all) != nil
}

// unpaired returns the reason why p and d make no pair for a model, "" if they make one.
func (r *refusal) unpaired(p, d *replica.Replica, model string) string {
	if reason := cmp.Or(Incompatible(p, d), OtherWeights(p, d, model)); reason != "" {
		return reason
	}
	return r.outliers.WhyPairOut(Pairing{Prefill: p.ID, Decode: d.ID})
}

// tooLarge reports whether nothing but the length of the prompt keeps the replicas of its model from taking
// it.
func tooLarge(out []prefill.Excluded) bool {
	long := func(e prefill.Excluded) bool { return e.Limit > 0 }
	ill := func(e prefill.Excluded) bool { return e.Ill }
	return slices.ContainsFunc(out, long) && !slices.ContainsFunc(out, ill)
}

func listDecodes(out []decode.Excluded) string {
	return list(out, func(e *decode.Excluded) string { return fmt.Sprintf("%s: %s", e.ID, e.Reason) })
}

func listPrefills(out []prefill.Excluded) string {
	return list(out, func(e *prefill.Excluded) string { return fmt.Sprintf("%s: %s", e.ID, e.Reason) })
}

func (r *refusal) listPairs(q *question) string {
	return list(r.pairs(q), func(e *Exclusion) string {
		return fmt.Sprintf("%s with %s: %s", e.Replica, e.With, e.Reason)
	})
}

// list says for each entry why it was left out, and joins the first few reasons.
func list[E any](out []E, say func(*E) string) string {
	var reasons []string
	for i := range out {
		reasons = append(reasons, say(&out[i]))
	}
	return some(reasons)
}

// some joins the first few reasons.
func some(reasons []string) string {
	const shown = 4
	switch {
	case len(reasons) == 0:
		return "none has joined, see /readyz"
	case len(reasons) > shown:
		return fmt.Sprintf("%s and %d more", strings.Join(reasons[:shown], "; "), len(reasons)-shown)
	}
	return strings.Join(reasons, "; ")
}

// all names every replica and pair that was no candidate.
func (r *refusal) all(q *question, now time.Time) []Exclusion {
	var all []Exclusion
	if q.SplitOK {
		var out []prefill.Excluded
		_, _ = r.prefill.Candidates(&q.prefill, now, nil, &out)
		for _, e := range out {
			all = append(all, Exclusion{Pool: "prefill", Replica: e.ID, Reason: e.Reason})
		}
	}
	out, _ := r.decodes(q, now)
	for _, e := range out {
		all = append(all, Exclusion{Pool: "decode", Replica: e.ID, Reason: e.Reason})
	}
	all = append(all, r.ejected(now)...)
	return append(all, r.pairs(q)...)
}

// maxPairs bounds how many pairs an explanation names.
const maxPairs = 64

func (r *refusal) pairs(q *question) []Exclusion {
	var all []Exclusion
	b := r.comparison
	for i := range b.prefills {
		p := b.pairs.prefill.Replicas[b.prefills[i].Slot]
		for j := range b.decodes {
			d := b.pairs.decode.Replicas[b.decodes[j].Slot]
			reason := r.unpaired(p, d, q.Model)
			switch {
			case reason != "":
			case slices.Contains(q.AvoidPairs, Pairing{Prefill: p.ID, Decode: d.ID}):
				reason = "failed this request before"
			case b.decodes[j].Saturated:
				reason = "requests that wait for their blocks take half of its room"
			}
			if reason != "" && len(all) < maxPairs {
				all = append(all, Exclusion{Pool: "pair", Replica: p.ID, With: d.ID, Reason: reason})
			}
		}
	}
	return all
}

// ejected names the ejected legs of replicas, for people.
func (r *refusal) ejected(now time.Time) []Exclusion {
	if !r.outliers.Active(now) {
		return nil
	}
	var all []Exclusion
	for _, s := range r.outliers.Status(now) {
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
