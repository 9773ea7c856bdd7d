package decode

import (
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
)

// lessons is what leases have taught the pool about all members together. What leases teach about one member
// stands in the member.
type lessons struct {
	speeds  estimate.Pool
	lengths estimate.Lengths
	slope   slope
}

// speed returns the best that is known of m.
func (k *lessons) speed(m *member) estimate.Speed { return k.speeds.Speed(&m.learned) }

// pricing returns the speed of m that a plan is priced with.
func (k *lessons) pricing(m *member, now time.Time) (s estimate.Pricing) {
	s.Speed = k.speed(m)
	k.speeds.Price(&s, &m.learned.Prompts, now)
	return s
}

// perToken returns the seconds in which each sequence of m gets a token now.
func (k *lessons) perToken(m *member) float64 {
	load := m.decodes()
	return k.speed(m).Step(int(load.Sequences), int(load.Tokens)) * m.learned.PerToken()
}

// count counts what m has decoded until now. Call it before the load of m changes.
func (k *lessons) count(m *member, now time.Time) { k.speeds.Count(&m.learned, m.decodes(), now) }

// done returns what m has done until now.
func (k *lessons) done(m *member, now time.Time) estimate.Done {
	return k.speeds.Done(&m.learned, m.decodes(), now)
}

// since returns what m has done since before.
func (k *lessons) since(before *estimate.Done, m *member, now time.Time) estimate.Meanwhile {
	return k.speeds.Since(&m.learned, before, m.decodes(), now)
}

// expects returns the expectation for the answer to q. meet makes a group for its class if there is none.
func (k *lessons) expects(q *Query, meet bool) estimate.Expectation {
	return k.lengths.Expect(q.Model, q.Tokens, &q.Class, meet)
}

// slope is the cost of more load in a step of the pool, as it was worked out last.
type slope struct {
	at time.Time
	is estimate.Speed
}

// slopeEvery is the greatest age of the slope: each plan needs it, and computing it looks at all members.
const slopeEvery = 100 * time.Millisecond

// costOfLoad returns the cost of more load in a step of the pool of all members. It is the larger of two
// fits: the fit over all replicas together, and the mean of the single replicas' fits, scaled to the speed of
// the pool. A slower replica has fewer sequences. So in the fit over all, fewer sequences seem to take
// longer, and more load seems to cost next to nothing.
func (k *lessons) costOfLoad(pool *estimate.Speed, all []*member, now time.Time) estimate.Speed {
	if age := now.Sub(k.slope.at); age < 0 || age > slopeEvery {
		k.slope = slope{now, k.slopeOf(pool, all)}
	}
	return k.slope.is
}

func (k *lessons) slopeOf(pool *estimate.Speed, all []*member) estimate.Speed {
	var own estimate.Speed
	n := 0.0
	for _, m := range all {
		if m.learned.Steps.Known() {
			speed := k.speed(m)
			longer := m.longer(&speed, pool)
			own.D1 += speed.D1 / longer
			own.D2 += speed.D2 / longer
			n++
		}
	}
	if own.Marginal(estimate.UsualTokens) <= n*pool.Marginal(estimate.UsualTokens) {
		return *pool
	}
	return estimate.Speed{D1: own.D1 / n, D2: own.D2 / n}
}
