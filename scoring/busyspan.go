package scoring

import "time"

// BusySpan is the prompts that one engine has computed since it got something to compute, until it had
// nothing: only then is it sure which prompts the time was spent on. Several come out of one step, and a step
// computes the beginning of one prompt beside the end of another. The zero BusySpan has none. Not safe for
// concurrent use.
type BusySpan struct {
	last    time.Time // newest answer, in the span or before
	start   time.Time // of the work on the first prompt in it
	step    time.Time // first answer of those that came out of the same step as the newest
	parts   [3]float64
	n       int
	spoiled bool // nobody knows which prompts its time was spent on
}

const (
	spanLong  = time.Second           // is a span after which it ends with a step although there is more to do
	stepApart = 2 * time.Millisecond  // is less than two steps' answers are apart
	stepLong  = 20 * time.Millisecond // answers further apart are of different steps, whatever came in between
)

// Computed takes in that uncached tokens behind cached ones were there now, took after they were sent. It
// returns the span that ends with the prompt before, zero where none does.
func (s *BusySpan) Computed(uncached, cached int, took time.Duration, now time.Time) Busy {
	begun := now.Add(-took)
	nextStep := s.n == 0 || now.Sub(s.last) >= stepApart || now.Sub(s.step) >= stepLong
	var before Busy
	if s.n > 0 && nextStep && s.last.Sub(s.start) >= spanLong {
		before = s.End()
	}
	switch idle := begun.Sub(s.last); {
	case s.n == 0 && idle > 0:
		s.start, s.parts = begun, [3]float64{}
	case s.n == 0:
		s.start, s.parts = s.last, [3]float64{}
	case idle > 0:
		s.start = s.start.Add(idle)
	}
	parts := DefaultSpeed().PrefillParts(uncached, cached)
	if nextStep {
		s.step = now
	} else {
		parts[0] = 0 // is paid once a step
	}
	for i, part := range parts {
		s.parts[i] += part
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

// End ends the span. Of one that says nothing it returns zero.
func (s *BusySpan) End() (b Busy) {
	if !s.spoiled && s.n > 0 {
		b = Busy{Sample{Parts: s.parts, Took: s.last.Sub(s.start).Seconds()}, s.last}
	}
	s.n, s.spoiled = 0, false
	return b
}

// Last returns when the newest prompt was there, the zero time before the first.
func (s *BusySpan) Last() time.Time { return s.last }

// Busy is what a span says. A zero Busy says nothing.
type Busy struct {
	Sample
	At time.Time // when it was over
}

// Teach lets fits learn from b.
func (b *Busy) Teach(fits ...*DecayingFit) {
	if b.At.IsZero() {
		return
	}
	for _, f := range fits {
		f.LearnAt(b.Parts, b.Took, b.At)
	}
}
