package decode

import "time"

// roomIn returns how long it should take until so many blocks have come free: requests there end after an
// answer's usual time, evenly spread, as many at a time as have room.
func (p *Pool) roomIn(m *member, a *account, blocks int) time.Duration {
	if blocks <= 0 {
		return 0
	}
	running := max(min(a.used, a.most), min(blocks, a.most), 1)
	return seconds(min(p.life(m, a)*float64(blocks)/float64(running), maxRoomWait.Seconds()))
}

// roomEvery returns how long it should take m, which is full, from room for one request until room for the
// next, where each takes so many blocks and runs so many sequences.
func (p *Pool) roomEvery(m *member, a *account, blocks, sequences int) time.Duration {
	every := p.roomIn(m, a, a.asked(blocks))
	if most := p.mostOf(m); most > 0 {
		every = max(every, seconds(p.slotsIn(m, a, atMost(sequences, most), most)))
	}
	return every
}

// released returns the blocks that should have come free after so long, by the same reckoning.
func (p *Pool) released(m *member, a *account, within time.Duration) int {
	if within <= 0 || a.used <= 0 {
		return 0
	}
	return a.released(within, p.life(m, a))
}

// released is that where it is known how many seconds an answer lives.
func (a *account) released(within time.Duration, life float64) int {
	if within <= 0 || a.used <= 0 {
		return 0
	}
	running := float64(min(a.used, a.most))
	return min(a.used, int(running*within.Seconds()/life))
}

// life is the usual seconds of an answer on m, which computes prompts meanwhile.
func (p *Pool) life(m *member, a *account) float64 {
	batch := m.batch()
	if most := p.mostOf(m); most > 0 {
		batch = min(batch, most)
	}
	tokens := max(a.used*m.blockSize(), int(m.reads(float64(batch)))) // what is promised, too
	return float64(p.lengths.Usual()) * p.speed(m).Step(batch, tokens) * m.learned.PerToken()
}

const (
	maxRoomWait = time.Minute
	minRetry    = 10 * time.Millisecond
	maxRetry    = 10 * time.Second
)

func clampRetry(d time.Duration) time.Duration { return min(max(d, minRetry), maxRetry) }
