package planner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/replica"
	"github.com/tandem-router/tandem/internal/roster"
	"github.com/tandem-router/tandem/prefill"
)

// refuse says why the comparison has no plan. It asks the pools again, this time for reasons. A replica that
// became a candidate meanwhile has no reason, and makes the caller plan again.
func (pl *Planner) refuse(q *question, now time.Time) error {
	var outP []prefill.Excluded
	var nowP []prefill.Candidate
	if q.SplitOK {
		nowP, _ = pl.prefill.Candidates(&q.prefill, now, nil, &outP)
	}
	outD, nowD := pl.excludedDecodes(q, now)
	if err := pl.later(q, outD); err != nil {
		return err
	}
	switch {
	case len(nowP) > len(pl.comparison.prefills) || nowD > len(pl.comparison.decodes):
		return errChanged
	case !q.SplitOK && !q.LocalOK:
		return &NoReplica{Pool: "pair", Reason: "the request may neither be split nor served by one replica"}
	case len(pl.comparison.decodes) == 0:
		return &NoReplica{
			Pool: "decode", Reason: listDecodes(outD),
			TooLarge: pl.comparison.rejected.Small > 0 && pl.comparison.rejected.Ill == 0,
			Draining: slices.ContainsFunc(outD, func(e decode.Excluded) bool { return e.Reason == roster.Draining }),
		}
	case len(pl.comparison.prefills) == 0:
		return &NoReplica{
			Pool: "prefill", Reason: listPrefills(outP), TooLarge: tooLarge(outP),
			Draining: slices.ContainsFunc(outP, func(e prefill.Excluded) bool { return e.Reason == roster.Draining }),
		}
	}
	return &NoReplica{Pool: "pair", Reason: pl.listPairs(q)}
}

// excludedDecodes returns the decode replicas that are no candidates, and the number of the others.
func (pl *Planner) excludedDecodes(q *question, now time.Time) (out []decode.Excluded, candidates int) {
	others, _, _ := pl.decode.Candidates(&q.decode, now, nil, &out)
	return out, len(others)
}

// later returns an error that asks for patience, if a replica without room now could serve the request
// later.
func (pl *Planner) later(q *question, out []decode.Excluded) error {
	var first *decode.Excluded
	perSecond := 0.0 // similar requests that find room, on all replicas together
	for i := range out {
		e := &out[i]
		if e.Room <= 0 || !q.LocalOK && !pl.pairable(q, e.ID) {
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
func (pl *Planner) pairable(q *question, id replica.ID) bool {
	var d *replica.Replica
	for _, r := range pl.pairs.decode.Replicas {
		if r.ID == id {
			d = r
		}
	}
	for i := range pl.comparison.prefills {
		p := pl.pairs.prefill.Replicas[pl.comparison.prefills[i].Slot]
		if d != nil && pl.unpaired(p, d, q.Model) == "" && !avoids(q.AvoidPairs, p.ID, id) {
			return true
		}
	}
	return false
}

func avoids(pairs []Pairing, p, d replica.ID) bool {
	return slices.Contains(pairs, (Pairing{p, d}))
}

// tooLarge reports whether nothing but the length of the prompt keeps the replicas of its model from taking
// it.
func tooLarge(out []prefill.Excluded) bool {
	long := func(e prefill.Excluded) bool { return e.Limit > 0 }
	ill := func(e prefill.Excluded) bool { return e.Ill }
	return slices.ContainsFunc(out, long) && !slices.ContainsFunc(out, ill)
}

func listDecodes(out []decode.Excluded) string {
	var reasons []string
	for _, e := range out {
		reasons = append(reasons, fmt.Sprintf("%s: %s", e.ID, e.Reason))
	}
	return some(reasons)
}

func listPrefills(out []prefill.Excluded) string {
	var reasons []string
	for _, e := range out {
		reasons = append(reasons, fmt.Sprintf("%s: %s", e.ID, e.Reason))
	}
	return some(reasons)
}

func (pl *Planner) listPairs(q *question) string {
	var reasons []string
	for _, e := range pl.excludedPairs(q) {
		reasons = append(reasons, fmt.Sprintf("%s with %s: %s", e.Replica, e.With, e.Reason))
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

// excluded names every replica that was no candidate.
func (pl *Planner) excluded(q *question, now time.Time) []Exclusion {
	var all []Exclusion
	if q.SplitOK {
		var out []prefill.Excluded
		_, _ = pl.prefill.Candidates(&q.prefill, now, nil, &out)
		for _, e := range out {
			all = append(all, Exclusion{Pool: "prefill", Replica: e.ID, Reason: e.Reason})
		}
	}
	out, _ := pl.excludedDecodes(q, now)
	for _, e := range out {
		all = append(all, Exclusion{Pool: "decode", Replica: e.ID, Reason: e.Reason})
	}
	all = append(all, pl.ejectedNow(now)...)
	return append(all, pl.excludedPairs(q)...)
}

// maxPairs bounds how many pairs an explanation names.
const maxPairs = 64

func (pl *Planner) excludedPairs(q *question) []Exclusion {
	var all []Exclusion
	for i := range pl.comparison.prefills {
		p := pl.pairs.prefill.Replicas[pl.comparison.prefills[i].Slot]
		for j := range pl.comparison.decodes {
			d := pl.pairs.decode.Replicas[pl.comparison.decodes[j].Slot]
			reason := pl.unpaired(p, d, q.Model)
			switch {
			case reason != "":
			case avoids(q.AvoidPairs, p.ID, d.ID):
				reason = "failed this request before"
			case pl.comparison.decodes[j].Saturated:
				reason = "requests that wait for their blocks take half of its room"
			}
			if reason != "" && len(all) < maxPairs {
				all = append(all, Exclusion{Pool: "pair", Replica: p.ID, With: d.ID, Reason: reason})
			}
		}
	}
	return all
}
