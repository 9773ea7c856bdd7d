package decode

import (
	"slices"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// lessons is what leases have taught the pool about all members together. What leases teach about one member
// stands in the member.
type lessons struct {
	estimate.Models[batches]
	lengths estimate.Lengths // by model inside
}

// lesson is what was learned of the members with one base model.
type lesson = estimate.ModelPool[batches]

// batches is what was learned of the requests that members with one base model run at once.
type batches struct {
	slope slope
	most  int // sequences that a member runs at a time, the most learned of one; 0 unknown
}

// ofModel is what a member has to do with the lesson of its base model.
type ofModel struct {
	most   estimate.Sequences
	lesson *lesson          // nil before it is asked for
	of     *replica.Replica // the member as it was when the lesson was asked for
}

// of returns the lesson of m's base model. Each plan asks for it several times, for each member.
func (k *lessons) of(m *member) *lesson {
	if m.ofModel.of != m.R {
		k.meet(m)
	}
	return m.lesson
}

// meet looks up the lesson of m, whose facts have changed. A member that has another base model now is not as
// fast as it was.
func (k *lessons) meet(m *member) {
	m.ofModel.of = m.R
	base := m.R.Base()
	if m.lesson != nil && m.lesson.Base == base {
		return
	}
	if m.lesson != nil {
		m.learned, m.most = estimate.Replica{}, estimate.Sequences{}
	}
	m.lesson = k.About(base)
}

// asked returns the lesson for requests of a model, which serves[i] of all members answer for.
func (k *lessons) asked(all []*member, serves []bool) *lesson {
	if at := slices.Index(serves, true); at >= 0 {
		return k.of(all[at])
	}
	return k.About("")
}

// alike returns the members of all with the base model of a lesson, in their order.
func (k *lessons) alike(one *lesson, all []*member) []*member {
	if !slices.ContainsFunc(all, func(m *member) bool { return k.of(m) != one }) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(m *member) bool { return k.of(m) != one })
}

// speed returns the best that is known of m.
func (k *lessons) speed(m *member) estimate.Speed { return k.of(m).Speed(&m.learned) }

// pricing returns the speed of m that a plan is priced with.
func (k *lessons) pricing(m *member, now time.Time) (s estimate.Pricing) {
	speeds := k.of(m)
	s.Speed = speeds.Speed(&m.learned)
	speeds.Price(&s, &m.learned.Prompts, now)
	return s
}

// perToken returns the seconds in which each sequence of m gets a token now.
func (k *lessons) perToken(m *member) float64 {
	load := m.decodes()
	return k.speed(m).Step(int(load.Sequences), int(load.Tokens)) * m.learned.PerToken()
}

// count counts what m has decoded until now. Call it before the load of m changes.
func (k *lessons) count(m *member, now time.Time) {
	k.of(m).Count(&m.learned, m.decodes(), now)
}

// done returns what m has done until now.
func (k *lessons) done(m *member, now time.Time) estimate.Done {
	return k.of(m).Done(&m.learned, m.decodes(), now)
}

// since returns what m has done since before.
func (k *lessons) since(before *estimate.Done, m *member, now time.Time) estimate.Meanwhile {
	return k.of(m).Since(&m.learned, before, m.decodes(), now)
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

// costOfLoad returns the cost of more load in a step of all members with the model of a lesson. It is the
// larger of two fits: the fit over all replicas together, and the mean of the single replicas' fits, scaled
// to the speed of the pool. A slower replica has fewer sequences. So in the fit over all, fewer sequences
// seem to take longer, and more load seems to cost next to nothing.
func (k *lessons) costOfLoad(
	of *lesson, pool *estimate.Speed, all []*member, now time.Time,
) estimate.Speed {
	if age := now.Sub(of.Also.slope.at); age < 0 || age > slopeEvery {
		of.Also.slope = slope{now, k.slopeOf(pool, k.alike(of, all))}
	}
	return of.Also.slope.is
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
