package planner

import (
	"cmp"
	"math"
	"time"

	"github.com/tandem-router/tandem/decode"
	"github.com/tandem-router/tandem/internal/roster"
	"github.com/tandem-router/tandem/prefill"
	"github.com/tandem-router/tandem/scoring"
)

// decisionAlloc is the memory of one Decision, taken in one piece.
type decisionAlloc struct {
	decision Decision
	plans    [1 + keptSplits + keptLocals]Plan
	prefills [1 + keptSplits]PrefillSide
	decodes  [1 + keptSplits + keptLocals]DecodeSide
}

// record writes down the comparison.
func (b *comparison) record(q *question, now time.Time) *Decision {
	alloc := &decisionAlloc{}
	d := &alloc.decision
	*d = Decision{
		ID: q.ID, Time: now, Model: q.Model, Tokens: q.decode.Tokens, Exact: q.Exact,
		Units:    unitsOf(b.policy.Weights.Units),
		Compared: b.plans, Ties: b.ties, Forced: b.forced,
	}
	d.Plans = alloc.plans[:0]
	alloc.note(b, b.chosen)
	for _, c := range b.best {
		alloc.note(b, c)
	}
	for _, c := range b.locals {
		alloc.note(b, c)
	}
	first := &d.Plans[0]
	d.Mode = first.Mode
	d.Prefill = first.Prefill
	d.Decode = first.Decode
	d.sum(b, q)
	d.Why = b.why()
	d.Rules = b.policy.ruled()
	d.Reason = b.sentence(d)
	return d
}

// note appends the plan c, unless it is none or stands there already.
func (alloc *decisionAlloc) note(b *comparison, c scoring.Choice) {
	d := &alloc.decision
	if math.IsInf(c.Cost, 1) ||
		len(d.Plans) > 0 && c.Prefill == b.chosen.Prefill && c.Decode == b.chosen.Decode {
		return
	}
	n := len(d.Plans)
	terms := b.terms(c)
	if b.policy.Weights.Units == scoring.InSeconds {
		terms = terms.Scale(1e3)
	}
	d.Plans = append(d.Plans, Plan{
		Mode: Local, Decode: b.pairs.decode.Replicas[b.decodes[c.Decode].Slot].ID, Terms: terms,
		Total: terms.Total(),
	})
	plan := &d.Plans[n]
	plan.OnDecode = &alloc.decodes[n]
	*plan.OnDecode = decodeSide(&b.decodes[c.Decode])
	switch {
	case c.Prefill < 0 && b.policy.Weights.Units == scoring.InSeconds:
		local := &b.decodes[c.Decode].Local
		plan.OnDecode.Pulled = pulledFrom(b.decodes[c.Decode].Source)
		plan.OnDecode.Alpha, plan.OnDecode.Beside = b.policy.Weights.Alpha.At(local.Queue), local.Between*1e3
	case c.Prefill >= 0:
		p := &b.prefills[c.Prefill]
		plan.Mode, plan.Prefill = Split, b.pairs.prefill.Replicas[p.Slot].ID
		if perByte := b.table.Rate(int(c.Prefill), int(c.Decode)); perByte > 0 {
			plan.GBps = 1e-9 / perByte
		}
		plan.OnPrefill = &alloc.prefills[n]
		*plan.OnPrefill = prefillSide(p, b.policy.Weights.Alpha)
	}
}

// sum fills in what concerns the request as a whole.
func (d *Decision) sum(b *comparison, q *question) {
	d.available(b, q)
	on := &b.decodes[b.chosen.Decode]
	d.Held, d.Output = on.Matched, int(on.Output)
	d.Stored = q.stored
	if b.chosen.Prefill >= 0 {
		p := &b.prefills[b.chosen.Prefill]
		d.Matched, d.Guessed = p.Matched, p.Blind || q.PrefillKeys == nil
		if p.Unknown {
			d.Unknown = append(d.Unknown, "load of "+string(d.Prefill))
		}
	} else {
		d.Matched, d.Guessed = on.Matched, on.Blind || q.DecodeKeys == nil
	}
	d.TTFT = b.ttft().Total() * 1e3
	if on.Unknown {
		d.Unknown = append(d.Unknown, "load of "+string(d.Decode))
	}
	if on.Free < 0 {
		d.Unknown = append(d.Unknown, "capacity of "+string(d.Decode))
	}
	if q.Chunk > 0 {
		d.Unknown = append(d.Unknown, "tokens: the prefix is matched by its text")
	}
	switch at := cmp.Or(d.Prefill, d.Decode); {
	case q.DecodeKeys == nil && q.PrefillKeys == nil:
		d.Unknown = append(d.Unknown, "prefix")
	case d.Guessed:
		d.Unknown = append(d.Unknown, "prefix on "+string(at))
	}
}

// available finds the deepest match on all replicas that could prefill, including excluded ones. It counts
// decode replicas only where they may prefill for themselves. A blind replica is unknown, not empty, and
// counted as blind.
func (d *Decision) available(b *comparison, q *question) {
	for i := range b.prefills {
		if c := &b.prefills[i]; q.PrefillKeys != nil {
			d.look(c.Matched, c.Blind, c.Truncated)
		}
	}
	if !q.local || q.DecodeKeys == nil {
		return
	}
	for j := range b.decodes {
		c := &b.decodes[j]
		d.look(c.Matched, c.Blind, c.Truncated)
	}
	d.Available = max(d.Available, b.rejected.Matched)
	d.Blind += b.rejected.Blind
}

// look takes one replica into account.
func (d *Decision) look(matched int, blind, truncated bool) {
	switch {
	case blind:
		d.Blind++
		return
	case truncated:
		d.Truncated++
	}
	d.Available = max(d.Available, matched)
}

func prefillSide(c *prefill.Candidate, alpha scoring.Alpha) PrefillSide {
	s := PrefillSide{
		Matched: c.Matched, Below: c.Below, Queued: c.Queued,
		Usage: orMinus(c.Usage), Rho: c.Rho, Alpha: alpha.At(c.Prefill.Queue),
		LoadAge: ageMS(c.LoadAge), Trust: c.Trust,
	}
	s.Expected, s.Note = remark(c.Expected, c.Blind, c.Truncated)
	s.Pulled = pulledFrom(c.Source)
	return s
}

func pulledFrom(s roster.Source) Pulled {
	if s.Replica == nil {
		return Pulled{}
	}
	return Pulled{s.Tokens, s.ID}
}

func decodeSide(c *decode.Candidate) DecodeSide {
	s := DecodeSide{
		Matched: c.Matched, Below: c.Below, Need: c.Need, Free: c.Free, Soft: c.Reserved, Running: int(c.Running),
		Step: c.Step * 1e3, Piece: c.Local.Piece * 1e3,
		Usage: orMinus(c.Usage), LoadAge: ageMS(c.LoadAge), Trust: c.Trust,
	}
	s.Expected, s.Note = remark(c.Expected, c.Blind, c.Truncated)
	return s
}

// remark says why a match may be wrong, and what the plan is priced with where it is a guess.
func remark(expected int, blind, truncated bool) (int, Note) {
	switch {
	case blind:
		return expected, NoteBlind
	case truncated:
		return 0, NoteTruncated
	}
	return 0, 0
}

func orMinus(x float64) float64 {
	if math.IsNaN(x) {
		return -1
	}
	return x
}

func ageMS(d time.Duration) float64 {
	if d < 0 {
		return -1
	}
	return d.Seconds() * 1e3
}
