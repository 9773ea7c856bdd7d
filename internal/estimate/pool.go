package estimate

import "time"

// Pool is what is learned of all replicas of one pool together: it stands for replicas that were not
// measured yet. The zero Pool knows nothing.
type Pool struct {
	Told     Speed       // by the operator; a half at zero: nothing
	Other    Speed       // of prefills in the other pool, as measured there; zero: not known
	Prefills DecayingFit // of prompts that the replicas computed
	Steps    DecayingFit // of decode steps
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

// Computed takes in that uncached tokens behind cached ones were there now, took after r got them, by a step
// that was so many seconds longer for what it decoded.
func (p *Pool) Computed(r *Prompts, uncached, cached int, beside float64, took time.Duration, now time.Time) {
	r.Fit.LearnPrompts(&p.Prefills, r.span.Add(uncached, cached, beside, took, now))
}

// Idle takes in that r has no prompt left to compute.
func (p *Pool) Idle(r *Prompts) { r.Fit.LearnPrompts(&p.Prefills, r.span.End()) }

// Ease moves what was measured of r toward the pool as far as the time without a sample asks.
func (p *Pool) Ease(r *Replica, now time.Time) {
	r.Prompts.Fit.Ease(&p.Prefills.SpeedFit, now)
	r.Steps.Ease(&p.Steps.SpeedFit, now)
}

// learnStep takes in the mean step of an answer. Its steps were shorter than from one token to the next:
// the replica has computed prompts meanwhile, or other routers' for a share of the time. Where that was
// nearly all of it, it says nothing of them.
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
	r.Steps.LearnAt(s)
	p.Steps.LearnAt(s)
}

// leastSteps is the part of an answer's time from which on it says something of its steps.
const leastSteps = 0.1

// Speed returns the best that is known of r: of each half what was measured on r, or on the pool, and until
// enough was what the operator says, or the profile. Of prefills what was measured in the other pool comes
// before the profile: its engines have the same model. Both halves follow what is measured: where one did
// not, and were off, the other one would take up all of its error, and could be learned to be nothing.
func (p *Pool) Speed(r *Replica) Speed {
	profile := DefaultSpeed()
	s := p.Told.Or(p.Other).Or(profile)
	if f, known := r.Fit.Of(&p.Prefills.SpeedFit); known {
		s = profile.WithPrefill(f).PrefillHalf().Or(s)
	}
	if f, known := r.Steps.Of(&p.Steps.SpeedFit); known {
		s = profile.WithDecode(f).DecodeHalf().Or(s)
	}
	return s
}

// PrefillSpeed returns the best that is known of a replica that only computes prompts.
func (p *Pool) PrefillSpeed(r *Prompts) Speed {
	profile := DefaultSpeed()
	if f, known := r.Fit.Of(&p.Prefills.SpeedFit); known {
		return profile.WithPrefill(f)
	}
	return p.Told.Or(p.Other).Or(profile)
}

// StepSpeed returns what is known of the decode steps of all replicas together.
func (p *Pool) StepSpeed() Speed {
	profile := DefaultSpeed()
	if f, known := p.Steps.Of(&p.Steps.SpeedFit); known {
		return profile.WithDecode(f)
	}
	return p.Told.Or(profile)
}

// MeasuredPrefills returns how long prefills take on the replicas together, as measured; zero: not known.
func (p *Pool) MeasuredPrefills() Speed {
	f, _ := p.Prefills.Of(&p.Prefills.SpeedFit)
	return f.Prefills()
}

// Pricing returns what a plan that r prefills for is priced with, where r is taken to have that speed.
func (p *Pool) Pricing(r *Prompts, speed Speed, now time.Time) Pricing {
	s := Pricing{Speed: speed}
	if risk, eased := r.Fit.Eased(now); eased {
		s.Measured, s.Risk = DefaultSpeed().WithPrefill(r.Fit.Measured(&p.Prefills.SpeedFit)), risk
	}
	return s
}
