package estimate

import "math"

const (
	textCounts = 50  // counts that the learned ratio is a mean of
	textOff    = 1.5 // logarithm of the ratio by which one count may differ from the others
)

// TextLength learns how long prompts are beside their estimates. Where nobody knows the token ids, tokens are
// estimated from bytes, and languages differ by a factor of four. The zero value leaves estimates as they
// are. Guarded by the lock of the planner.
type TextLength struct {
	log float64 // of tokens per estimated token, a running mean
	n   int
}

// Learn takes in one prompt: its tokens by the engine's count, and its tokens by estimate. Both are above 0.
func (x *TextLength) Learn(estimated, counted int) {
	x.n = min(x.n+1, textCounts)
	off := math.Log(float64(counted)/float64(estimated)) - x.log
	x.log += clip(off, -textOff, textOff) / float64(x.n)
}

// Ratio returns the tokens of a prompt per estimated token.
func (x *TextLength) Ratio() float64 { return math.Exp(x.log) }
