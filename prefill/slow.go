package prefill

import (
	"fmt"

	"github.com/tandem-router/tandem/internal/estimate"
	"github.com/tandem-router/tandem/internal/replica"
)

// Slow says why the replica id is slow compared with its pool, "" where it is not. known is false if too
// little was measured. held says that the replica was slow at the last call.
func (p *Pool) Slow(id replica.ID, held bool) (cause string, known bool) {
	p.members.Lock()
	defer p.members.Unlock()
	m, ok := p.members.Find(id)
	if !ok {
		return "", false
	}
	all := make([]*estimate.DecayingFit, len(p.members.All))
	for i, o := range p.members.All {
		all[i] = &o.learned.Fit
	}
	s := estimate.Compare(all, m.Slot, &p.learned.Prefills.SpeedFit,
		estimate.DefaultSpeed().PrefillParts(estimate.UsualTokens, 0))
	if s.Slow(held) {
		return fmt.Sprintf("its prefills take %.1f times as long as those of %s",
			s.Ratio, p.members.All[s.Than].R.ID), true
	}
	return "", s.Known
}
