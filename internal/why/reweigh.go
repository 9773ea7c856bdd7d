package why

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-router/tandem/scoring"
)

// Weights are the weights for another evaluation of a decision; nil keeps the weight that was in force.
type Weights struct {
	Alpha, Beta, Gamma, DecodePenalty *float64
}

// none reports whether w changes nothing.
func (w Weights) none() bool { return w == Weights{} }

func (w Weights) String() string {
	var said []string
	for _, x := range []struct {
		name string
		is   *float64
	}{{"alpha", w.Alpha}, {"beta", w.Beta}, {"gamma", w.Gamma}, {"decode_penalty", w.DecodePenalty}} {
		if x.is != nil {
			said = append(said, x.name+" "+strconv.FormatFloat(*x.is, 'g', -1, 64))
		}
	}
	return strings.Join(said, ", ")
}

// Totals returns what each recorded plan costs with other weights. Every term but one is proportional to one
// weight. Only the interference of a decode replica depends on two. Nearly all of the interference comes from
// decode_penalty, so all is counted under that weight.
func (r *Record) Totals(w Weights) ([]float64, error) {
	var totals []float64
	for i := range r.Decision.Plans {
		p := &r.Decision.Plans[i]
		total := p.Total
		for _, term := range []string{"wait", "prefill", "decode", "interference", "pressure"} {
			was, now := r.weightsOf(p, term, w)
			value := p.weighed(term)
			switch {
			case now == nil || *now == was:
			case was == 0:
				return nil, fmt.Errorf(
					"the %s of %s cannot be weighed with %v: its weight was 0, so that the record does not have it", term,
					p.name(), w,
				)
			default:
				total += value * (*now/was - 1)
			}
		}
		totals = append(totals, total)
	}
	return totals, nil
}

// Plans within these margins of the best are a tie, as in orchestrator/policy.
const (
	tieMS    = 2.
	tieShare = 0.02
)

// ties returns the planner's rule for equal plans, and the unit: the number of a record's cost units in one
// of the planner's.
func (r *Record) ties() (ties scoring.Ties, unit float64) {
	var m scoring.Model = &scoring.Seconds{}
	unit = 1e3 // milliseconds
	if r.Decision.Units == "raw" {
		m, unit = &scoring.Raw{}, 1
	}
	return m.Ties(tieMS*time.Millisecond, tieShare), unit
}

// tied returns which plans are as good as the best, including the best. totals are the costs of the plans. If
// Split plans go before Local plans and a Split plan is the best, no Local plan is tied.
func (r *Record) tied(totals []float64) []int {
	least, bestIsSplit := math.Inf(1), false
	for i, total := range totals {
		split := r.Decision.Plans[i].Prefill != ""
		if total < least || total == least && split {
			least, bestIsSplit = total, split
		}
	}
	ties, unit := r.ties()
	limit := unit * ties.Limit(least/unit)
	var tied []int
	for i, total := range totals {
		outdone := ties.SplitFirst && bestIsSplit && r.Decision.Plans[i].Prefill == ""
		if total <= limit && !outdone {
			tied = append(tied, i)
		}
	}
	return tied
}

// weightsOf returns the weight that a term of p was multiplied by, and the new weight, nil for the same.
func (r *Record) weightsOf(p *plan, term string, w Weights) (was float64, now *float64) {
	local := p.Prefill == ""
	switch term {
	case "wait":
		return r.Config.Beta, w.Beta
	case "prefill":
		return r.alpha(p), w.Alpha
	case "pressure":
		return r.Config.Gamma, w.Gamma
	case "interference":
		if !local {
			return r.Config.Beta, w.Beta
		}
	}
	return r.Config.DecodePenalty, w.DecodePenalty
}

// weighed returns the part of a term of p that was multiplied by its weight.
func (p *plan) weighed(term string) float64 {
	if term == "prefill" && p.Prefill == "" && p.OnDecode != nil {
		return p.Terms[term] - p.OnDecode.Beside
	}
	return p.Terms[term]
}

// alpha returns the weight of p's prefill term. It is 1 in the formula's own units, and in records without
// it: older records lack it for a decode replica alone.
func (r *Record) alpha(p *plan) float64 {
	if set, err := strconv.ParseFloat(r.Config.Alpha, 64); err == nil {
		return set
	}
	switch {
	case r.Decision.Units == "raw":
		return 1
	case p.OnPrefill != nil:
		return p.OnPrefill.Alpha
	case p.Prefill == "" && p.OnDecode != nil && p.OnDecode.Alpha > 0:
		return p.OnDecode.Alpha
	}
	return 1
}
