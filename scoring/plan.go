package scoring

import "time"

// A request is served by a pair, Split(p, d): p computes its prompt, d pulls the KV blocks and generates; or
// by one decode replica alone, Local(d). What either costs is predicted here and nowhere else: whoever
// decides, reports, refuses, moves or explains asks a [Model].

// Model predicts the cost of plans from facts. There are two: [Seconds] and [Raw].
type Model interface {
	// Prefill and Decode return the terms of a Split that are of one side alone.
	Prefill(p *Prefill) Terms
	Decode(d *Decode) Terms

	// Sender and Receiver return what is to be known of a side to price pairs with it, see [Sender.Meet].
	Sender(p *Prefill) Sender
	Receiver(d *Decode) Receiver

	// Local returns the terms of d alone.
	Local(d *Decode) Terms

	// Ties returns which plans are as good as the best.
	Ties(absolute time.Duration, relative float64) Ties
}

// Split returns the terms of the pair (p, d), between which a byte takes so many seconds.
func Split(m Model, p *Prefill, d *Decode, perByte float64) Terms {
	s, r := m.Sender(p), m.Receiver(d)
	return m.Prefill(p).Plus(m.Decode(d)).Plus(s.Meet(&r, perByte).Terms())
}

// Seconds is the model that counts every term in predicted seconds.
type Seconds struct {
	Weights
	Setup         float64 // seconds of one transfer, whatever its size
	BytesPerToken float64 // of the KV cache
}

// Prefill returns the terms of a Split that are p's alone.
func (m *Seconds) Prefill(p *Prefill) Terms {
	return Terms{
		Wait:     m.Beta * p.Wait,
		Prefill:  m.Alpha.At(p.Queue) * p.Warm,
		Pressure: m.Gamma * Pressure(p.Usage),
		Failures: p.Failures,
	}
}

// Decode returns the terms of a Split that are d's alone. Who computes a prompt has its first token with it;
// of blocks that came a decode step makes it.
func (m *Seconds) Decode(d *Decode) Terms {
	return Terms{
		Room:     d.Room,
		Transfer: d.First,
		Decode:   m.streams(d) * d.Running * d.Marginal * d.Output,
		Answer:   d.Later,
		// Its streams stand still while the blocks are asked for.
		Interference: m.standing(d, pausePenalty(float64(d.Missing)*d.Posting)),
		Pressure:     m.Gamma * Pressure(d.Usage),
		Failures:     d.Failures,
	}
}

// Meet returns what is between two replicas. A replica sends, and receives, one prompt after the other: this
// one follows when both sides are through with those that were booked before, each at the speed of its own
// link; at this one's, a small error of it would count as many times as others are under way. What the sender
// has to send was computed before this one, so that it goes out meanwhile; what the receiver has still to get
// when this one is ready is counted in its facts.
func (s *Sender) Meet(r *Receiver, perByte float64) Pair {
	own := float64(r.Bytes * perByte)
	return Pair{
		Own:        own,
		Transfer:   r.Setup + transferTime(own, s.Outbox, r.Inbound, s.Ready),
		Blocked:    prefillBlocking(r.Busy, s.Ready),
		Contention: linkContention(own, s.Leaving+r.Arriving, s.crowding()+r.crowding()),
	}
}

// Local returns the terms of d alone. Its seconds delay later ones, as on a prefill replica; streams there
// stand still, and whoever comes to the replica meanwhile waits, on average for half of it.
func (m *Seconds) Local(d *Decode) Terms {
	l := &d.Local
	delayed := l.Delayed + l.contention()
	return Terms{
		Wait:         m.Beta * l.Wait,
		Prefill:      m.Alpha.At(l.Queue)*l.Warm + l.Between,
		Room:         d.Room,
		Decode:       m.streams(d) * d.Running * d.Marginal * d.Output,
		Answer:       d.Later,
		Interference: m.standing(d, l.pause()) + m.Beta*delayed,
		Pressure:     m.Gamma * Pressure(d.Usage),
		Failures:     l.Failures,
	}
}

// Sender is the prefill side of pairs.
type Sender struct {
	cost    float64 // of its own terms, in a [Table]
	Ready   float64 // seconds until it has computed what is to be moved
	Outbox  float64 // seconds of transfers that come before
	Leaving float64 // transfers a second, weighted
}

// Receiver is the decode side of pairs.
type Receiver struct {
	cost     float64 // of its own terms and the set-up of a transfer, in a [Table]
	Setup    float64 // seconds of a transfer, whatever its size
	Bytes    float64 // to be moved
	Inbound  float64 // seconds of transfers that come before
	Busy     float64 // seconds for which the prompts that it prefills itself let nobody else in
	Arriving float64 // transfers a second, weighted
}

// Sender returns p as a side of pairs.
func (m *Seconds) Sender(p *Prefill) Sender {
	return Sender{Ready: p.Ready(), Outbox: p.Outbox, Leaving: m.Beta * p.Leaving}
}

// Receiver returns d as a side of pairs.
func (m *Seconds) Receiver(d *Decode) Receiver {
	return Receiver{
		Setup: m.Setup, Bytes: float64(d.Missing) * m.BytesPerToken, Inbound: d.Inbound, Busy: d.Local.Busy,
		Arriving: m.Beta * d.Arriving,
	}
}

// Ties returns the policy's own.
func (m *Seconds) Ties(absolute time.Duration, relative float64) Ties {
	return Ties{Absolute: absolute.Seconds(), Relative: relative}
}

// price returns what the pair of s and r costs: the sum of the terms that [Split] returns.
func (s *Sender) price(r *Receiver, perByte float64) float64 {
	own := float64(r.Bytes * perByte)
	return s.cost + (r.cost + transferTime(own, s.Outbox, r.Inbound, s.Ready) +
		prefillBlocking(r.Busy, s.Ready) + linkContention(own, s.Leaving+r.Arriving, s.crowding()+r.crowding()))
}

// crowding returns the requests, weighted, that come before the outbox is empty, see [linkCrowding].
func (s *Sender) crowding() float64 { return linkCrowding(s.Outbox-s.Ready, s.Leaving) }

// crowding returns the requests, weighted, that come before the blocks ahead have arrived.
func (r *Receiver) crowding() float64 { return linkCrowding(r.Inbound, r.Arriving) }

// Pair is what is between the two sides of a Split, in seconds.
type Pair struct {
	Own        float64 // for which the blocks take both sides
	Transfer   float64 // from when the blocks are ready until they are there: set-up, transfers ahead, their own
	Blocked    float64 // beyond that, until the receiver has computed the prompts that it prefills itself
	Contention float64 // that others wait for the transfer, all together, weighted
}

// Landing returns the seconds from when the blocks are ready to when they are on the decode replica.
func (p Pair) Landing() float64 { return p.Transfer + p.Blocked }

// Terms returns p as terms of a plan; the others are zero.
func (p Pair) Terms() Terms {
	return Terms{Room: p.Blocked, Transfer: p.Transfer, Interference: p.Contention}
}

// TTFT is the seconds until a first token.
type TTFT struct {
	Ahead float64 // of others' work, and of the step that makes the first token of blocks which came
	Own   float64 // to compute the prompt and to move its blocks
}

// Total returns the sum.
func (t TTFT) Total() float64 { return t.Ahead + t.Own }

// SplitTTFT returns the seconds until the first token of the pair (p, d).
func SplitTTFT(m Model, p *Prefill, d *Decode, perByte float64) TTFT {
	s, r := m.Sender(p), m.Receiver(d)
	return TTFT{Ahead: d.Room + d.Step + p.Wait, Own: p.Warm + s.Meet(&r, perByte).Landing()}
}

// LocalTTFT returns the seconds until the first token of d alone.
func LocalTTFT(d *Decode) TTFT {
	return TTFT{Ahead: d.Room + d.Local.Wait, Own: d.Local.Took()}
}
