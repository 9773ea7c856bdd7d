package estimate

import "time"

// Pool holds the learned speed of all replicas of one pool together, which replicas without samples use.
// The zero Pool knows nothing.
type Pool struct {
	Told     Speed       // the operator's values; a zero half is unknown
	Samples  int         // samples beyond the usual number before a measured speed counts
	Other    Speed       // prefills as measured in the other pool; zero: unknown
	Prefills DecayingFit // prompts that the replicas computed
	Steps    DecayingFit // decode steps
	reads    ReadBacks
}

// Learn takes in a sample of r, a replica of the pool: a [PromptTime], [StepTime], [WindowTime] or
// [PauseShare].
func (p *Pool) Learn(r *Replica, s Sample) {
	switch s.Of {
	case PromptTime:
		r.Prompts.Fit.LearnPrompts(&p.Prefills, s)
	case StepTime:
		p.learnStep(r, s)
	case WindowTime:
		r.learnWindow(s, p.Speed(r))
	case PauseShare:
		r.cuts.learn(s)
	}
}

// Computed records that r answered a prompt of uncached tokens behind cached ones now, took after r got the
// prompt. The step was beside seconds longer because it also decoded.
func (p *Pool) Computed(r *Prompts, uncached, cached int, beside float64, took time.Duration, now time.Time) {
	r.Fit.LearnPrompts(&p.Prefills, r.span.Add(uncached, cached, beside, took, now))
}

// Idle records that r has no prompt left to compute.
func (p *Pool) Idle(r *Prompts) { r.Fit.LearnPrompts(&p.Prefills, r.span.End()) }

// Ease moves the estimates of r toward the pool's, by the time without a sample.
func (p *Pool) Ease(r *Replica, now time.Time) {
	r.Prompts.Fit.Ease(&p.Prefills.SpeedFit, now)
	r.Steps.Ease(&p.Steps.SpeedFit, now)
}

// learnStep takes in the mean time per token of an answer. The decode steps were shorter: the replica also
// computed prompts, or worked for other routers during a share of the time. If other work took nearly all of
// the time, the sample says nothing about decode steps.
func (p *Pool) learnStep(r *Replica, s Sample) {
	speed := p.Speed(r)
	own := speed.Step(int(s.Load.Sequences), int(s.Load.Tokens))
	own = OwnPart(own, s.Beside) * max(0, 1-s.Elsewhere)
	if s.Low <= 0 {
		return
	}
	if r.learnPerToken(own); own < leastSteps {
		return
	}
	s.Range = Exactly(s.Low * own)
	s.Work = DefaultSpeed().StepParts(max(s.Load.Sequences, 1), s.Load.Tokens)
	r.pace.recovered(&r.Steps, s)
	r.learnStep(s)
	p.Steps.LearnAt(s)
}

// leastSteps is the smallest share of decode steps in an answer's time that makes a useful sample.
const leastSteps = 0.1

// Speed returns the best estimate of r's speed. For each half it prefers samples of r, then of the pool,
// then the operator's value, then the profile. For prefills, samples of the other pool come before the
// profile, because its engines have the same model. Both halves follow samples: if one half were fixed and
// wrong, the other half would absorb the error, and could shrink to nothing.
func (p *Pool) Speed(r *Replica) Speed {
	profile := DefaultSpeed()
	s := p.Told.Or(p.Other).Or(profile)
	if f, known := r.Fit.Of(&p.Prefills.SpeedFit, p.Samples); known {
		s = profile.WithPrefill(f).PrefillHalf().Or(s)
	}
	if f, known := r.Steps.Of(&p.Steps.SpeedFit, p.Samples); known {
		s = profile.WithDecode(f).DecodeHalf().Or(s)
	}
	return s
}

// PrefillSpeed returns the best estimate for a replica that only computes prompts.
func (p *Pool) PrefillSpeed(r *Prompts) Speed {
	profile := DefaultSpeed()
	if f, known := r.Fit.Of(&p.Prefills.SpeedFit, p.Samples); known {
		return profile.WithPrefill(f)
	}
	return p.Told.Or(p.Other).Or(profile)
}

// StepSpeed returns the estimate of decode steps over all replicas together.
func (p *Pool) StepSpeed() Speed {
	profile := DefaultSpeed()
	if f, known := p.Steps.Of(&p.Steps.SpeedFit, p.Samples); known {
		return profile.WithDecode(f)
	}
	return p.Told.Or(profile)
}

// MeasuredPrefills returns the measured prefill speed of all replicas together; zero: unknown.
func (p *Pool) MeasuredPrefills() Speed {
	f, _ := p.Prefills.Of(&p.Prefills.SpeedFit, p.Samples)
	return f.Prefills()
}

// Price fills in the prices of prefills on r, whose estimated speed s has already.
func (p *Pool) Price(s *Pricing, r *Prompts, now time.Time) {
	risk, eased := r.Fit.Eased(now)
	if !eased {
		return
	}
	if _, known := r.Fit.Of(&p.Prefills.SpeedFit, p.Samples); known {
		s.Measured, s.Risk = DefaultSpeed().WithPrefill(r.Fit.Measured(&p.Prefills.SpeedFit)), risk
	}
}
