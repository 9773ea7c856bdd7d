package planner

import (
	"math"
	"strconv"

	"github.com/tandem-router/tandem/scoring"
)

// why names the term by which the chosen plan is ahead most: of the best plan with another prefill side, or
// with another decode replica.
func (b *comparison) why() string {
	switch {
	case b.policy.ruled() != "":
		return WhyRule
	case b.plans == 1:
		return WhyOnly
	}
	mine := b.terms(b.chosen)
	word, lead := ahead(&mine, b.otherPrefill(&mine))
	if w, l := ahead(&mine, b.otherDecode(&mine)); l > lead {
		word, lead = w, l
	}
	if lead <= b.table.Margin(mine.Total()) {
		return WhyTie
	}
	return word
}

// ahead returns the term in which mine is cheaper than other by most, and that difference.
func ahead(mine, other *scoring.Terms) (word string, lead float64) {
	for _, x := range [...]struct {
		word string
		lead float64
	}{
		{WhyMatch, other.Prefill + other.Read + other.Evicted -
			mine.Prefill - mine.Read - mine.Evicted},
		{WhyLoad, other.Wait - mine.Wait},
		{WhyLink, other.Transfer - mine.Transfer},
		{WhyFailures, other.Failures - mine.Failures},
		{WhySpeed, other.Answer - mine.Answer},
		{WhyRoom, other.Room + other.Decode + other.Pressure + other.Interference -
			mine.Room - mine.Decode - mine.Pressure - mine.Interference},
		{WhyGoal, other.Late - mine.Late},
	} {
		if x.lead > lead {
			word, lead = x.word, x.lead
		}
	}
	return word, lead
}

// otherPrefill returns the terms of the best plan with the same decode replica and another prefill replica.
// For a plan of a decode replica alone it returns the terms of the best Split. It returns mine if there is
// no such plan.
func (b *comparison) otherPrefill(mine *scoring.Terms) *scoring.Terms {
	if b.chosen.Prefill < 0 {
		return b.termsOr(b.best[0], mine)
	}
	return b.termsOr(b.table.OtherSender(b.chosen), mine)
}

// otherDecode returns the terms of the chosen plan with the best other decode replica, mine if there is none.
func (b *comparison) otherDecode(mine *scoring.Terms) *scoring.Terms {
	if b.chosen.Prefill >= 0 {
		return b.termsOr(b.table.OtherReceiver(b.chosen), mine)
	}
	best := none
	for j := range b.decodes {
		if cost, ok := b.table.Alone(j); ok && j != int(b.chosen.Decode) && cost < best.Cost {
			best = scoring.Choice{Prefill: -1, Decode: int32(j), Cost: cost}
		}
	}
	return b.termsOr(best, mine)
}

// none is no plan.
var none = scoring.Choice{Prefill: -1, Decode: -1, Cost: math.Inf(1)}

// termsOr returns the terms of the plan c, mine where it is none.
func (b *comparison) termsOr(c scoring.Choice, mine *scoring.Terms) *scoring.Terms {
	if math.IsInf(c.Cost, 1) {
		return mine
	}
	return new(b.terms(c))
}

// sentence says for people why the plan was chosen.
func (b *comparison) sentence(d *Decision) string {
	var room [200]byte
	on := &b.decodes[b.chosen.Decode]
	s := room[:0]
	if d.Mode == Split {
		s = appendCached(s, d, string(d.Prefill))
		s = appendPulled(s, d.Plans[0].OnPrefill.Pulled)
		s = appendWait(s, b.prefills[b.chosen.Prefill].Wait)
		s = append(append(s, "; "...), d.Decode...)
	} else {
		s = appendPulled(appendAlone(s, d), d.Plans[0].OnDecode.Pulled)
		s = appendWait(s, on.Local.Wait)
		s = append(s, "; it"...)
	}
	s = appendRoom(s, on.Free)
	if d.Mode == Split && d.Held > 0 {
		s = append(thousands(append(s, " and "...), d.Held), " tokens already"...)
	}
	if d.Ties > 1 { // with any cause: the cause may only compare with plans of another kind
		s = append(strconv.AppendInt(append(s, "; drawn among "...), int64(d.Ties), 10), " plans as good"...)
	}
	if d.Why == WhyRule {
		s = append(append(s, "; "...), d.Rules...)
	}
	return string(s)
}

func appendAlone(s []byte, d *Decision) []byte {
	s = append(s, d.Decode...)
	if d.Stored == 0 {
		return appendCached(append(s, " prefills itself: "...), d, "it")
	}
	s = thousands(append(s, " without a prefill leg: the store has "...), d.Stored)
	return append(thousands(append(s, " of "...), d.Tokens), " tokens"...)
}

func appendCached(s []byte, d *Decision, on string) []byte {
	switch {
	case d.Guessed:
		s = append(s, "an unknown number"...)
	case d.Matched == 0:
		s = append(s, "none"...)
	default:
		s = thousands(s, d.Matched)
	}
	s = thousands(append(s, " of "...), d.Tokens)
	return append(append(s, " tokens cached on "...), on...)
}

func appendPulled(s []byte, of Pulled) []byte {
	if of.Tokens == 0 {
		return s
	}
	s = append(thousands(append(s, ", with "...), of.Tokens), " pulled from "...)
	return append(s, of.Source...)
}

func appendWait(s []byte, wait float64) []byte {
	if wait < 1e-3 {
		return append(s, ", idle"...)
	}
	s = append(s, ", after "...)
	if wait < 10 {
		return append(strconv.AppendInt(s, int64(wait*1e3+0.5), 10), " ms of queue"...)
	}
	return append(strconv.AppendInt(s, int64(wait+0.5), 10), " s of queue"...)
}

func appendRoom(s []byte, free int) []byte {
	if free < 0 {
		return append(s, " has an unknown number of free blocks"...)
	}
	return append(thousands(append(s, " has "...), free), " free blocks"...)
}

// thousands appends n with commas.
func thousands(s []byte, n int) []byte {
	if n >= 1000 {
		s = append(thousands(s, n/1000), ',')
		n %= 1000
		s = append(s, byte('0'+n/100), byte('0'+n/10%10))
		n %= 10
	}
	return strconv.AppendInt(s, int64(n), 10)
}
