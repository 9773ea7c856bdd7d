package estimate

import "math"

// A client's hint of an answer's length counts as much as any other guess, until its error is known. The
// hint may be wrong by hintDoubt.
const (
	hintUnit  = 1024
	hintDoubt = 2
)

// Expectation is the expected length of one request's answer. The groups that gave the expectation learn
// from the answer.
type Expectation struct {
	lengths *OutputLength
	hinted  *OutputLength // nil: the client gave no hint
	hint    int           // in tokens, above 0
	told    int           // tokens of each sequence that the groups have learned already
}

// Rest returns how many more tokens are expected of an answer that has generated some already.
func (e *Expectation) Rest(generated, limit int) int {
	if e.hinted == nil {
		return e.lengths.Rest(generated, limit)
	}
	return e.tokens(e.hinted.Rest(e.units(generated), e.limit(limit)), limit)
}

// Room returns a cautious upper estimate of the tokens that are still to come.
func (e *Expectation) Room(generated, limit int) int {
	if e.hinted == nil {
		return e.lengths.Room(generated, limit)
	}
	return e.tokens(e.hinted.Room(e.units(generated), e.limit(limit)), limit)
}

// Survive fills in, for each number of further steps, the chance that an answer with has tokens continues so
// long.
func (e *Expectation) Survive(has int, steps, chance []float64) {
	if e.hinted == nil {
		e.lengths.Survive(has, 1, steps, chance)
		return
	}
	e.hinted.Survive(e.units(has), hintUnit/float64(e.hint), steps, chance)
}

// Told returns how many tokens of the answer the groups have learned already.
func (e *Expectation) Told() int { return e.told }

// passed records that the answer has so many tokens now.
func (e *Expectation) passed(to int) {
	e.lengths.Passed(e.told, to)
	if e.hinted != nil {
		e.hinted.Passed(e.units(e.told), e.units(to))
	}
}

// learn records the final length of the answer.
func (e *Expectation) learn(tokens int) {
	e.lengths.Learn(e.told, tokens)
	if e.hinted != nil {
		e.hinted.Learn(e.units(e.told), max(1, e.units(tokens)))
	}
}

// cut records that the answer had so many tokens when something else ended it.
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

// limit converts a limit of new tokens into units of the hint. A limit of at least one token stays at least
// one unit, however large the hint is.
func (e *Expectation) limit(tokens int) int {
	if tokens < 0 {
		return tokens
	}
	return int(min(math.Ceil(float64(tokens)*hintUnit/float64(e.hint)), math.MaxInt32))
}

// tokens is the reverse of units, and at most limit.
func (e *Expectation) tokens(units, limit int) int {
	n := int(math.Ceil(float64(units) * float64(e.hint) / hintUnit))
	if limit >= 0 {
		return min(n, limit)
	}
	return n
}
