package estimate

import "time"

// BusySpan collects the prompts that one engine computed without a pause: from the moment it got work until
// it had none. Only over such a span is it certain which prompts the time was spent on, because one step may
// finish several prompts, and may compute the beginning of one prompt beside the end of another. The zero
// BusySpan is empty. Not safe for concurrent use.
type BusySpan struct {
	last    time.Time // newest answer, in the span or before
	start   time.Time // of the work on the span's first prompt
	step    time.Time // first answer from the step that the newest answer came from
	parts   Work
	beside  float64 // seconds of the span that decoding took in the steps with prompts
	n       int
	spoiled bool // the time cannot be attributed to the span's prompts
	all     Computed
}

// Computed is the prompt work that an engine has done since it is watched, in spans of any kind.
type Computed struct {
	parts Work    // seconds by the profile
	steps float64 // that finished a prompt
}

// Computed returns the prompt work of the engine so far.
func (s *BusySpan) Computed() Computed { return s.all }

// Held returns the total seconds by which decode steps became longer through the prompts computed since
// before, on an engine of the given speed. A step with a prompt in it also decodes.
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
	spanLong  = time.Second           // a longer span ends with a step, even with more work waiting
	stepApart = 2 * time.Millisecond  // answers this close come from one step
	stepLong  = 20 * time.Millisecond // answers this far apart come from different steps
)

// Add records that a prompt of uncached tokens behind cached tokens was answered now, took after its sending.
// The step that finished the prompt was beside seconds longer because it also decoded. Add returns a sample
// of the span that ended with the prompt before, or zero if no span ended.
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
		parts[0] = 0 // is paid once per step
	}
	for i, part := range parts {
		s.parts[i] += part
		s.all.parts[i] += part
	}
	s.n++
	s.last = now
	return before
}

// Spoil records that the engine also spends time on other work, which cannot be told apart.
func (s *BusySpan) Spoil() { s.spoiled = true }

// GaveUp records that a prompt was cancelled, or that its end was not observed, so that its share of the
// time is unknown. idle says that the engine has no other prompt to compute: then the next span begins.
func (s *BusySpan) GaveUp(idle bool) {
	s.Spoil()
	if idle {
		s.End()
	}
}

// Unseen records that a prompt of uncached tokens behind cached tokens should be computed by now, although
// its end was not observed. The prompt is no part of a span. Unseen returns the prompt's work, which is
// added to the engine's total.
func (s *BusySpan) Unseen(uncached, cached int) Computed {
	its := Computed{parts: DefaultSpeed().PrefillParts(uncached, cached), steps: 1}
	s.all.Add(its)
	return its
}

// End ends the span and returns a [PromptTime] sample of the span, or zero if the span is empty or spoiled.
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

// Last returns when the newest prompt was answered, the zero time before the first.
func (s *BusySpan) Last() time.Time { return s.last }

// LearnPrompts teaches a [PromptTime] to m, the fit of one engine, and to the fit of its pool. A zero sample
// changes nothing.
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

// OwnPart returns the part of a measured time that counts for one kind of work, where the time also contains
// other work. own and other are the predicted seconds of each. Both kinds are taken to be slower by the same
// factor. Subtracting the predicted other work would let each kind be learned from the errors of the other:
// on an engine with prompts in every step, the two would drift apart without end.
func OwnPart(own, other float64) float64 { return own / (own + other) }
