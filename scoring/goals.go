package scoring

import (
	"math"
	"time"
)

// Goals are the times that a request's class asks for. A goal of 0 is none.
type Goals struct {
	TTFT     time.Duration // from the request's arrival until its first token
	TPOT     time.Duration // mean time from token to token
	Deadline time.Duration // from the request's arrival until its last token
}

// Asked is what a request with goals asks for now.
type Asked struct {
	Goals
	Waited time.Duration // since its arrival
}

// lateSeconds is what a time costs that grows from its goal to e times its goal. With the usual goals it is
// [patience]: a first token after 5 s and tokens every 100 ms are equally hard to bear.
const lateSeconds = 5.0

// lateness returns the cost, in seconds, of a time that is x times its goal. Far below the goal it is
// nothing. Above the goal it grows ever more slowly, so that a goal out of reach does not decide everything.
func lateness(x float64) float64 {
	if x < 1 {
		return lateSeconds * risk(x) * x / 9
	}
	return lateSeconds * (1./9 + math.Log(x))
}

// risk returns how fast the cost of a time grows at x times its goal, as a share of the growth at the goal.
// It is the eighth power: a time at nine tenths of its goal is often late in the end, a time at a half is
// not.
func risk(x float64) float64 {
	x *= x
	x *= x
	return x * x
}

// due is when a first token is late. The zero due is never.
type due struct {
	spent   float64 // seconds that are gone when the blocks of the prompt have arrived
	perGoal float64 // 1 / seconds of the goal
}

// late returns the cost of a first token so many seconds after the spent ones.
func (d *due) late(seconds float64) float64 { return lateness((d.spent + seconds) * d.perGoal) }

// first returns when a first token is late, if ahead seconds pass beside those that the caller adds. rest is
// the seconds from the first token to the last. Of the two goals it takes the one that is nearer.
func (a *Asked) first(ahead, rest float64) due {
	if a == nil {
		return due{}
	}
	spent, d := a.Waited.Seconds()+ahead, due{}
	if a.TTFT > 0 {
		d = due{spent, 1 / a.TTFT.Seconds()}
	}
	if a.Deadline > 0 {
		if by := (due{spent + rest, 1 / a.Deadline.Seconds()}); by.spent*by.perGoal > d.spent*d.perGoal {
			d = by
		}
	}
	return d
}

// tokens returns the cost of tokens that come every pace seconds.
func (a *Asked) tokens(pace float64) float64 {
	if a == nil || a.TPOT == 0 {
		return 0
	}
	return lateness(pace / a.TPOT.Seconds())
}

// Goal returns the goal for the time from token to token; 0 for none.
func (a *Asked) Goal() time.Duration {
	if a == nil {
		return 0
	}
	return a.TPOT
}

// Held returns the weight of a stream with a goal for its tokens, which come every pace seconds, as a
// multiple of the weight of a stream without goals. It is 0 for a stream that surely keeps its goal.
func Held(pace float64, goal time.Duration) float64 {
	x := pace / goal.Seconds()
	return lateSeconds / patience / max(pace, goal.Seconds()) * risk(min(x, 1))
}
