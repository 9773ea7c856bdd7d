package scoring

import "time"

// A request is served by a pair, Split(p, d): p computes the prompt, d pulls the KV blocks and generates. Or
// it is served by one decode replica alone, Local(d). The cost of both is predicted here and nowhere else:
// all code that decides, reports, refuses, moves or explains uses a [Model].

// Model predicts the cost of plans from facts. There are two: [Seconds] and [Raw].
type Model interface {
	// Prefill and Decode return the terms of a Split that belong to one side.
	Prefill(p *Prefill) Terms
	Decode(d *Decode) Terms

	// Sender and Receiver return the facts of a side that prices of pairs need, see [Sender.Meet].
	Sender(p *Prefill) Sender
	Receiver(d *Decode) Receiver

	// Local returns the terms of the Local plan on d.
	Local(d *Decode) Terms

	// Ties returns the rule for plans that are as good as the best.
	Ties(absolute time.Duration, relative float64) Ties
}

// Split returns the terms of the pair (p, d). perByte is the seconds per byte between them.
func Split(m Model, p *Prefill, d *Decode, perByte float64) Terms {
	s, r := m.Sender(p), m.Receiver(d)
	return m.Prefill(p).Plus(m.Decode(d)).Plus(s.Meet(&r, perByte).Terms())
}

// Seconds is the model that counts every term in predicted seconds.
type Seconds struct {
	Weights
	Setup         float64 // fixed seconds of one transfer
	BytesPerToken float64 // of the KV cache
}

// Prefill returns the terms of a Split that belong to p.
func (m *Seconds) Prefill(p *Prefill) Terms {
	return Terms{
		Wait:     m.Beta * p.Wait,
		Prefill:  m.Alpha.At(p.Queue) * p.Warm,
		Read:     p.Read, // the engine computes other prompts meanwhile
		Evicted:  p.Evicts,
		Transfer: p.Pull,
		Pressure: m.Gamma * Pressure(p.Usage),
		Failures: p.Failures,
	}
}

// Decode returns the terms of a Split that belong to d. A prefill also yields the first token, but after a
// transfer the first token takes one more decode step.
func (m *Seconds) Decode(d *Decode) Terms {
	counted, late := 1-d.Stakes.Spared, d.Stakes.tokens()
	return Terms{
		Room:     d.Room,
		Transfer: d.First,
		Decode:   m.streams(d) * counted * d.Running * d.Marginal * d.Output,
		Answer:   d.Later,
		// The streams of d stop while the read of the blocks is posted.
		Interference: counted * m.standing(d, pausePenalty(float64(d.Missing)*d.Posting)),
		Pressure:     m.Gamma * Pressure(d.Usage),
		Failures:     d.Failures,
		Late:         late,
	}
}

// Meet returns the costs between two replicas. A replica sends, and receives, one prompt after the other. So
// this transfer starts when both sides have finished their earlier transfers. Each earlier transfer counts
// at the speed of its own link: at this link's speed, a small error would count once for each transfer under
// way. The sender's earlier transfers run while this prompt is computed. The receiver's facts count only the
// transfers that remain when the prompt is ready.
func (s *Sender) Meet(r *Receiver, perByte float64) Pair {
	own := float64(r.Bytes * perByte)
	transfer, blocked := transferTime(own, s.Outbox, r.Inbound, s.Ready), prefillBlocking(r.Busy, s.Ready)
	return Pair{
		Own:        own,
		Transfer:   r.Setup + transfer,
		Blocked:    blocked,
		Contention: linkContention(own, s.Leaving+r.Arriving, s.crowding()+r.crowding()),
		Late:       r.due.late(s.Ready + (transfer + blocked)),
	}
}

// Local returns the terms of the Local plan on d. Its seconds delay later requests, as on a prefill replica.
// Streams on d stop, and requests that come to d meanwhile wait, on average for half of the prefill.
func (m *Seconds) Local(d *Decode) Terms {
	l, late := &d.Local, d.Stakes.local(d)
	delayed := l.Delayed + l.contention()
	return Terms{
		Wait:         m.Beta * l.Wait,
		Prefill:      m.Alpha.At(l.Queue)*l.Warm + l.Between,
		Read:         l.Read,
		Transfer:     l.Pull, // meanwhile the engine makes steps
		Room:         d.Room,
		Decode:       m.streams(d) * (1 - d.Stakes.Spared) * d.Running * d.Marginal * d.Output,
		Answer:       d.Later,
		Interference: (1-d.Stakes.SparedLocal)*m.standing(d, l.pause()) + m.Beta*delayed,
		Pressure:     m.Gamma * Pressure(d.Usage),
		Failures:     l.Failures,
		Late:         late,
	}
}

// Sender is the prefill side of pairs.
type Sender struct {
	cost    float64 // of its own terms, in a [Table]
	Ready   float64 // seconds until the prompt is computed
	Outbox  float64 // seconds of earlier transfers
	Leaving float64 // transfers a second, weighted
}

// Receiver is the decode side of pairs.
type Receiver struct {
	cost     float64 // of its own terms and the set-up of a transfer, in a [Table]
	Setup    float64 // fixed seconds of a transfer
	Bytes    float64 // to be transferred
	Inbound  float64 // seconds of earlier transfers
	Busy     float64 // seconds for which local prefills keep out other requests
	Arriving float64 // transfers a second, weighted
	due      due
}

// Sender returns the prefill side p.
func (m *Seconds) Sender(p *Prefill) Sender {
	return Sender{Ready: p.Ready(), Outbox: p.Outbox, Leaving: m.Beta * p.Leaving}
}

// Receiver returns the decode side d.
func (m *Seconds) Receiver(d *Decode) Receiver {
	return Receiver{
		Setup: m.Setup, Bytes: float64(d.Missing) * m.BytesPerToken, Inbound: d.Inbound, Busy: d.Local.Busy,
		Arriving: m.Beta * d.Arriving, due: d.Stakes.first(m.Setup + d.Room + d.Step),
	}
}

// Ties returns the policy's rule.
func (m *Seconds) Ties(absolute time.Duration, relative float64) Ties {
	return Ties{Absolute: absolute.Seconds(), Relative: relative}
}

// price returns the cost of the pair of s and r: the sum of the terms of [Split].
func (s *Sender) price(r *Receiver, perByte float64) float64 { return s.priceAt(r, perByte, s.Ready) }

// priceAt is price, but the first token comes as if the prompt were computed after soon seconds.
func (s *Sender) priceAt(r *Receiver, perByte, soon float64) float64 {
	own := float64(r.Bytes * perByte)
	transfer, blocked := transferTime(own, s.Outbox, r.Inbound, s.Ready), prefillBlocking(r.Busy, s.Ready)
	cost := r.cost + transfer + blocked + linkContention(own, s.Leaving+r.Arriving, s.crowding()+r.crowding())
	if r.due.perGoal > 0 {
		cost += r.due.late(soon + (transfer + blocked))
	}
	return s.cost + cost
}

// crowding returns the weighted requests that arrive before the outbox is empty, see [linkCrowding].
func (s *Sender) crowding() float64 { return linkCrowding(s.Outbox-s.Ready, s.Leaving) }

// crowding returns the weighted requests that arrive before the earlier blocks have arrived.
func (r *Receiver) crowding() float64 { return linkCrowding(r.Inbound, r.Arriving) }

// Pair holds the seconds between the two sides of a Split.
type Pair struct {
	Own        float64 // of the transfer itself
	Transfer   float64 // from ready blocks to arrived blocks: set-up, earlier transfers, own transfer
	Blocked    float64 // after that, until the receiver has finished its local prefills
	Contention float64 // total weighted seconds that others wait for the transfer
	Late       float64 // cost of a late first token
}

// Landing returns the seconds from ready blocks until the decode replica can use them.
func (p Pair) Landing() float64 { return p.Transfer + p.Blocked }

// Terms returns p as terms of a plan; the other terms are zero.
func (p Pair) Terms() Terms {
	return Terms{Room: p.Blocked, Transfer: p.Transfer, Interference: p.Contention, Late: p.Late}
}

// TTFT is the seconds until a first token.
type TTFT struct {
	Ahead float64 // work of other requests, and the step that makes the first token after a transfer
	Own   float64 // computing the prompt and moving its blocks
}

// Total returns the sum.
func (t TTFT) Total() float64 { return t.Ahead + t.Own }

// SplitTTFT returns the seconds until the first token of the pair (p, d).
func SplitTTFT(m Model, p *Prefill, d *Decode, perByte float64) TTFT {
	s, r := m.Sender(p), m.Receiver(d)
	return TTFT{Ahead: d.Room + d.Step + p.Wait, Own: p.Pull + p.Warm + p.Read + s.Meet(&r, perByte).Landing()}
}

// LocalTTFT returns the seconds until the first token of the Local plan on d.
func LocalTTFT(d *Decode) TTFT {
	return TTFT{Ahead: d.Room + d.Local.Wait, Own: d.Local.Pull + d.Local.Read + d.Local.Took()}
}
