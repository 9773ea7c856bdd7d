package estimate

import "time"

// This file is what a replica decodes, and how that and the prompts that it computes itself make each other
// longer: a step that has a prompt in it decodes, too. Who learns how long one of them takes has to take off
// the other, and who predicts has to add it.

// Load is what one decode step has in it.
type Load struct {
	Sequences float64
	Tokens    float64 // that they read: each all of its own, however many of them share blocks
}

// decoded is all that a replica has decoded until a time, as far as its load and its speed tell.
type decoded struct {
	at    time.Time // zero: nobody has counted yet
	steps float64
	sum   Load // of all these steps
	last  Load // since then
}

// Count takes in that r decodes so much now, and counts what it has decoded until now. It is to be called
// before what r decodes changes.
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

// Decodes takes in that r decodes so much from when it was counted last.
func (r *Replica) Decodes(has Load) { r.decoded.last = has }

// since returns what a step had to decode on average since before, or has now where no time has passed. An
// answer has a token of each step, so that it is steps which count, and not seconds.
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

// Done is all that a replica has computed and decoded until a time. The zero Done is nothing.
type Done struct {
	prompts Computed
	decoded decoded
	posted  float64 // seconds in which it posted reads
}

// Done counts as [Pool.Count] does, and returns what r has done until now.
func (p *Pool) Done(r *Replica, has Load, now time.Time) Done {
	p.Count(r, has, now)
	return Done{r.span.Computed(), r.decoded, r.posted}
}

// Unseen says that uncached tokens behind cached ones should be there, of which nobody saw when that was.
// They count as computed on r, and as computed before begun.
func (r *Replica) Unseen(begun *Done, uncached, cached int) {
	begun.prompts.Add(r.span.Unseen(uncached, cached))
}

// Meanwhile is what a replica did during a time.
type Meanwhile struct {
	Load         // on average
	Held float64 // seconds by which its steps were longer for prompts and for reads, all together
}

// Since counts as [Pool.Count] does, and returns what r has done since before.
func (p *Pool) Since(r *Replica, before *Done, has Load, now time.Time) Meanwhile {
	is, speed := p.Done(r, has, now), p.Speed(r)
	held := is.prompts.Held(before.prompts, &speed) + is.posted - before.posted
	return Meanwhile{is.decoded.since(&before.decoded), held}
}
