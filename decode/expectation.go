package decode

import (
	"math"

	"github.com/tandem-router/tandem/internal/estimate"
)

// A client that says how long an answer will be is believed as much as any other guess, until it is known how
// far off it is; it may well be off by hintDoubt.
const (
	hintUnit  = 1024
	hintDoubt = 2
)

// expectation is what is expected of the length of one request's answer. It stays what it is learned by.
type expectation struct {
	lengths *estimate.OutputLength
	hinted  *estimate.OutputLength // nil: the client said nothing
	hint    int                    // tokens that it said, above 0
}

// rest returns how many tokens an answer that has generated some already is expected to add.
func (e *expectation) rest(generated, limit int) int {
	if e.hinted == nil {
		return e.lengths.Rest(generated, limit)
	}
	return e.tokens(e.hinted.Rest(e.units(generated), e.limit(limit)), limit)
}

// room returns how many it may well add.
func (e *expectation) room(generated, limit int) int {
	if e.hinted == nil {
		return e.lengths.Room(generated, limit)
	}
	return e.tokens(e.hinted.Room(e.units(generated), e.limit(limit)), limit)
}

// survive fills in the chance that an answer with so many tokens goes on for each number of steps more.
func (e *expectation) survive(has int, steps, chance []float64) {
	if e.hinted == nil {
		e.lengths.Survive(has, 1, steps, chance)
		return
	}
	e.hinted.Survive(e.units(has), hintUnit/float64(e.hint), steps, chance)
}

// passed takes in that an answer that was known to have so many tokens has so many now.
func (e *expectation) passed(from, to int) {
	e.lengths.Passed(from, to)
	if e.hinted != nil {
		e.hinted.Passed(e.units(from), e.units(to))
	}
}

// learn takes in how long the answer was, of which some was known.
func (e *expectation) learn(from, tokens int) {
	e.lengths.Learn(from, tokens)
	if e.hinted != nil {
		e.hinted.Learn(e.units(from), max(1, e.units(tokens)))
	}
}

// cut takes in that the answer, of which some was known, had so many tokens when something else ended it.
func (e *expectation) cut(from, tokens int) {
	e.lengths.Cut(from, tokens)
	if e.hinted != nil {
		e.hinted.Cut(e.units(from), e.units(tokens))
	}
}

// units returns tokens as a part of the hint.
func (e *expectation) units(tokens int) int {
	if tokens < 0 {
		return tokens
	}
	return int(min(math.Round(float64(tokens)*hintUnit/float64(e.hint)), math.MaxInt32))
}

// limit returns a limit of new tokens as a part of the hint: one that allows a token allows a part of it,
// however large the hint is.
func (e *expectation) limit(tokens int) int {
	if tokens < 0 {
		return tokens
	}
	return int(min(math.Ceil(float64(tokens)*hintUnit/float64(e.hint)), math.MaxInt32))
}

// tokens is the reverse, at most limit.
func (e *expectation) tokens(units, limit int) int {
	n := int(math.Ceil(float64(units) * float64(e.hint) / hintUnit))
	if limit >= 0 {
		return min(n, limit)
	}
	return n
}
