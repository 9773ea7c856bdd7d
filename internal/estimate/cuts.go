package estimate

import "time"

// An engine cuts long prompts itself, into what one of its steps computes (--max-num-batched-tokens). Where
// a piece is more than that, pieces bring the streams there nothing, and cost the prompts a decode step
// between each two. How large its steps are no metric of vLLM 0.32 tells: iteration_tokens_total counts a
// whole prompt in the step of its first token (v1/metrics/stats.py). It shows in the pauses of the streams
// beside a piece: one long one where the engine makes one step of it, several that are alike where it makes
// several. How many steps there are tells nothing: a fast engine makes some while a piece is on its way
// there and back. Prompts still take turns at an engine that cuts them itself, as a whole.

const (
	// finely is the second-longest pause beside a piece as a share of the longest, on average over finelyAfter
	// pieces, from which on an engine takes several steps for a piece. One that takes one step shows 0.15 to
	// 0.2 (a decode step beside it), several 0.35 to 1, since the last is shorter.
	finely      = 0.45
	finelyAfter = 4
	// finelyFor is how long that is believed. Then pieces are tried again.
	finelyFor = 10 * time.Minute
)

// cuts is what was seen of the steps that an engine takes for a piece.
type cuts struct {
	mean  float64
	n     int
	until time.Time // from when pieces are tried again
}

// learn takes in how alike the two longest pauses beside a piece were: a [PauseShare].
func (o *cuts) learn(s Sample) {
	if !o.until.IsZero() && s.At.After(o.until) {
		*o = cuts{}
	}
	o.n = min(o.n+1, 2*finelyAfter)
	o.mean += (s.Low - o.mean) / float64(o.n)
	if o.n >= finelyAfter && o.mean >= finely && o.until.IsZero() {
		o.until = s.At.Add(finelyFor)
	}
}

// fine reports whether the engine cuts prompts so finely itself that pieces are of no use.
func (o *cuts) fine(now time.Time) bool { return now.Before(o.until) }
