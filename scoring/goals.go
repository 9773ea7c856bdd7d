package scoring

import "time"

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

// Stakes is what a plan with one decode replica means for goals. It is zero if neither the request nor a
// stream has goals.
type Stakes struct {
	Asked *Asked  // by the request; nil: nothing
	Pace  float64 // seconds from token to token with this request
	Rest  float64 // seconds from the first token to the last at this pace
	// Shares of the weight of the streams that do not count, because streams keep their goals in any case: if
	// another replica prefills, and if this one does. They are below 0 if streams weigh more because of their
	// goals.
	Spared, SparedLocal float64
}

// lateSeconds is what a time costs that is three times its goal, beside its cost at the goal. With the usual
// goals it is [patience]: a first token after 5 s and tokens every 100 ms are equally hard to bear.
const lateSeconds = 5.0

// lateness returns the cost, in seconds, of a time that is x times its goal. Far below the goal it is
// nothing. Above the goal it grows ever more slowly, so that a goal out of reach does not decide everything.
func lateness(x float64) float64 {
	if x < 1 {
		return lateSeconds * risk(x) * x / 9
	}
	return lateSeconds * (1./9 + 2 - 4/(x+1))
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

// first returns when the first token of the request is late, if ahead seconds pass beside those that the
// caller adds. Of the goals for the first and the last token it takes the nearer one.
func (s *Stakes) first(ahead float64) due {
	if s.Asked == nil {
		return due{}
	}
	return s.nearest(ahead)
}

func (s *Stakes) nearest(ahead float64) (d due) {
	a := s.Asked
	spent := a.Waited.Seconds() + ahead
	if a.TTFT > 0 {
		d = due{spent, 1 / a.TTFT.Seconds()}
	}
	if a.Deadline > 0 {
		if by := (due{spent + s.Rest, 1 / a.Deadline.Seconds()}); by.spent*by.perGoal > d.spent*d.perGoal {
			d = by
		}
	}
	return d
}

// local returns the cost of the first token and of the others if d prefills.
func (s *Stakes) local(d *Decode) float64 {
	if s.Asked == nil {
		return 0
	}
	first := s.nearest(d.Room)
	return s.tokens() + first.late(d.Local.Ready())
}

// tokens returns the cost of the tokens of the request.
func (s *Stakes) tokens() float64 {
	goal := s.Asked.Goal()
	if goal == 0 {
		return 0
	}
	return lateness(s.Pace / goal.Seconds())
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
	g := goal.Seconds()
	near, beyond := risk(min(pace/g, 1)), max(pace/g, 1)+1
	return lateSeconds / patience / g * near * 4 / (beyond * beyond)
}
