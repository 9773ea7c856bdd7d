package scoring

// pressureSeconds is the pressure of a KV cache that is half full. What is promised keeps out who finds no
// room; this is for what is lost before that: prefixes that are evicted, and answers longer than expected.
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

// transferTime is the seconds that blocks which take own seconds are on their way, behind what both sides
// have to move before; they are ready later than what is sent before them.
func transferTime(own, outbox, inbound, ready float64) float64 {
	return max(outbox-ready, inbound) + own
}

// prefillBlocking is the seconds that blocks which are ready wait until the decode replica has computed the
// prompts that it prefills itself. Those run already, and whoever runs comes first: in steps that a long
// prompt fills no other request is admitted, so that not even the transfer begins (vLLM 0.32,
// v1/core/sched/scheduler.py).
func prefillBlocking(busy, ready float64) float64 { return max(0, busy-ready) }

// contention is the seconds that others wait, all together, who come at a rate while something is taken for
// own seconds: on average for half of it. Over a link that takes a tenth of a second that is nothing; a long
// prompt over a slow one costs others far more than itself.
func contention(own, rate float64) float64 { return rate * own * own / 2 }

// linkContention is the contention of a transfer: with those who come during its own seconds, and with those
// who come while the transfers ahead of it are under way, by the [linkCrowding] of both sides.
func linkContention(own, rate, crowding float64) float64 { return contention(own, rate) + own*crowding }

// linkCrowding returns how many requests come, at a rate, while transfers ahead take so many seconds,
// busyMost at most. Each of them waits a second longer for each second of a transfer that is added. Unlike in
// [Queue.Crowding], what they bring is not known to make the queue last longer.
func linkCrowding(ahead, rate float64) float64 { return rate * min(max(ahead, 0), busyMost) }

// A second of standing still counts once in a pause that is hardly noticed, and three times in one of two
// seconds and more.
const (
	pauseGrows = 1 // a second
	pauseLong  = 2 // seconds
)

// pausePenalty weighs the seconds for which a stream stands still. One long pause is worse than many short
// ones that add up to it: who reads along notices no tenth of a second, and of a short answer a long one is
// most of its time.
func pausePenalty(seconds float64) float64 { return seconds * (1 + pauseGrows*min(seconds, pauseLong)) }

// patience is how many tokens of an answer have to come a second later each to be as bad as a first token
// that comes so many seconds later: 5 s until the first token and 100 ms for each are as hard to bear.
const patience = 50

// standing weighs the seconds for which streams of d stand still, all together.
func (w *Weights) standing(d *Decode, seconds float64) float64 {
	return w.streams(d) * d.Local.Active * seconds
}

// streams weighs the seconds that the streams of d lose. A second is a small part of the time of a long
// answer, and makes each token of a short one come much later.
func (w *Weights) streams(d *Decode) float64 {
	if d.Usual <= 0 {
		return w.DecodePenalty
	}
	return w.DecodePenalty * patience / max(d.Usual, shortAnswer)
}

// shortAnswer is the shortest answer that has a time between its tokens.
const shortAnswer = 2
