package estimate

import "time"

// BusySpan is the prompts that one engine has computed since it got something to compute, until it had
// nothing: only then is it sure which prompts the time was spent on. Several come out of one step, and a
// step computes the beginning of one prompt beside the end of another. The zero BusySpan has none. Not safe
// for concurrent use.
type BusySpan struct {
	last    time.Time // newest answer, in the span or before
	start   time.Time // of the work on the first prompt in it
	step    time.Time // first answer of those that came out of the same step as the newest
	parts   Work
	beside  float64 // seconds of it in which the steps that had prompts in them decoded, too
	n       int
	spoiled bool // nobody knows which prompts its time was spent on
	all     Computed
}

// Computed is what an engine has computed of prompts since it is watched, in spans of whatever kind.
type Computed struct {
	parts Work    // seconds by the profile
	steps float64 // from which prompts came out
}

// Computed returns all that the engine has computed so far.
func (s *BusySpan) Computed() Computed { return s.all }

// Held returns by how many seconds decode steps were longer, all together, for what an engine of that speed
// has computed beside them since before: a step that has a prompt in it decodes, too.
func (c Computed) Held(before Computed, by *Speed) float64 {
	profile := DefaultSpeed()
	took := (c.parts[0]-before.parts[0])*by.T0/profile.T0 + (c.parts[1]-before.parts[1])*by.A/profile.A +
		(c.parts[2]-before.parts[2])*by.B/profile.B
	return max(0, took-(c.steps-before.steps)*by.D0)
}

// Add adds o to c.
func (c *Computed) Add(o Computed) {
	for i, part := range o.parts {
		c.parts[i] += part
	}
	c.steps += o.steps
}

const (
	spanLong  = time.Second           // is a span after which it ends with a step although there is more to do
	stepApart = 2 * time.Millisecond  // is less than two steps' answers are apart
	stepLong  = 20 * time.Millisecond // answers further apart are of different steps, whatever came in between
)

// Add takes in that uncached tokens behind cached ones were there now, took after they were sent, by a step
// that was so many seconds longer for what it decoded. It returns a sample of the span that ends with the
// prompt before, zero where none does.
func (s *BusySpan) Add(uncached, cached int, beside float64, took time.Duration, now time.Time) Sample {
	begun := now.Add(-took)
	nextStep := s.n == 0 || now.Sub(s.last) >= stepApart || now.Sub(s.step) >= stepLong
	var before Sample
	if s.n > 0 && nextStep && s.last.Sub(s.start) >= spanLong {
		before = s.End()
	}
	switch idle := begun.Sub(s.last); {
	case s.n == 0 && idle > 0:
		s.start, s.parts = begun, Work{}
	case s.n == 0:
		s.start, s.parts = s.last, Work{}
	case idle > 0:
		s.start = s.start.Add(idle)
	}
	parts := DefaultSpeed().PrefillParts(uncached, cached)
	if nextStep {
		s.step = now
		s.beside += beside
		s.all.steps++
	} else {
		parts[0] = 0 // is paid once a step
	}
	for i, part := range parts {
		s.parts[i] += part
		s.all.parts[i] += part
	}
	s.n++
	s.last = now
	return before
}

// Spoil says that the engine spends its time on something else, too, which nobody can tell apart.
func (s *BusySpan) Spoil() { s.spoiled = true }

// GaveUp says that a prompt was given up, or that nobody saw when it was there: nobody knows how much of the
// time was spent on it. idle says that the engine has none left to compute: the next span begins anew.
func (s *BusySpan) GaveUp(idle bool) {
	s.Spoil()
	if idle {
		s.End()
	}
}

// Unseen says that uncached tokens behind cached ones should be there, of which nobody saw when that was:
// they are no part of a span. It returns what that adds to all that the engine has computed.
func (s *BusySpan) Unseen(uncached, cached int) Computed {
	its := Computed{parts: DefaultSpeed().PrefillParts(uncached, cached), steps: 1}
	s.all.Add(its)
	return its
}

// End ends the span, and returns a sample of it: a [PromptTime]. Of a span that says nothing it returns
// zero.
func (s *BusySpan) End() (b Sample) {
	if !s.spoiled && s.n > 0 {
		b = Took(PromptTime, s.parts, s.last.Sub(s.start).Seconds(), s.last)
		b.Beside = s.beside
	}
	s.n = 0
	s.beside = 0
	s.spoiled = false
	return b
}

// Last returns when the newest prompt was there, the zero time before the first.
func (s *BusySpan) Last() time.Time { return s.last }

// LearnPrompts lets m, the fit of one engine, and that of its pool learn from a [PromptTime]. A zero sample
// says nothing.
func (m *DecayingFit) LearnPrompts(pool *DecayingFit, s Sample) {
	if s.At.IsZero() {
		return
	}
	for _, f := range [...]*DecayingFit{pool, m} {
		f.overhead = s.Beside == 0
		own := s
		if f.Known() {
			own.Range = Exactly(s.Low * OwnPart(f.predict(s.Work), s.Beside))
		}
		f.LearnAt(own)
	}
	if m.begins() && pool.seen > m.seen {
		m.begin(&pool.SpeedFit)
		m.refresh(s.At)
	}
}

// OwnPart returns the part of a measured time that is learned of one thing, where something else was done
// in it: by what either should take. So both are held to have taken as many times as long as they should.
// Taking off what the other should take would let each be learned from the errors of the other: where an
// engine has prompts in every step, the two would drift apart without end.
func OwnPart(own, other float64) float64 { return own / (own + other) }
