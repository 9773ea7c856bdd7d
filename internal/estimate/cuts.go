package estimate

import "time"

// An engine cuts long prompts itself, by what one step computes (--max-num-batched-tokens). If a piece is
// larger than a step, pieces bring the engine's streams nothing, and cost each prompt one decode step
// between two pieces.
//
// No metric of vLLM 0.32 reports the size of a step: iteration_tokens_total counts a whole prompt in the
// step of its first token (v1/metrics/stats.py). The pauses of the streams beside a piece show the size. An
// engine that computes the piece in one step makes one long pause. An engine that needs several steps makes
// several similar pauses. The number of steps shows nothing: a fast engine makes some steps while a piece
// travels there and back. Prompts still take turns, as a whole, at an engine that cuts them itself.

const (
	// finely is the second-longest pause beside a piece as a share of the longest, averaged over finelyAfter
	// pieces. At this share or above, the engine needs several steps for a piece. An engine that needs one step
	// shows 0.15 to 0.2 (a decode step beside the piece). An engine that needs several shows 0.35 to 1, because
	// the last step is shorter.
	finely      = 0.45
	finelyAfter = 4
	// finelyFor is how long this finding holds. Then pieces are tried again.
	finelyFor = 10 * time.Minute
)

// cuts learns whether an engine takes several steps for a piece.
type cuts struct {
	mean  float64
	n     int
	until time.Time // pieces are tried again from then on
}

// learn takes in how similar the two longest pauses beside a piece were: a [PauseShare].
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

// fine reports whether the engine cuts prompts so finely itself that pieces bring nothing.
func (o *cuts) fine(now time.Time) bool { return now.Before(o.until) }
