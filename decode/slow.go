package decode

import (
	"fmt"
	"slices"

	"github.com/tandem-router/tandem/internal/estimate"
)

// compare fills in how much later the answer ends on each candidate than on the fastest one. It compares
// engines, not their present work, which other terms price. All are compared at the same load, so that equal
// engines are equal. A difference within the measurement error counts as none, and a replica without samples
// counts as neither better nor worse.
func (q *survey) compare(cs []Candidate) {
	if len(cs) < 2 {
		return
	}
	at := meanLoad(cs, q.pool)
	for i := range cs {
		if m := cs[i].member; m.learned.Steps.Known() {
			at.offer(m, cs[i].longer)
		}
	}
	for i := range cs {
		c, m := &cs[i], cs[i].member
		steps := &m.learned.Steps
		if !steps.Known() {
			continue
		}
		c.Later = at.behind(m, c.longer) * c.answer
		if risk, eased := steps.Eased(q.now); eased {
			measured := estimate.DefaultSpeed().WithDecode(steps.Measured(&q.lesson.Steps.SpeedFit))
			c.Later = max(c.Later, at.behind(m, m.longer(&measured, &at.pool))*c.answer-risk)
		}
	}
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

// slow says why m is slow beside the other members of all with its model. cause is "" if m is not slow. known
// is false without enough samples. held says that m was slow before.
func (k *lessons) slow(m *member, all []*member, held bool) (cause string, known bool) {
	one := k.of(m)
	all = k.alike(one, all)
	at := slices.Index(all, m)
	steps := make([]*estimate.DecayingFit, len(all))
	prefills := make([]*estimate.DecayingFit, len(all))
	for i, o := range all {
		steps[i], prefills[i] = &o.learned.Steps, &o.learned.Prompts.Fit
	}
	profile := estimate.DefaultSpeed()
	usual := profile.StepParts(usualBatch, usualBatch*estimate.UsualTokens)
	s := estimate.Compare(steps, at, &one.Steps.SpeedFit, usual)
	if s.IsSlow(held) {
		return fmt.Sprintf("its decode steps take %.1f times as long as those of %s",
			s.Ratio, all[s.Than].R.ID), true
	}
	known = s.Known
	s = estimate.Compare(prefills, at, &one.Prefills.SpeedFit,
		profile.PrefillParts(estimate.UsualTokens, 0))
	if s.IsSlow(held) {
		return fmt.Sprintf("the prompts that it prefills itself take %.1f times as long as on %s",
			s.Ratio, all[s.Than].R.ID), true
	}
	return "", known || s.Known
}

// usualBatch is the number of sequences at which replicas are compared.
const usualBatch = 16
