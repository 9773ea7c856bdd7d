package scoring

// pressureSeconds is the pressure of a half-full KV cache. A reservation already keeps out requests without
// room. Pressure prices the losses before that: evicted prefixes, and answers that are longer than expected.
const pressureSeconds = 0.05

// Pressure turns a share of KV in use into seconds of expected trouble: preemption and evicted prefixes. NaN
// gives 0.
func Pressure(usage float64) float64 {
	if !(usage > 0) {
		return 0
	}
	usage = min(usage, 0.98)
	return pressureSeconds * usage / (1 - usage)
}

// transferTime returns the seconds from the prompt's end until its blocks have arrived. The blocks take own
// seconds, after the transfers that both sides have to make before. Earlier transfers of the sender can run
// while the prompt is computed.
func transferTime(own, outbox, inbound, ready float64) float64 {
	return max(outbox-ready, inbound) + own
}

// prefillBlocking returns the seconds that ready blocks wait for the decode replica's local prefills.
// Running prompts come first: a step that a long prompt fills admits no other request, so even the transfer
// does not begin (vLLM 0.32, v1/core/sched/scheduler.py).
func prefillBlocking(busy, ready float64) float64 { return max(0, busy-ready) }

// contention returns the total wait of requests that arrive at a rate while a resource is taken for own
// seconds: each waits for half the time on average. This is nothing for a tenth of a second on a link. A long
// prompt over a slow link costs others far more than itself.
func contention(own, rate float64) float64 { return rate * own * own / 2 }

// linkContention is the contention of a transfer: with requests that arrive during its own seconds, and with
// requests that arrive during the transfers ahead, by the [linkCrowding] of both sides.
func linkContention(own, rate, crowding float64) float64 { return contention(own, rate) + own*crowding }

// linkCrowding returns how many requests arrive, at a rate, during the transfers ahead, at most busyMost
// seconds. Each such request waits one second longer for each second that a transfer adds. Unlike in
// [Queue.Crowding], it is unknown whether they make the queue last longer.
func linkCrowding(ahead, rate float64) float64 { return rate * min(max(ahead, 0), busyMost) }

// pauseLong is the length, in seconds, from which each second of a pause counts three times. A second of a
// barely noticeable pause counts once.
const pauseLong = 2

// pausePenalty weighs the seconds of a pause in a stream. One long pause is worse than many short ones of
// the same total: a reader does not notice a tenth of a second, but a long pause is most of the time of a
// short answer.
func pausePenalty(seconds float64) float64 { return seconds * (1 + min(seconds, pauseLong)) }

// patience is the number of tokens whose delay of a second each is as bad as a first token that many seconds
// later: 5 s until the first token and 100 ms per token are equally hard to bear.
const patience = 50

// standing weighs a pause of all running streams of d.
func (w *Weights) standing(d *Decode, seconds float64) float64 {
	return w.streams(d) * d.Local.Active * seconds
}

// streams weighs the seconds that the streams of d lose. A second is a small part of a long answer, and much
// for each token of a short one.
func (w *Weights) streams(d *Decode) float64 {
	if d.Usual <= 0 {
		return w.DecodePenalty
	}
	return w.DecodePenalty * patience / max(d.Usual, shortAnswer)
}

// shortAnswer is the shortest answer with a time between two tokens.
const shortAnswer = 2
