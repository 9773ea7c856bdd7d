package decode

import (
	"fmt"
	"time"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// compare fills in how much later the answer ends on each candidate than on the fastest one. It compares
// engines, not their present work, which other terms price. All are compared at the same load, so that equal
// engines are equal. A difference within the measurement error counts as none, and a replica without samples
// counts as neither better nor worse.
func (p *Pool) compare(cs []Candidate, now time.Time) {
	if len(cs) < 2 {
		return
	}
	at := meanLoad(cs, p.learned.StepSpeed())
	for i := range cs {
		if m := cs[i].member; m.learned.Steps.Known() {
			at.offer(m, cs[i].longer)
		}
	}
	for i := range cs {
		c := &cs[i]
		steps := &c.member.learned.Steps
		if !steps.Known() {
			continue
		}
		c.Later = at.behind(c.member, c.longer) * c.answer
		if risk, eased := steps.Eased(now); eased {
			measured := estimate.DefaultSpeed().WithDecode(steps.Measured(&p.learned.Steps.SpeedFit))
			c.Later = max(c.Later, at.behind(c.member, c.member.longer(&measured, &at.pool))*c.answer-risk)
		}
	}
}

// slope returns the cost of more load in a step of the pool. It is the larger of two fits: the fit over all
// replicas together, and the mean of the single replicas' fits, scaled to the speed of the pool. A slower
// replica has fewer sequences. So in the fit over all, fewer sequences seem to take longer, and more load
// seems to cost next to nothing.
func (p *Pool) slope(pool *estimate.Speed, now time.Time) estimate.Speed {
	if age := now.Sub(p.slopes.at); age < 0 || age > slopeEvery {
		p.slopes.at, p.slopes.is = now, p.slopeOf(pool)
	}
	return p.slopes.is
}

// slopeEvery is the greatest age of the slope: each plan needs it, and computing it looks at all members.
const slopeEvery = 100 * time.Millisecond

func (p *Pool) slopeOf(pool *estimate.Speed) estimate.Speed {
	var own estimate.Speed
	n := 0.0
	for _, m := range p.members.All {
		if m.learned.Steps.Known() {
			speed := p.speed(m)
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

// sameLoad is the load at which replicas are compared, and the step of the fastest under it.
type sameLoad struct {
	pool  estimate.Speed
	step  float64 // seconds of a step by the pool's fit
	least float64 // likely least seconds of the fastest replica's step, 0 unknown
}

// meanLoad returns the mean load of the candidates, with one more request.
func meanLoad(cs []Candidate, pool estimate.Speed) sameLoad {
	var batch, reads float64
	for i := range cs {
		batch += cs[i].Running + 1
		reads += cs[i].reads
	}
	return sameLoad{pool: pool, step: pool.Step(int(batch/float64(len(cs))), int(reads/float64(len(cs))))}
}

// longer returns how many times as long as the pool's steps the steps of m take by s, at the present load of
// m. A fit of one replica that has seen one load only can predict anything for another load.
func (m *member) longer(s, pool *estimate.Speed) float64 {
	if !m.learned.Steps.Known() { // s is the pool's
		return 1
	}
	has := m.decodes()
	batch, kv := int(has.Sequences), int(has.Tokens)
	return s.Step(batch, kv) / pool.Step(batch, kv)
}

// offer takes in a replica that may be the fastest. longer is the ratio of its steps to the pool's.
func (l *sameLoad) offer(m *member, longer float64) {
	if most := l.step * longer * (1 + m.learned.Steps.Error()); l.least == 0 || most < l.least {
		l.least = most
	}
}

// behind returns by how many seconds a replica's step is certainly longer than the fastest replica's.
func (l *sameLoad) behind(m *member, longer float64) float64 {
	return max(0, l.step*longer*(1-m.learned.Steps.Error())-l.least)
}

// Slow says why the replica id is slow beside the others of its pool, "" if it is not. known is false
// without enough samples. held says that it was slow before.
func (p *Pool) Slow(id replica.ID, held bool) (cause string, known bool) {
	p.members.Lock()
	defer p.members.Unlock()
	m, ok := p.members.Find(id)
	if !ok {
		return "", false
	}
	steps := make([]*estimate.DecayingFit, len(p.members.All))
	prefills := make([]*estimate.DecayingFit, len(p.members.All))
	for i, o := range p.members.All {
		steps[i], prefills[i] = &o.learned.Steps, &o.learned.Prompts.Fit
	}
	profile := estimate.DefaultSpeed()
	usual := profile.StepParts(usualBatch, usualBatch*estimate.UsualTokens)
	s := estimate.Compare(steps, m.Slot, &p.learned.Steps.SpeedFit, usual)
	if s.Slow(held) {
		return fmt.Sprintf("its decode steps take %.1f times as long as those of %s",
			s.Ratio, p.members.All[s.Than].R.ID), true
	}
	known = s.Known
	s = estimate.Compare(prefills, m.Slot, &p.learned.Prefills.SpeedFit,
		profile.PrefillParts(estimate.UsualTokens, 0))
	if s.Slow(held) {
		return fmt.Sprintf("the prompts that it prefills itself take %.1f times as long as on %s",
			s.Ratio, p.members.All[s.Than].R.ID), true
	}
	return "", known || s.Known
}

// usualBatch is the number of sequences at which replicas are compared.
const usualBatch = 16
