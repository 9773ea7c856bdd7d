package decode

import (
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// This file is what a replica decodes, and how that and the prompts that it computes itself make each other
// longer: a step that has a prompt in it decodes, too. Who learns how long one of them takes has to take off
// the other, and who predicts has to add it.

// stepLoad is what one step decodes.
type stepLoad struct {
	sequences float64
	tokens    float64 // that they read: each all of its own, however many of them share blocks
}

// decodes returns what m decodes now.
func (m *member) decodes() stepLoad {
	sequences := float64(m.ledger.answering + m.remote.answering() + m.ledger.others.Count)
	return stepLoad{sequences, m.reads(sequences)}
}

// reads returns how many tokens a step of so many sequences reads. Those of which no router knows, and those
// whose prompts are not there yet, are taken to be as long as those that decode already.
func (m *member) reads(sequences float64) float64 {
	g, e := &m.ledger, &m.remote
	if known := g.answering + e.Known; known > 0 {
		return float64(g.context+e.Context) / float64(known) * sequences
	}
	return float64(m.reported() * m.blockSize())
}

// decoded is all that a replica has decoded until a time, as far as its load and its speed tell.
type decoded struct {
	at    time.Time // zero: nobody has counted yet
	steps float64
	sum   stepLoad // of all these steps
	last  stepLoad // since then
}

// decodedUntil counts what m has decoded until now, and returns all of it. It is to be called before what m
// decodes changes.
func (p *Pool) decodedUntil(m *member, now time.Time) decoded {
	d := &m.decoded
	if took := now.Sub(d.at).Seconds(); !d.at.IsZero() && took > 0 {
		speed := p.speed(m)
		steps := took / speed.Step(int(d.last.sequences), int(d.last.tokens))
		d.steps += steps
		d.sum.sequences += steps * d.last.sequences
		d.sum.tokens += steps * d.last.tokens
	}
	if now.After(d.at) {
		d.at = now
	}
	d.last = m.decodes()
	return *d
}

// since returns what a step had to decode on average since before, or has now where no time has passed. An
// answer has a token of each step, so that it is steps which count, and not seconds.
func (d *decoded) since(before *decoded) stepLoad {
	steps := d.steps - before.steps
	if steps <= 0 {
		return d.last
	}
	return stepLoad{
		sequences: (d.sum.sequences - before.sum.sequences) / steps,
		tokens:    (d.sum.tokens - before.sum.tokens) / steps,
	}
}

// done is what a replica has computed and decoded until a time.
type done struct {
	prompts estimate.Computed
	decoded decoded
	posted  float64 // seconds in which it posted reads
}

// done returns what m has done until now.
func (p *Pool) done(m *member, now time.Time) done {
	return done{m.measured.busy.Computed(), p.decodedUntil(m, now), m.measured.posted}
}

// meanwhile is what a replica did while an answer came.
type meanwhile struct {
	stepLoad         // on average
	held     float64 // seconds by which its steps were longer for prompts and for reads, all together
}

// since returns what m has done since before.
func (p *Pool) since(before *done, m *member, now time.Time) meanwhile {
	is, speed := p.done(m, now), p.speed(m)
	held := is.prompts.Held(before.prompts, &speed) + is.posted - before.posted
	return meanwhile{is.decoded.since(&before.decoded), held}
}

// besidePrompt returns by how many seconds a step of m is longer for what it decodes where it has a prompt in
// it, and for how long whoever comes waits for the step that is under way: half of one on average.
func (m *member) besidePrompt(speed *estimate.Speed) (longer, wait float64) {
	load := m.decodes()
	if load.sequences <= 0 {
		return 0, 0
	}
	step := speed.Step(int(load.sequences), int(load.tokens))
	return max(0, step-speed.D0), step / 2
}

// perToken returns how many times as long as a step it took m lately from one token of an answer to the next,
// since it computed prompts meanwhile.
func (m *member) perToken() float64 { return 1 + m.measured.heldUp }

// learnPerToken takes in of which part of its time the steps of an answer were.
func (m *measured) learnPerToken(own float64) {
	m.heldUp += heldUpLearns * (min(1/own-1, mostHeldUp) - m.heldUp)
}

const (
	heldUpLearns = 0.1 // of it an answer teaches
	mostHeldUp   = 9   // times as long as for steps it is waited for prompts, at most
)
