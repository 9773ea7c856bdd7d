package estimate

import "math"

// A client that says how long an answer will be is believed as much as any other guess, until it is known
// how far off it is; it may well be off by hintDoubt.
const (
	hintUnit  = 1024
	hintDoubt = 2
)

// Expectation is what is expected of the length of one request's answer. The answer is learned by the groups
// that it was expected by.
type Expectation struct {
	lengths *OutputLength
	hinted  *OutputLength // nil: the client said nothing
	hint    int           // tokens that it said, above 0
	told    int           // tokens of each sequence that groups have learned of already
}

// Rest returns how many tokens an answer that has generated some already is expected to add.
func (e *Expectation) Rest(generated, limit int) int {
	if e.hinted == nil {
		return e.lengths.Rest(generated, limit)
	}
	return e.tokens(e.hinted.Rest(e.units(generated), e.limit(limit)), limit)
}

// Room returns how many it may well add.
func (e *Expectation) Room(generated, limit int) int {
	if e.hinted == nil {
		return e.lengths.Room(generated, limit)
	}
	return e.tokens(e.hinted.Room(e.units(generated), e.limit(limit)), limit)
}

// Survive fills in the chance that an answer with so many tokens goes on for each number of steps more.
func (e *Expectation) Survive(has int, steps, chance []float64) {
	if e.hinted == nil {
		e.lengths.Survive(has, 1, steps, chance)
		return
	}
	e.hinted.Survive(e.units(has), hintUnit/float64(e.hint), steps, chance)
}

// Told returns of how many tokens of the answer the groups have learned already.
func (e *Expectation) Told() int { return e.told }

// passed takes in that the answer has so many tokens now.
func (e *Expectation) passed(to int) {
	e.lengths.Passed(e.told, to)
	if e.hinted != nil {
		e.hinted.Passed(e.units(e.told), e.units(to))
	}
}

// learn takes in how long the answer was.
func (e *Expectation) learn(tokens int) {
	e.lengths.Learn(e.told, tokens)
	if e.hinted != nil {
		e.hinted.Learn(e.units(e.told), max(1, e.units(tokens)))
	}
}

// cut takes in that the answer had so many tokens when something else ended it.
func (e *Expectation) cut(tokens int) {
	e.lengths.Cut(e.told, tokens)
	if e.hinted != nil {
		e.hinted.Cut(e.units(e.told), e.units(tokens))
	}
}

// units returns tokens as a part of the hint.
func (e *Expectation) units(tokens int) int {
	if tokens < 0 {
		return tokens
	}
	return int(min(math.Round(float64(tokens)*hintUnit/float64(e.hint)), math.MaxInt32))
}

// limit returns a limit of new tokens as a part of the hint: one that allows a token allows a part of it,
// however large the hint is.
func (e *Expectation) limit(tokens int) int {
	if tokens < 0 {
		return tokens
	}
	return int(min(math.Ceil(float64(tokens)*hintUnit/float64(e.hint)), math.MaxInt32))
}

// tokens is the reverse, at most limit.
func (e *Expectation) tokens(units, limit int) int {
	n := int(math.Ceil(float64(units) * float64(e.hint) / hintUnit))
	if limit >= 0 {
		return min(n, limit)
	}
	return n
}
