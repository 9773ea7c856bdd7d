package orchestrator

import (
	"context"
	"errors"
	"time"

	"github.com/tandem-router/tandem/orchestrator/fleet"
)

// formerEra judges an answer of which its client has got nothing yet: since the request was sent, in era
// sent, its engine may have been found to have cached wrong blocks, by this router or another. Nobody knows
// whether the answer rests on them, so it is thrown away, and made again without them. It returns nil where
// all is well.
func formerEra(phase string, at *fleet.Endpoint, sent uint32) *failure {
	if at.CacheEpoch() <= sent {
		return nil
	}
	return refuse(kindFormerEra, site{phase: phase, at: at.Member.ID})
}

// maybeDistrust distrusts the decode engine of a split attempt that failed, if it may have read blocks that
// the prefill engine had given to others.
func (a *answer) maybeDistrust(f *failure) {
	h := a.h
	var still *unresponsive
	switch {
	case !h.sentParams || f.unused():
	case f.kind == kindLate, errors.As(f.err, &still) && still.at == a.to.Member.ID && !still.sleep:
		// That one may go on in the middle of a read.
		a.to.Distrust(a.before.era, f)
	case h.leaseAge(time.Now()) >= h.cfg().Connector.Lease:
		// A long queue, or a core that stands still and has not read yet: leases tell.
		o := h.j.q.o
		o.giveBacks.running.Go(func() { // joined by Run, ended by a timeout
			late := true // also where nobody can tell
			o.panics.Contain("distrust", func() {
				now, err := askLeaseCounters(context.Background(), h, h.prefillLeg.from, h.prefillLeg.leaseCounters)
				late = err != nil || now.Expired != h.prefillLeg.leaseCounters.Expired
			})
			if late {
				o.panics.Contain("distrust", func() { a.to.Distrust(a.before.era, f) })
			}
		})
	}
}
