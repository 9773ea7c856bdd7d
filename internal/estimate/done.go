package estimate

import "time"

// This file counts what a replica decodes. Decoding and local prompts make each other longer, because a step
// with a prompt in it also decodes. Code that learns the duration of one subtracts the other. Code that
// predicts a duration adds the other.

// Load is the decode work in one step.
type Load struct {
	Sequences float64
	Tokens    float64 // KV tokens read: each sequence counts all its tokens, even in shared blocks
}

// decoded is the decode work of a replica up to a time, computed from its load and its speed.
type decoded struct {
	at    time.Time // zero: not counted yet
	steps float64
	sum   Load // over these steps
	last  Load // since at
}

// Count adds what r has decoded until now, and records has as the load of r from now on. Call it before the
// load of r changes.
func (p *Pool) Count(r *Replica, has Load, now time.Time) {
	d := &r.decoded
	if took := now.Sub(d.at).Seconds(); !d.at.IsZero() && took > 0 {
		speed := p.Speed(r)
		steps := took / speed.Step(int(d.last.Sequences), int(d.last.Tokens))
		d.steps += steps
		d.sum.Sequences += steps * d.last.Sequences
		d.sum.Tokens += steps * d.last.Tokens
	}
	if now.After(d.at) {
		d.at = now
	}
	d.last = has
}

// Decodes corrects the load of r since the last count.
func (r *Replica) Decodes(has Load) { r.decoded.last = has }

// since returns the average load of a step since before, or the present load if no step was made. The
// average is over steps, not over seconds, because an answer gets one token per step.
func (d *decoded) since(before *decoded) Load {
	steps := d.steps - before.steps
	if steps <= 0 {
		return d.last
	}
	return Load{
		Sequences: (d.sum.Sequences - before.sum.Sequences) / steps,
		Tokens:    (d.sum.Tokens - before.sum.Tokens) / steps,
	}
}

// Done is the prompt and decode work of a replica up to a time. The zero Done is no work.
type Done struct {
	prompts Computed
	decoded decoded
	posted  float64 // seconds in which it posted reads
}

// Done counts as [Pool.Count] does and returns the work of r until now.
func (p *Pool) Done(r *Replica, has Load, now time.Time) Done {
	p.Count(r, has, now)
	return Done{r.span.Computed(), r.decoded, r.posted}
}

// Unseen records that a prompt of uncached tokens behind cached ones should be computed by now, although its
// end was not observed. The prompt counts as computed on r, and as computed before begun.
func (r *Replica) Unseen(begun *Done, uncached, cached int) {
	begun.prompts.Add(r.span.Unseen(uncached, cached))
}

// Meanwhile is the work of a replica during an interval.
type Meanwhile struct {
	Load         // average per step
	Held float64 // total seconds by which prompts and reads made its steps longer
}

// Since counts as [Pool.Count] does and returns the work of r since before.
func (p *Pool) Since(r *Replica, before *Done, has Load, now time.Time) Meanwhile {
	is, speed := p.Done(r, has, now), p.Speed(r)
	held := is.prompts.Held(before.prompts, &speed) + is.posted - before.posted
	return Meanwhile{is.decoded.since(&before.decoded), held}
}
